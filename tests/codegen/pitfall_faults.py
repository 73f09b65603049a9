"""Kernels of the mma.sync family broken by one fault of research/cuda.md section 11 each."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from jaxpipe.compiler import emit_kernel
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import CompileError
from jaxpipe.kernel import Kernel
from jaxpipe.problem import Layout, Matmul
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Buffer, Mode, run_launches
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch
from jaxpipe.toolchain import nvrtc

SM_80 = arch("sm_80")
SCHEDULE = GpuSchedule(
    block_m=32, block_n=32, block_k=32, warps_m=2, warps_n=1, smem_stages=3, reg_stages=2
)
# Tails of m, n and k; between the rows of lhs lie 24 elements that belong to nobody.
TAILS = Matmul(40, 48, 7 * 32 - 24, lhs=Layout(ld=7 * 32), epilogue=Epilogue(bias="column"))
NO_K = Matmul(40, 48, 0, epilogue=Epilogue(bias="column", activation="relu"))
SPLIT = replace(SCHEDULE, split_k=2)
LHS_K = "min(max((lhs_columns - (192)) * 2, 0), 16)"
RHS_N = "min(max((rhs_columns) * 2, 0), 16)"
RHS_K = "copy_async<16>(rhs_to + i * 1024, from + i * 1536, i * 16 < rows ? bytes : 0)"
LHS_M = "i * 16 < rows ? 16 : 0"
XOR = "((lhs_fragment + ko_0_3 * 2048) ^ (32))"


@dataclass(frozen=True)
class Fault:
    """One change of a right kernel: `right` becomes `wrong`, everywhere or at one occurrence."""

    item: int
    right: str
    wrong: str
    occurrence: int | None = None
    schedule: GpuSchedule = SCHEDULE
    problem: Matmul = TAILS


FAULTS: dict[str, Fault] = {
    "no commit where nothing was loaded": Fault(1, "commit_group();", "", -2),
    "wait one group too few": Fault(2, "wait_group<1>();", "wait_group<2>();"),
    "no barrier after the wait": Fault(3, "  __syncthreads();", "", 0),
    "no barrier before the epilogue": Fault(4, "  __syncthreads();\n\n  // Epilogue", ""),
    "a partial sum too many": Fault(16, "split < 2; ++split", "split < 3; ++split", None, SPLIT),
    "the tail of k not filled in lhs": Fault(25, LHS_K, "16"),
    "the tail of k not filled in rhs": Fault(25, RHS_K, RHS_K.replace("i * 16 < rows ?", "true ?")),
    "the tail of m not filled": Fault(25, LHS_M, "16"),
    "the tail of n not filled": Fault(25, RHS_N, "16"),
    "accumulators not cleared": Fault(
        26, "acc[i][j][e] = 0;", "acc[i][j][e] = 1;", None, SCHEDULE, NO_K
    ),
    "ldmatrix past the tile": Fault(
        28, "ldmatrix(lhs_reg[0][i], lhs_fragment)", "ldmatrix(lhs_reg[0][i], lhs_fragment + 12288)"
    ),
    "chunks added instead of exclusive-ored": Fault(29, XOR, "lhs_fragment + ko_0_3 * 2048 + 32"),
    "a ring off the swizzle's period": Fault(
        29, "dynamic_shared);", "dynamic_shared) + 64;"
    ),
}  # fmt: skip


def broken(fault: Fault) -> tuple[Kernel, str]:
    """The right kernel, and the source with the fault in it."""
    kernel = emit_kernel(fault.problem, fault.schedule, SM_80)
    body = kernel.source.index('extern "C"')
    head, parts = kernel.source[:body], kernel.source[body:].split(fault.right)
    assert len(parts) > 1, f"the kernel has no {fault.right!r}"
    if fault.occurrence is None:
        return kernel, head + fault.wrong.join(parts)
    at = range(1, len(parts))[fault.occurrence]
    return kernel, head + fault.wrong.join(
        (fault.right.join(parts[:at]), fault.right.join(parts[at:]))
    )


@functools.cache
def ptx_of(source: str) -> str:
    return nvrtc.compile(source, "sm_80").ptx


def operands(problem: Matmul) -> dict[str, np.ndarray]:
    """Small whole numbers by role; NaN wherever no element lies."""
    rng = np.random.default_rng(0)
    lhs = np.full((problem.m, problem.lhs_ld), np.nan)
    lhs[:, : problem.k] = rng.integers(-3, 4, (problem.m, problem.k))
    rhs = rng.integers(-3, 4, (problem.k, problem.n))
    values = {"lhs": lhs, "rhs": rhs, "bias": rng.integers(-3, 4, problem.n)}
    return {role: value.astype(ml_dtypes.bfloat16) for role, value in values.items()}


def expected(problem: Matmul, values: dict[str, np.ndarray]) -> np.ndarray:
    wide = {role: value.astype(np.float64) for role, value in values.items()}
    result = wide["lhs"][:, : problem.k] @ wide["rhs"] + wide["bias"]
    result = np.maximum(result, 0) if problem.epilogue.activation == "relu" else result
    return result.astype(ml_dtypes.bfloat16).astype(np.float64)


def run(
    kernel: Kernel, ptx: str, mode: Mode, workspace: np.ndarray | None = None
) -> tuple[np.ndarray, Report]:
    """Results and report of one run; workspace: poison when not given."""
    assert isinstance(kernel.problem, Matmul)
    values = operands(kernel.problem)
    out = np.full((kernel.problem.m, kernel.problem.n), np.nan, ml_dtypes.bfloat16)
    if workspace is None:
        workspace = np.full(max(kernel.workspace_bytes, 1), 0xFF, np.uint8)
    held = {role: Buffer(value, writable=False) for role, value in values.items() if value.size}
    held |= {role: Buffer(np.zeros(8, np.uint16)) for role in values if role not in held}
    held |= {"out": Buffer(out, written=False), "workspace": Buffer(workspace, written=False)}
    report = run_launches(ptx, kernel.launches, held, mode)
    return out.astype(np.float64), report


def is_right(kernel: Kernel, ptx: str, mode: Mode) -> bool:
    """True when the results are exact and nothing hazardous happened."""
    assert isinstance(kernel.problem, Matmul)
    got, report = run(kernel, ptx, mode)
    want = expected(kernel.problem, operands(kernel.problem))
    return not report.hazards and np.array_equal(got, want)


def is_seen(kernel: Kernel, source: str) -> bool:
    """True when some mode finds the fault, or the compiler refuses it."""
    try:
        ptx = ptx_of(source)
    except CompileError:
        return True
    return not all(is_right(kernel, ptx, mode) for mode in ADVERSARIAL_MODES)
