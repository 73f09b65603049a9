"""csrc/host/plan.cc in columns: the loop bounds that every HostSchedule gives a problem.

In: a table of host schedules, a problem, the host. Out: HostPlan. It must not know time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxpipe.dtypes import DTYPES
from jaxpipe.model.table import Ints, ScheduleTable
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import HostDevice

SERIAL_FLOPS = 400_000  # kSerialFlops: below, the caller works alone
STRIP_BYTES_MAX = 4 << 20  # kStripBytesMax: packed strip of one item
MIN_BLOCK_K = 256  # kMinBlockK
WORD_BYTES = 4

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class HostPlan:
    """Columns of one length, and the numbers that all schedules share.

    A work item is `rows` x `cols` of one of `batches` products; items are counted over all. A word
    is 4 bytes of k: one float32, or two 16-bit terms where the instruction set multiplies those.
    lhs_row_bytes: from one row of lhs to the next where it lies.
    copies_lhs: lhs is copied to rows of words, by each item or once for the call (is_lhs_shared).
    """

    m: int
    n: int
    k: int
    batches: int
    operand_bytes: int
    lhs_row_bytes: int
    per_word: int
    threads: Ints
    tile_rows: Ints
    rows: Ints
    cols: Ints
    block_k: Ints
    blocks_m: Ints
    blocks_k: Ints
    strips: Ints
    streams: Bools
    is_rhs_shared: Bools
    copies_lhs: Bools
    is_lhs_shared: Bools
    is_direct: bool

    @property
    def items(self) -> Ints:
        """Work items of the call."""
        return self.batches * self.blocks_m * self.strips

    @property
    def words(self) -> int:
        """Words of one row of k terms."""
        return -(-self.k // self.per_word)


def host_plan(table: ScheduleTable[HostSchedule], problem: Problem, host: HostDevice) -> HostPlan:
    """The plan of every schedule."""
    kernels = host.kernels
    m, batches = _folded(problem)
    size = DTYPES[problem.dtype].size_bytes
    is_native = kernels.multiplies(problem.dtype)
    is_pairs = problem.dtype == "int8" or (problem.dtype == "bfloat16" and kernels.has_bf16)
    per_word = 2 if is_pairs else 1
    panel = kernels.panel_cols
    strip = np.where(table["strip"] > 0, np.minimum(table["strip"], max(problem.n, 1)), panel)
    cols = -(-strip // panel) * panel
    rows = np.where(table["block_m"] > 0, np.minimum(table["block_m"], max(m, 1)), max(m, 1))
    streams = (table["path"] == "stream") & _can_stream(problem, m, host)
    is_rhs_shared = ~streams & (table["pack"] == "shared")
    block_k = _block_k(table, problem.k, cols, per_word, is_rhs_shared)
    strips = -(-problem.n // cols)
    row = problem.lhs_ld if isinstance(problem, Matmul) else problem.in_channels
    readable = is_native and isinstance(problem, Matmul) and not problem.lhs.transposed
    copies_lhs = table["copy_lhs"] | (not readable)
    by_item = streams | (strips == 1) | isinstance(problem, Conv2d)
    threads = np.where(
        table["threads"] > 0, np.minimum(table["threads"], host.threads), host.threads
    )
    is_serial = 2.0 * batches * m * problem.n * problem.k < SERIAL_FLOPS
    raw = problem.dtype == "int8" or problem.out_dtype == "float32"
    return HostPlan(
        m=m, n=problem.n, k=problem.k, batches=batches, operand_bytes=size,
        lhs_row_bytes=row * size, per_word=per_word,
        threads=np.where(is_serial, 1, threads),
        tile_rows=_tile_rows(table, kernels.tile_rows),
        rows=rows, cols=cols, block_k=block_k,
        blocks_m=-(-m // rows), blocks_k=np.maximum(1, -(-problem.k // block_k)), strips=strips,
        streams=streams, is_rhs_shared=is_rhs_shared, copies_lhs=copies_lhs,
        is_lhs_shared=copies_lhs & ~by_item, is_direct=raw and problem.epilogue.is_identity,
    )  # fmt: skip


def _tile_rows(table: ScheduleTable[HostSchedule], most: int) -> Ints:
    return np.where(table["rows"] > 0, np.minimum(table["rows"], most), most)


def _block_k(
    table: ScheduleTable[HostSchedule], k: int, cols: Ints, per_word: int, is_rhs_shared: Bools
) -> Ints:
    """k of one pass; a strip that is packed by its item is kept to STRIP_BYTES_MAX."""
    asked = np.where(table["block_k"] > 0, table["block_k"], max(k, 1))
    fits = np.maximum(MIN_BLOCK_K, STRIP_BYTES_MAX // (WORD_BYTES * cols) * per_word)
    kept = np.where(is_rhs_shared, asked, np.minimum(asked, fits))
    return np.asarray(np.maximum(-(-kept // per_word) * per_word, 2))


def _folded(problem: Problem) -> tuple[int, int]:
    """(m, products) once batch dimensions over which rhs is the same are rows (FoldBatches)."""
    if isinstance(problem, Conv2d) or problem.epilogue.bias == "row":
        return problem.m, problem.batch_size
    m, batches = problem.m, list(problem.batch)
    while batches and _runs_on(problem, m, len(batches) - 1):
        m *= batches.pop()
    products = 1
    for size in batches:
        products *= size
    return m, products


def _runs_on(problem: Matmul, m: int, axis: int) -> bool:
    shared = problem.batch[axis] == 1 or problem.rhs_batch_strides[axis] == 0
    row_stride = 1 if problem.lhs.transposed else problem.lhs_ld
    return shared and problem.lhs_batch_strides[axis] == m * row_stride


def _can_stream(problem: Problem, m: int, host: HostDevice) -> bool:
    if not isinstance(problem, Matmul) or problem.rhs.transposed or problem.dtype == "int8":
        return False
    return m <= host.kernels.tile_rows
