"""Is a schedule of family "ampere" legal for this problem on this target? Reasons as data.

In: schedule, problem, arch. Out: reasons, each with what, got, limit and remedy; and warnings for
what compiles but may spill. Must not know the IR or the emitter. Limits: PTX ISA (mma.sync,
cp.async), CUDA programming guide (grid, threads, shared memory, registers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from jaxpipe.dtypes import DTYPES
from jaxpipe.problem import Conv2d, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch

ROW_BYTES = (32, 64, 128, 256)  # of k in shared memory
K_BYTES = 32  # of k in one instruction
MAX_GRID = 2**31 - 1
MAX_OFFSET = 2**31 - 1  # rows and columns are 32-bit, offsets 64-bit
WINDOW_BITS = 32  # filter rows plus filter columns, one bit each
SLACK_REGISTERS = 12  # below the limit, where ptxas may already spill a little
UNPACKING_REGISTERS = 5  # where mma.sync of 8-bit floats is made from float16 products
BASE_REGISTERS = 44  # of addresses, counters and the epilogue
INTEGER_ACTIVATIONS = ("none", "relu")

Rule = Callable[[GpuSchedule, Problem, Arch], Iterator[str]]


def ampere_reasons(schedule: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """Reasons why the mma.sync family cannot serve `problem` with `schedule` on `arch`."""
    found = [r for rule in _SHAPE_RULES for r in rule(schedule, problem, arch)]
    if not found:
        found = [r for rule in _RESOURCE_RULES for r in rule(schedule, problem, arch)]
    yield from found


# ---------------------------------------------------------------- what is computed
def _operands(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if problem.dtype.startswith("float8") and not arch.has_mma_fp8:
        yield f"{arch.name} has no tensor-core products of {problem.dtype}: use bfloat16"
    if problem.dtype == "bfloat16" and not arch.has_mma_bf16:
        yield f"{arch.name} has no tensor-core products of bfloat16: use float16"


def _results(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    epilogue, out = problem.epilogue, DTYPES[problem.out_dtype]
    if problem.out_dtype.startswith("float8") and not arch.has_mma_fp8:
        yield f"{arch.name} cannot convert to {problem.out_dtype}: use out_dtype=bfloat16"
    if out.is_float:
        return
    if DTYPES[problem.dtype].is_float:
        yield f"{problem.dtype} products stored as {problem.out_dtype}: use a float out_dtype"
    if epilogue.alpha != 1.0 or epilogue.activation not in INTEGER_ACTIVATIONS:
        words = epilogue.describe()
        yield f"epilogue {words} of {problem.out_dtype} results: use a float out_dtype"
    if epilogue.bias != "none" and DTYPES[problem.bias_dtype].is_float:
        yield f"a {problem.bias_dtype} bias of {problem.out_dtype} results: use a float out_dtype"


def _window(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if isinstance(problem, Conv2d) and sum(problem.kernel) > WINDOW_BITS:
        yield f"filter {problem.kernel}: rows plus columns are at most {WINDOW_BITS}, use XLA"


def _extents(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    slack = max(s.block_m, s.block_n, s.block_k * max(s.split_k, 1))
    for name, size in (("m", problem.m), ("n", problem.n), ("k", problem.k)):
        if size + slack > MAX_OFFSET:
            yield f"{name}={size}: indices are 32-bit, use a smaller problem or XLA"


# ---------------------------------------------------------------- how
def _shape(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """Tiles are made of whole instructions: 16 x 16 results, 32 bytes of k."""
    size = DTYPES[problem.dtype].size_bytes
    if s.warps_m < 1 or s.warps_n < 1:
        yield f"warps {s.warps_m}x{s.warps_n}: at least one each way"
        return
    if s.block_m < 1 or s.block_m % (16 * s.warps_m):
        yield f"block_m={s.block_m} over {s.warps_m} warps: use a multiple of {16 * s.warps_m}"
    if s.block_n < 1 or s.block_n % (16 * s.warps_n):
        yield f"block_n={s.block_n} over {s.warps_n} warps: use a multiple of {16 * s.warps_n}"
    if s.block_k * size not in ROW_BYTES:
        yield (
            f"block_k={s.block_k} of {problem.dtype} is {s.block_k * size} bytes a row: "
            f"use {', '.join(str(b // size) for b in ROW_BYTES)}"
        )


def _pipeline(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if not 1 <= s.smem_stages <= 8:
        yield f"smem_stages={s.smem_stages}: use 1 to 8"
    if s.reg_stages not in (1, 2, 4):
        yield f"reg_stages={s.reg_stages}: use 1, 2 or 4"
    if s.raster_group < 1:
        yield f"raster_group={s.raster_group}: at least 1"
    if s.min_blocks_per_sm < 1:
        yield f"min_blocks_per_sm={s.min_blocks_per_sm}: at least 1"


def _split(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if s.split_k < 1:
        yield f"split_k={s.split_k}: at least 1"
        return
    if s.split_k == 1:
        return
    if isinstance(problem, Conv2d) and not problem.is_pointwise:
        yield "split_k of a convolution is not built: use split_k=1"
    steps = -(-problem.k // max(s.block_k, 1))
    per_split = -(-steps // s.split_k)
    if steps <= per_split * (s.split_k - 1):
        most = -(-steps // max(per_split, 1))
        yield (
            f"split_k={s.split_k} of {steps} k tiles leaves splits without work: "
            f"use split_k={max(most, 1)}"
        )


def _threads(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if s.threads > arch.max_threads_per_block:
        yield f"{s.threads} threads a block: {arch.name} allows {arch.max_threads_per_block}"


# ---------------------------------------------------------------- resources
def _shared(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    need, limit = s.shared_bytes(problem), arch.shared_per_block_bytes
    if need <= limit:
        return
    most = limit // s.stage_bytes(problem)
    stages = s.stages(problem)
    remedy = f"use at most {most} stages or a smaller block" if most else "use a smaller block"
    yield (
        f"{stages} stages need {need} bytes of shared memory per block, "
        f"{arch.name} allows {limit}: {remedy}"
    )


def _registers(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """What cannot fit at all; what may spill is a warning."""
    results = accumulators(s) + fragments(s)
    limit = min(
        arch.max_registers_per_thread,
        arch.registers_per_sm // (s.threads * s.min_blocks_per_sm) // 8 * 8,
    )
    if results >= limit:
        yield (
            f"a warp tile of {s.warp_m}x{s.warp_n} keeps {results} registers of results and "
            f"operands a thread, of {limit}: use more warps, reg_stages=1 or a smaller block"
        )


def _grid(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if s.blocks(problem) > MAX_GRID:
        yield f"{s.blocks(problem)} blocks: a grid has at most {MAX_GRID}, use a larger block"


_SHAPE_RULES: tuple[Rule, ...] = (
    _operands, _results, _window, _extents, _shape, _pipeline, _split, _threads,
)  # fmt: skip
_RESOURCE_RULES: tuple[Rule, ...] = (_shared, _registers, _grid)


# ---------------------------------------------------------------- registers
def accumulators(s: GpuSchedule) -> int:
    """Registers of one thread's results."""
    return s.warp_m * s.warp_n // 32


