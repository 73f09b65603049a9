"""A problem as the models see it: an implicit product, the bytes of its operands, its epilogue.

In: a Problem. Out: a Workload. It must not know schedules or devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jaxpipe.dtypes import DTYPES
from jaxpipe.geometry_hopper import Role, operand_alignment, patch_of
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import row_vector

ROLES: tuple[Role, ...] = ("lhs", "rhs")

# Float operations of one epilogue element, counted in issued instructions of one lane: tanh.approx
# and ex2 are one each; erf is about 20 (research: rational fit or erff).
_ACTIVATION_OPS = {
    "none": 0, "relu": 1, "gelu_tanh": 9, "silu": 6, "tanh": 2, "gelu_erf": 22,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """`batch` products of m x k by k x n, and what surrounds them.

    Sizes are elements, bytes say so. lhs_bytes and rhs_bytes are the distinct operand bytes in
    device memory (for a convolution the image, not its im2col matrix). lhs_revisits is how often a
    block's walk over k meets each lhs byte again (a convolution's taps). unit names the row of
    Device.tensor_flops_hz that multiplies, "fma" the float32 cores. result_bytes
    and partial_bytes: of one result, of one split-K partial; store_vector and partial_vector: how
    many neighbours one access writes. has_tma_operands:
    TMA can address both. taps: separate walks over k /
    taps terms (filter positions). atoms: 64-row patches that cover m in the "hopper" family, 0
    where rows are simply counted. is_warm: operands that fit L2
    are there already, as when one kernel is timed in a loop.
    """

    batch: int
    m: int
    n: int
    k: int
    operand_bytes: int
    lhs_bytes: int
    rhs_bytes: int
    write_bytes: int
    read_bytes: int
    epilogue_ops: int
    lhs_revisits: float
    lhs_k_contiguous: bool
    rhs_k_contiguous: bool
    lhs_align_bytes: int
    rhs_align_bytes: int
    unit: str
    result_bytes: int = 2
    partial_bytes: int = 4
    store_vector: int = 1
    partial_vector: int = 1
    has_tma_operands: bool = True
    taps: int = 1
    atoms: int = 0
    is_warm: bool = False

    @property
    def flops(self) -> float:
        """Multiplications and additions of the products."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def result_elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.m * self.n


def workload(problem: Problem, *, is_warm: bool = False) -> Workload:
    """The Workload of `problem`."""
    load = _matmul(problem) if isinstance(problem, Matmul) else _conv2d(problem)
    has_tma = all(operand_alignment(problem, role) == 16 for role in ROLES)
    result = DTYPES[problem.out_dtype].size_bytes
    partial = DTYPES[problem.accumulator].size_bytes
    return replace(
        load, is_warm=is_warm, has_tma_operands=has_tma,
        result_bytes=result, partial_bytes=partial,
        store_vector=row_vector(problem.n, result),
        partial_vector=row_vector(problem.n, partial),
    )  # fmt: skip


def _matmul(p: Matmul) -> Workload:
    size = DTYPES[p.dtype].size_bytes
    lhs_entries = _entries(p.batch, p.lhs_batch_strides)
    rhs_entries = _entries(p.batch, p.rhs_batch_strides)
    return Workload(
        batch=p.batch_size, m=p.m, n=p.n, k=p.k, operand_bytes=size,
        lhs_bytes=lhs_entries * p.m * p.k * size,
        rhs_bytes=rhs_entries * p.k * p.n * size,
        lhs_revisits=1.0,
        lhs_k_contiguous=not p.lhs.transposed, rhs_k_contiguous=p.rhs.transposed,
        lhs_align_bytes=_alignment(p.lhs_ld * size), rhs_align_bytes=_alignment(p.rhs_ld * size),
        unit=_unit(p), write_bytes=write_bytes(p), read_bytes=read_bytes(p),
        epilogue_ops=epilogue_ops(p),
    )  # fmt: skip


def _conv2d(p: Conv2d) -> Workload:
    size = DTYPES[p.dtype].size_bytes
    image = p.batch * p.height * p.width * p.in_channels * size
    unrolled = max(1, p.m * p.k * size)
    return Workload(
        batch=1, m=p.m, n=p.n, k=p.k, operand_bytes=size,
        lhs_bytes=image, rhs_bytes=p.k * p.n * size,
        lhs_revisits=max(1.0, unrolled / max(1, image)),
        lhs_k_contiguous=True, rhs_k_contiguous=False,
        lhs_align_bytes=_alignment(p.in_channels * size),
        rhs_align_bytes=_alignment(p.out_channels * size),
        unit=_unit(p), write_bytes=write_bytes(p), read_bytes=read_bytes(p),
        epilogue_ops=epilogue_ops(p), taps=p.kernel[0] * p.kernel[1],
        atoms=math.prod(patch_of(p).counts(p)),
    )  # fmt: skip


def write_bytes(p: Problem) -> int:
    """Bytes written for each result element."""
    return DTYPES[p.out_dtype].size_bytes * (1 + p.epilogue.save_preactivation)


def read_bytes(p: Problem) -> int:
    """Bytes that the epilogue reads for each result element."""
    return DTYPES[p.out_dtype].size_bytes * p.epilogue.residual


def epilogue_ops(p: Problem) -> int:
    """Instructions of one lane for each result element."""
    e = p.epilogue
    functions = _ACTIVATION_OPS[e.activation] + _ACTIVATION_OPS[e.derivative]
    return 2 + (e.bias != "none") + e.residual + functions


def _entries(batch: tuple[int, ...], strides: tuple[int, ...]) -> int:
    count = 1
    for size, stride in zip(batch, strides, strict=True):
        count *= size if stride else 1
    return count


def _alignment(stride_bytes: int) -> int:
    """Largest of 32, 16, 8, 4, 2 bytes at multiples of which every row starts."""
    return next((width for width in (32, 16, 8, 4, 2) if stride_bytes % width == 0), 1)


def _unit(p: Problem) -> str:
    """The row of Device.tensor_flops_hz that does the products; "fma" is the float32 cores."""
    if p.dtype == "float32" and p.precision == "float32":
        return "fma"
    return p.dtype
