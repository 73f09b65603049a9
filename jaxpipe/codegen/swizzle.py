"""Swizzles: which 16-byte chunk of a shared row a chunk is stored in.

In: the width of a row and how its fragments are read. Out: a row of the table: the number that is
XORed onto the chunk index of shared row r, as numpy and as C. Conflict-free for the writes of
cp.async (eight lanes fill 128 bytes of one or more rows) and for the reads named in `reader`.
Source: research notes cuda.md section 3.3; TMA uses the first three patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reader = Literal["rows", "words", "bytes"]
CHUNK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Swizzle:
    """chunk ^= ((r >> shift) & mask) * scale, plus (r & low) where fragments gather bytes."""

    shift: int
    mask: int
    scale: int = 1
    low: int = 0

    def value(self, row: Ints) -> Ints:
        """The number XORed onto the chunk indices of `row`."""
        return ((row >> self.shift) & self.mask) * self.scale | (row & self.low)

    def text(self, row: str) -> str:
        """The same as a C expression."""
        if not self.mask and not self.low:
            return "0"
        shift = f" >> {self.shift}" if self.shift else ""
        shifted = f"({row}{shift} & {self.mask})"
        scaled = f"{shifted} * {self.scale}" if self.scale > 1 else shifted
        return f"({shifted} | {row} & {self.low})" if self.low else scaled


NONE = Swizzle(0, 0)


def swizzle(row_bytes: int, reader: Reader) -> Swizzle:
    """The pattern for rows of `row_bytes`, a multiple of 16.

    Rows of an odd number of 16-byte chunks spread over the banks by themselves; the fewer times
    two divides the chunks, the fewer bits have to be permuted. reader "rows": ldmatrix of rows
    that follow each other. "words": 32-bit loads of 4 rows x 8 columns (tf32 stored along m or n).
    "bytes": ldmatrix of rows 0, 1, 4, 5, 8, ... (8-bit elements stored along m or n, four k in a
    register; two-way conflicts are left where rows are odd multiples of 32 or 16 bytes).
    """
    if row_bytes % 128 == 0:
        return {"rows": Swizzle(0, 7), "words": Swizzle(0, 3, 2), "bytes": Swizzle(1, 6, low=1)}[
            reader
        ]
    if row_bytes % 64 == 0:
        return {"rows": Swizzle(1, 3), "words": Swizzle(1, 1, 2), "bytes": Swizzle(2, 3)}[reader]
    return Swizzle(2, 1) if row_bytes % 32 == 0 else NONE


def replays(row_bytes: int, reader: Reader) -> int:
    """Passes over the banks that an access of operands needs under `swizzle`: 1 is no conflict.

    What the emitted kernels are held to (benchmarks/interpreted_sweep.py).
    """
    return 2 if reader == "bytes" and row_bytes % 64 else 1
