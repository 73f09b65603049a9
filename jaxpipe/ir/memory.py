"""Memories of the IR interpreter: global arrays with their zero border, tiles with their state.

A tile of shared memory is undefined, in flight, landed (complete, but only its writers may know)
or visible. `Synchronisation` moves tiles between these states and refuses what races.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jaxpipe.errors import IrError
from jaxpipe.ir.nodes import Acquire, Buffer, Commit, Release, Stmt, Wait, Window

Array = NDArray[np.float64]


# ---------------------------------------------------------------------- global memory
@dataclass(frozen=True, slots=True)
class GlobalArray:
    """A parameter: what lies outside reads as zero and is not written."""

    buffer: Buffer
    values: Array

    def read(self, starts: tuple[int, ...], extents: tuple[int, ...]) -> Array:
        """The box, zero outside."""
        if self.buffer.window is not None:
            return _window(self.buffer.window, self.values, starts, extents)
        box, inside = self._boxes(starts, extents)
        result = np.zeros(extents)
        result[inside] = self.values[box]
        return result

    def write(self, starts: tuple[int, ...], extents: tuple[int, ...], values: Array) -> None:
        """Set what of the box lies inside."""
        box, inside = self._boxes(starts, extents)
        self.values[box] = values[inside]

    def _boxes(
        self, starts: tuple[int, ...], extents: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        box, inside = [], []
        for start, extent, size in zip(starts, extents, self.buffer.shape, strict=True):
            low, high = max(start, 0), max(min(start + extent, size), max(start, 0))
            box.append(slice(low, high))
            inside.append(slice(low - start, high - start))
        return tuple(box), tuple(inside)


def _window(
    window: Window, image: Array, starts: tuple[int, ...], extents: tuple[int, ...]
) -> Array:
    """Rows m, filter positions kh and kw, channels k of an NHWC image; zero outside."""
    m, kh, kw, k = (np.arange(s, s + e) for s, e in zip(starts, extents, strict=True))
    pixels = window.out_height * window.out_width
    n, oh, ow = m // pixels, m // window.out_width % window.out_height, m % window.out_width
    ih = oh[:, None] * window.stride[0] + kh * window.dilation[0] - window.padding[0]
    iw = ow[:, None] * window.stride[1] + kw * window.dilation[1] - window.padding[1]
    index = np.broadcast_arrays(
        n[:, None, None, None], ih[:, :, None, None], iw[:, None, :, None], k
    )
    inside = np.ones(index[0].shape, dtype=bool)
    for values, size in zip(index, image.shape, strict=True):
        inside &= (values >= 0) & (values < size)
    clipped = tuple(np.where(inside, values, 0) for values in index)
    if image.size == 0:
        return np.zeros(inside.shape)
    return np.where(inside, image[clipped], 0.0)


# ---------------------------------------------------------------------- tiles
@dataclass(slots=True, eq=False)
class Tile:
    """One stage of a local buffer. `state`: undefined, flight, landed or visible."""

    name: str
    is_shared: bool
    values: Array
    defined: NDArray[np.bool_]
    state: str = "undefined"
    read_in: int = -1  # barrier interval of the last read
    holds_released: bool = True

    @classmethod
    def undefined(cls, buffer: Buffer) -> Tile:
        """A tile that holds nothing."""
        defined = np.zeros(buffer.shape, dtype=bool)
        return cls(buffer.name, buffer.scope == "shared", np.zeros(buffer.shape), defined)

    def read(self, starts: tuple[int, ...], extents: tuple[int, ...]) -> Array:
        """The box; IrError when part of it was never written."""
        box = self._box(starts, extents)
        if not self.defined[box].all():
            raise IrError(f"{self.name} is read before it is written")
        return self.values[box]

    def write(self, starts: tuple[int, ...], extents: tuple[int, ...], values: Array) -> None:
        """Set the box."""
        box = self._box(starts, extents)
        self.values[box] = values
        self.defined[box] = True

    def _box(self, starts: tuple[int, ...], extents: tuple[int, ...]) -> tuple[slice, ...]:
        for start, extent, size in zip(starts, extents, self.values.shape, strict=True):
            if start < 0 or start + extent > size:
                raise IrError(f"{self.name}: {start}..{start + extent} is outside 0..{size}")
        return tuple(slice(s, s + e) for s, e in zip(starts, extents, strict=True))


# ---------------------------------------------------------------------- synchronisation
@dataclass(slots=True)
class Synchronisation:
    """What is ordered with what inside one block. level: none, pipes or groups."""

    level: str
    interval: int = 0
    current: list[Tile] = field(default_factory=list)
    chunks: list[list[Tile]] = field(default_factory=list)
    acquired: int = 0
    waited: int = 0
    released: int = 0
    products: list[tuple[Tile, ...]] = field(default_factory=list)

    def check_read(self, tile: Tile) -> None:
        """Refuse to read a shared tile that is not visible, or sums of a product in flight."""
        if any(tile is product[0] for product in self.products):
            raise IrError(f"{tile.name} is read while a product is in flight (no wait_mma)")
        if not tile.is_shared or self.level == "none":
            return
        if tile.state != "visible":
            raise IrError(f"{tile.name} is read while {_STATES[tile.state]}")
        if self.level == "pipes" and tile.holds_released:
            raise IrError(f"{tile.name} is read after its chunk was released")
        tile.read_in = self.interval

    def begin_write(self, tile: Tile, *, is_async: bool) -> None:
        """Refuse to overwrite what others may still read; note what is in flight."""
        if any(tile is operand for product in self.products for operand in product):
            raise IrError(f"{tile.name} is overwritten while a product in flight uses it")
        if not tile.is_shared or self.level == "none":
            return
        if self.level == "pipes" and not tile.holds_released:
            raise IrError(f"{tile.name} is overwritten before its chunk was released")
        if self.level == "groups" and tile.read_in == self.interval:
            raise IrError(f"{tile.name} is overwritten with no barrier after its last read")
        if tile.state == "flight" and tile not in self.current:
            raise IrError(f"{tile.name} is overwritten while a copy to it is in flight")
        tile.state = "flight" if is_async else "landed"
        if tile not in self.current:
            self.current.append(tile)

    # ------------------------------------------------------------------ asynchronous products
    def product(self, acc: Tile, operands: tuple[Tile, ...]) -> None:
        """A product starts: it owns its sums and reads its operands until it is waited for."""
        self.products.append((acc, *operands))

    def wait_products(self, pending: int) -> None:
        """All but the newest `pending` products are complete."""
        self.products = self.products[max(0, len(self.products) - pending) :]

    # ------------------------------------------------------------------ abstract pipes
    def is_ready(self, statement: Stmt, stages: int) -> bool:
        """Whether a role can go on with this statement at once."""
        match statement:
            case Acquire():
                return self.acquired - self.released < stages
            case Wait():
                return self.waited < len(self.chunks)
            case _:
                return True

    def pipe(self, statement: Stmt, stages: int) -> None:
        """Acquire, Commit, Wait or Release of the block's pipe."""
        match statement:
            case Acquire():
                self.acquired += 1
                if self.acquired - self.released > stages:
                    raise IrError(
                        f"all {stages} stages are in use: the producer would wait for ever"
                    )
            case Commit():
                for tile in self.current:
                    tile.state, tile.holds_released = "flight", False
                self.chunks.append(self.current)
                self.current = []
            case Wait():
                self._wait()
            case Release():
                self._release()
            case _:
                raise NotImplementedError(type(statement).__name__)

    def _wait(self) -> None:
        if self.waited >= len(self.chunks):
            raise IrError("wait for a chunk that was never committed")
        for tile in self.chunks[self.waited]:
            tile.state = "visible"
        self.waited += 1

    def _release(self) -> None:
        if self.released >= self.waited:
            raise IrError("release of a chunk that was never waited for")
        for tile in self.chunks[self.released]:
            if any(tile is operand for product in self.products for operand in product):
                raise IrError(f"{tile.name} is released while a product in flight reads it")
            tile.holds_released = True
        self.released += 1

    # ------------------------------------------------------------------ groups and barriers
    def commit_group(self) -> None:
        """cp.async.commit_group."""
        self.chunks.append([t for t in self.current if t.state == "flight"])
        self.current = []

    def wait_group(self, pending: int) -> None:
        """cp.async.wait_group: all but the newest `pending` groups have landed."""
        done = max(self.waited, len(self.chunks) - pending)
        for tile in (t for chunk in self.chunks[self.waited : done] for t in chunk):
            tile.state = "landed"
        self.waited = done

    def barrier(self, tiles: Iterable[Tile]) -> None:
        """Everything that has landed is visible; reads before are over."""
        self.interval += 1
        for tile in tiles:
            if tile.state == "landed":
                tile.state = "visible"


_STATES = {
    "undefined": "it holds nothing",
    "flight": "its copy is in flight (no wait covers it)",
    "landed": "only its writers know that it is complete (no barrier since)",
}
