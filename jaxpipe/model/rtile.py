"""ROLLER's rTile (OSDI'22): tiles that align with the hardware, and what growing one is worth.

In: a workload's extents, an alignment. Out: aligned sizes, reuse scores, footprints. Four rules
make a size aligned: whole execution units, whole memory transactions, no bank conflicts (by
swizzle, or by padding), and little padding of the tensor (epsilon). It must not know schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jaxpipe.model.workload import Workload

Axis = Literal["m", "n", "k"]
AXES: tuple[Axis, ...] = ("m", "n", "k")


@dataclass(frozen=True, slots=True)
class RTile:
    """A tile of the product's axes: m x n results, k terms of each at a time."""

    m: int
    n: int
    k: int

    def with_size(self, axis: Axis, size: int) -> RTile:
        """The same tile with another size along `axis`."""
        return replace(self, **{axis: size})

    def footprint_bytes(self, load: Workload) -> int:
        """Bytes of the two operand tiles (F in the paper)."""
        return (self.m + self.n) * self.k * load.operand_bytes

    def traffic_bytes(self, load: Workload) -> float:
        """Bytes that the whole product moves at this granularity (Q in the paper)."""
        rows, columns = _tiles(load.m, self.m), _tiles(load.n, self.n)
        steps = _tiles(load.k, self.k) * self.k
        operands = rows * columns * (self.m + self.n) * steps * load.operand_bytes
        results = rows * self.m * columns * self.n * (load.write_bytes + load.read_bytes)
        return float(load.batch * (operands + results))


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which sizes of each axis a level admits: ascending, whole units and whole transactions."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]

    def sizes(self, axis: Axis) -> tuple[int, ...]:
        """The admitted sizes along `axis`."""
        return {"m": self.m, "n": self.n, "k": self.k}[axis]


def is_shape_aligned(size: int, extent: int, epsilon: float) -> bool:
    """True when tiles of `size` pad `extent` by at most the fraction `epsilon` (rule 4)."""
    return _tiles(extent, size) * size <= extent * (1.0 + epsilon)


def transaction_elements(transaction_bytes: int, operand_bytes: int) -> int:
    """Elements of one memory transaction: what leading sizes are a multiple of (rule 2)."""
    return max(1, transaction_bytes // operand_bytes)


def storage_padding(leading: int, read: int, banks: int, width: int) -> int:
    """Elements to add to a row so that it is free of bank conflicts.

    The row has `leading` elements and is read in pieces of `read`; banks are `width` elements
    wide (rule 3). GPU kernels here swizzle instead; csrc/host pads its copies of lhs to an odd
    number of cache lines, which is this rule with cache sets for banks.
    """
    line = banks * width
    piece = width * -(-read // width)
    return (line + piece - leading % line) % line


def next_aligned(
    tile: RTile, axis: Axis, load: Workload, align: Alignment, epsilon: float
) -> RTile | None:
    """`tile` grown to the next aligned size of `axis`, or None when there is none."""
    extent = {"m": load.m, "n": load.n, "k": load.k}[axis]
    now = getattr(tile, axis)
    for size in align.sizes(axis):
        if size > now and is_shape_aligned(size, extent, epsilon):
            return tile.with_size(axis, size)
    return None


def reuse_score(tile: RTile, grown: RTile, load: Workload) -> float:
    """Traffic saved a byte of footprint added: (Q(T) - Q(T')) / (F(T') - F(T))."""
    saved = tile.traffic_bytes(load) - grown.traffic_bytes(load)
    return saved / max(1, grown.footprint_bytes(load) - tile.footprint_bytes(load))


def grown_tiles(tile: RTile, load: Workload, align: Alignment, epsilon: float) -> list[RTile]:
    """The next aligned tile of each axis, best reuse score first (GetNextRTileShapes)."""
    grown = (next_aligned(tile, axis, load, align, epsilon) for axis in AXES)
    found = [t for t in grown if t is not None]
    return sorted(found, key=lambda t: -reuse_score(tile, t, load))


def fused_axes(extents: Sequence[int], tensors: Iterable[Sequence[int]]) -> list[list[int]]:
    """Groups of neighbouring axes that may be tiled as one long axis (axis fusion).

    `tensors` list, for each tensor, the axes it has in storage order. Axes i, i + 1 fuse when every
    tensor has both, one after the other, or neither. Matmul rows of a batch with a shared rhs, or a
    convolution's image, height and width, become one m this way.
    """
    groups: list[list[int]] = [[0]] if extents else []
    stored = [list(axes) for axes in tensors]
    for axis in range(1, len(extents)):
        if all(_runs_on(axes, axis - 1, axis) for axes in stored):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _runs_on(axes: list[int], first: int, second: int) -> bool:
    if first in axes and second in axes:
        return axes.index(second) == axes.index(first) + 1
    return first not in axes and second not in axes


def _tiles(extent: int, size: int) -> int:
    return -(-extent // size)
