"""How the threads of a block share the copy of one tile, as numbers.

In: rows, row width, vector width, threads, swizzle. Out: a plan: every thread's first vector and
constant steps from it. What is called constant is checked over all threads, never assumed. It
must not know the IR or CUDA text (codegen/copy_text.py prints plans).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from jaxpipe.codegen.swizzle import CHUNK_BYTES, NONE, Ints, Swizzle

SWIZZLE_PERIOD = 8  # rows


@dataclass(frozen=True, slots=True)
class Step:
    """One vector of a thread relative to its first: rows down, vectors to the right."""

    rows: int
    vectors: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How `threads` threads copy `rows` rows of `row_bytes` in vectors of `vector_bytes`.

    Thread t starts at row t / across, vector t % across. active: threads that have a first
    vector. xors and adds: the shared offset of step i is (first ^ xors[i]) + adds[i]; both are
    empty when no such constants exist and the offset has to be computed for each step.
    """

    rows: int
    row_bytes: int
    vector_bytes: int
    threads: int
    swizzle: Swizzle
    across: int
    active: int
    steps: tuple[Step, ...]
    xors: tuple[int, ...]
    adds: tuple[int, ...]

    @property
    def has_row_guard(self) -> bool:
        """True when the last steps of some threads fall below the tile."""
        return self.steps[-1].rows + (self.active - 1) // self.across >= self.rows

    @property
    def has_vector_guard(self) -> bool:
        """True when the last steps of some threads fall right of the tile."""
        vectors = self.row_bytes // self.vector_bytes
        return max(s.vectors for s in self.steps) + self.across > vectors


@functools.cache
def copy_plan(
    rows: int, row_bytes: int, vector_bytes: int, threads: int, swizzle: Swizzle
) -> CopyPlan:
    """The plan; vector_bytes must divide row_bytes."""
    assert row_bytes % vector_bytes == 0, f"vectors of {vector_bytes} in rows of {row_bytes}"
    per_row = row_bytes // vector_bytes
    if per_row <= threads:
        at_once = _rows_at_once(threads // per_row, swizzle)
        across, active = per_row, at_once * per_row
        steps = tuple(Step(r, 0) for r in range(0, rows, at_once))
    else:
        across = active = threads
        steps = tuple(Step(r, c) for r in range(rows) for c in range(0, per_row, threads))
    xors, adds = _constants(row_bytes, vector_bytes, across, active, steps, swizzle)
    return CopyPlan(
        rows, row_bytes, vector_bytes, threads, swizzle, across, active, steps, xors, adds
    )


def _rows_at_once(most: int, swizzle: Swizzle) -> int:
    """Rows that the threads fill together: in step with the swizzle, so that offsets are constant
    steps, even where some threads then have nothing to do."""
    if swizzle == NONE:
        return most
    if most >= SWIZZLE_PERIOD:
        return most // SWIZZLE_PERIOD * SWIZZLE_PERIOD
    return 1 << (most.bit_length() - 1)


def _constants(
    row_bytes: int, vector_bytes: int, across: int, active: int, steps: tuple[Step, ...],
    swizzle: Swizzle,
) -> tuple[tuple[int, ...], tuple[int, ...]]:  # fmt: skip
    thread = np.arange(active, dtype=np.int64)
    row, column = thread // across, thread % across * vector_bytes
    first = shared_offset(row, column, row_bytes, swizzle)
    found = []
    for step in steps:
        right = column + step.vectors * vector_bytes
        at = shared_offset(row + step.rows, right, row_bytes, swizzle)
        constants = constant_step(first, at)
        if constants is None:
            return (), ()
        found.append(constants)
    return tuple(x for x, _ in found), tuple(a for _, a in found)


def shared_offset(row: Ints, column_bytes: Ints, row_bytes: int, swizzle: Swizzle) -> Ints:
    """Byte offset of a position in a tile."""
    chunk = (column_bytes // CHUNK_BYTES) ^ swizzle.value(row)
    return row * row_bytes + chunk * CHUNK_BYTES + column_bytes % CHUNK_BYTES


def constant_step(first: Ints, at: Ints) -> tuple[int, int] | None:
    """Constants (xor, add) with at == (first ^ xor) + add for every thread, if there are any."""
    for xor in range(0, 16 * CHUNK_BYTES, CHUNK_BYTES):
        add = at - (first ^ xor)
        if (add == add[0]).all():
            return xor, int(add[0])
    return None