def fragments(s: GpuSchedule) -> int:
    """Registers of one thread's operands: 4 for every 16 rows or columns, in every stage."""
    return s.reg_stages * (s.warp_m + s.warp_n) // 4


def ampere_warnings(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """What is legal but may spill registers to memory."""
    need = register_estimate(s, problem)
    if problem.dtype.startswith("float8") and not arch.has_native_mma_fp8:
        need = max(need, unpacked_estimate(s, problem))
    limit = min(
        arch.max_registers_per_thread,
        arch.registers_per_sm // (s.threads * s.min_blocks_per_sm) // 8 * 8,
    )
    if need > limit - SLACK_REGISTERS:
        yield f"about {need} registers a thread of {limit}: may spill, use a smaller warp tile"


def register_estimate(s: GpuSchedule, problem: Problem) -> int:
    """Registers of one thread, estimated from above.

    Results, operands, and what a thread keeps for each vector that it copies: data where copies
    go through registers, a pixel and a mask in a convolution, a guard where tiles reach past an
    end. The constants are fitted to what ptxas 13.5 reported over drawn kernels
    (tests/codegen/test_static_gates.py holds them to it).
    """
    vectors = sum(_vectors(s, problem))
    kept = vectors // 2
    if _is_ragged(s, problem):
        kept = 2 * vectors + 16
    if isinstance(problem, Conv2d) and not problem.is_pointwise:
        kept += 3 * vectors
    if is_staged(problem):
        kept += 9 * vectors
    if s.stages(problem) == 1 and (_is_ragged(s, problem) or min(row_alignments(problem)) < 16):
        kept += 128  # ptxas moves the fragments of all slices up in front of the products
    epilogue = 8 * problem.epilogue.residual + 24 * problem.epilogue.save_preactivation
    return accumulators(s) + fragments(s) + kept + epilogue + BASE_REGISTERS


def unpacked_estimate(s: GpuSchedule, problem: Problem) -> int:
    """Registers of one thread where ptxas turns 8-bit floats into float16 for each product.

    The unpacked operands of a step count, more than results do. Fitted to 304 drawn kernels for
    sm_90 and sm_100, of which 127 spilled: all of these are warned of, as are 104 others.
    """
    slices = _slices(s, problem)
    kept = 12 * _is_ragged(s, problem)
    if is_staged(problem):
        kept += 4 * sum(_vectors(s, problem))
    return 3 * (s.warp_m + s.warp_n) + 48 * max(slices // 2 - 1, 0) + kept + UNPACKING_REGISTERS


def _slices(s: GpuSchedule, problem: Problem) -> int:
    """Slices of k in one step, an instruction deep each."""
    return s.block_k * DTYPES[problem.dtype].size_bytes // K_BYTES


def _vectors(s: GpuSchedule, problem: Problem) -> tuple[int, int]:
    """Vectors of each operand that a thread copies in one step of k."""
    width = s.block_k * DTYPES[problem.dtype].size_bytes
    lhs, rhs = row_alignments(problem)
    return (
        -(-s.block_m * width // (max(lhs, 4) if lhs >= 4 else 16) // s.threads),
        -(-s.block_n * width // (max(rhs, 4) if rhs >= 4 else 16) // s.threads),
    )


def _is_ragged(s: GpuSchedule, problem: Problem) -> bool:
    return bool(problem.m % s.block_m or problem.n % s.block_n)


def row_alignments(problem: Problem) -> tuple[int, int]:
    """Largest power of two, at most 16, that divides the address of every row of lhs and rhs."""
    size = DTYPES[problem.dtype].size_bytes
    if isinstance(problem, Conv2d):
        return math.gcd(16, problem.in_channels * size), math.gcd(16, problem.out_channels * size)
    lhs = (problem.lhs_ld, *problem.lhs_batch_strides)
    rhs = (problem.rhs_ld, *problem.rhs_batch_strides)
    return math.gcd(16, *(x * size for x in lhs)), math.gcd(16, *(x * size for x in rhs))


def is_staged(problem: Problem) -> bool:
    """True when rows of an operand are aligned to less than 4 bytes: copies hold registers."""
    return min(row_alignments(problem)) < 4
