"""How the lanes of a warp read fragments of a tile from shared memory, as numbers.

In: an operand's tile, its storage order, warp tile and warps, swizzle. Out: a plan: the offset of
every lane for block i of 16 rows or columns and slice s of k, as constants from one first offset
where such constants exist (checked over all lanes of all warps). It must not know CUDA text.

A fragment is four 32-bit registers of m16 x (32 bytes of k), or of two n8 x (32 bytes of k).
Source: PTX ISA, mma.sync and ldmatrix; research notes cuda.md sections 3.1 to 3.3 and 7.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxpipe.codegen.copies import constant_step, shared_offset
from jaxpipe.codegen.swizzle import Ints, Reader, Swizzle

K_BYTES = 32
Operand = Literal["lhs", "rhs"]
LOW_HIGH = "lane % 8 + lane / 16 * 8"


@dataclass(frozen=True, slots=True)
class Tile:
    """One operand's tile in shared memory, and how warps share it.

    is_k_major: k runs along the stored row. span: rows (lhs) or columns (rhs) of the warp tile.
    warps: all warps of the block along m and n; warp w is (w % m, w / m).
    """

    operand: Operand
    element_bytes: int
    is_k_major: bool
    row_bytes: int
    span: int
    warps: tuple[int, int]
    swizzle: Swizzle

    @property
    def blocks(self) -> int:
        """Blocks of 16 rows or columns in a warp tile."""
        return self.span // 16

    @property
    def loader(self) -> Literal["ldmatrix", "ldmatrix_transposed", "words", "bytes"]:
        """How a block is read: 8- and 32-bit elements cannot be transposed by ldmatrix."""
        if self.is_k_major:
            return "ldmatrix"
        by_size: dict[int, Literal["bytes", "ldmatrix_transposed", "words"]]
        by_size = {1: "bytes", 2: "ldmatrix_transposed", 4: "words"}
        return by_size[self.element_bytes]

    @property
    def loads(self) -> int:
        """Shared accesses that make one block's four registers (each gives 4, 4 or 1)."""
        return {"words": 4, "bytes": 1}.get(self.loader, 1)


def reader(is_k_major: bool, element_bytes: int) -> Reader:
    """Which access pattern the swizzle must serve."""
    if is_k_major or element_bytes == 2:
        return "rows"
    return "words" if element_bytes == 4 else "bytes"


def offsets(tile: Tile, block: int, k_slice: int, load: int = 0) -> Ints:
    """Byte offsets that the threads of all warps read for a block, a slice, a load."""
    row, column = _position(tile, block, k_slice, load)
    return shared_offset(row, column, tile.row_bytes, tile.swizzle)


def _position(tile: Tile, block: int, k_slice: int, load: int) -> tuple[Ints, Ints]:
    """Stored row and byte column of every thread."""
    thread = np.arange(32 * tile.warps[0] * tile.warps[1], dtype=np.int64)
    lane, warp = thread % 32, thread // 32
    mine = warp % tile.warps[0] if tile.operand == "lhs" else warp // tile.warps[0]
    mn = mine * tile.span + block * 16
    k = k_slice * (K_BYTES // tile.element_bytes)
    is_lhs = tile.operand == "lhs"
    low, pair, high = lane & 7, lane >> 3 & 1, lane >> 4
    match tile.loader:
        case "ldmatrix":  # rows are m or n; 16-byte halves of the slice
            row, half = (lane & 15, high) if is_lhs else (low + high * 8, pair)
            return mn + row, k_slice * K_BYTES + half * 16
        case "ldmatrix_transposed":  # rows are k; eight elements of m or n
            row, half = (low + high * 8, pair) if is_lhs else (lane & 15, high)
            return k + row, mn * 2 + half * 16
        case "words":  # register load = (k half, m or n half), one element a lane
            k_half, mn_half = (load >> 1, load & 1) if is_lhs else (load & 1, load >> 1)
            return k + k_half * 4 + (lane & 3), (mn + mn_half * 8 + (lane >> 2)) * 4
        case "bytes":  # rows 4t, 4t+1 then 4t+2, 4t+3 of each half of the slice
            inner = low // 2 * 4 + low % 2
            return k + inner + pair * 2 + high * 16, mn + lane * 0


@dataclass(frozen=True, slots=True)
class FragmentPlan:
    """Constants of one slice: offset of block i, load j is (first ^ xors[i][j]) + adds[i][j].

    is_per_block: `first` is the block's own first offset (one register a block), because no
    constants lead from block 0 to all others; it happens when the warp tile is no power of two.
    """

    is_per_block: bool
    xors: tuple[tuple[int, ...], ...]
    adds: tuple[tuple[int, ...], ...]


@functools.cache
def needs_block_offsets(tile: Tile) -> bool:
    """True when block offsets are not constant steps from block 0."""
    first = offsets(tile, 0, 0)
    return any(constant_step(first, offsets(tile, i, 0)) is None for i in range(tile.blocks))


@functools.cache
def fragment_plan(tile: Tile, k_slice: int) -> FragmentPlan:
    """The plan of a slice of k; its constants are verified for all lanes of all warps."""
    is_per_block = needs_block_offsets(tile)
    xors, adds = [], []
    for block in range(tile.blocks):
        first = offsets(tile, block if is_per_block else 0, 0)
        steps = []
        for load in range(tile.loads):
            step = constant_step(first, offsets(tile, block, k_slice, load))
            assert step is not None, f"no constants for block {block}, slice {k_slice} of {tile}"
            steps.append(step)
        xors.append(tuple(x for x, _ in steps))
        adds.append(tuple(a for _, a in steps))
    return FragmentPlan(is_per_block, tuple(xors), tuple(adds))


def first_offset_text(tile: Tile, start: str, block: str = "") -> tuple[str, str]:
    """C expressions of the stored row and the byte column that a lane reads first.

    start: the first row (lhs) or column (rhs) of the warp tile; block: index of the block of 16.
    """
    mn = start + (f" + {block} * 16" if block else "")
    is_lhs = tile.operand == "lhs"
    match tile.loader:
        case "ldmatrix":
            row, half = ("lane % 16", "lane / 16") if is_lhs else (LOW_HIGH, "lane / 8 % 2")
            return f"{mn} + {row}", f"{half} * 16"
        case "ldmatrix_transposed":
            row, half = (LOW_HIGH, "lane / 8 % 2") if is_lhs else ("lane % 16", "lane / 16")
            return row, f"({mn} + {half} * 8) * 2"
        case "words":
            return "lane % 4", f"({mn} + lane / 4) * 4"
        case "bytes":
            return "lane % 8 / 2 * 4 + lane % 2 + lane / 8 % 2 * 2 + lane / 16 * 16", mn
