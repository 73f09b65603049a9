"""Accesses to shared memory are told apart: those that serve operands, those that stage results."""

import pytest

from jaxpipe.compiler import compile_kernel
from jaxpipe.problem import Layout, Matmul, Problem
from jaxpipe.ptx.report import AccessSite
from jaxpipe.ptx.run import Mode
from jaxpipe.runtime.interpreted import check
from jaxpipe.schedule import GpuSchedule

SMALL = GpuSchedule(block_m=32, block_n=32, block_k=32, smem_stages=3)
HOPPER = "family=hopper,block_m=64,block_n=64,block_k=64,consumers=1,persistent_blocks=1"
TT = Layout(True)
CASES: dict[str, tuple[Problem, GpuSchedule, str, set[str], set[str]]] = {
    "copies and ldmatrix": (
        Matmul(70, 72, 200), SMALL, "sm_80", {"cp", "ldmatrix"}, {"ld", "st"}
    ),
    "rows of odd length": (
        Matmul(33, 35, 67), SMALL, "sm_80", {"st", "ldmatrix"}, {"ld", "st"}
    ),
    "words stored along m": (
        Matmul(64, 64, 96, dtype="float32", lhs=TT, precision="tf32"),
        GpuSchedule.parse("block_k=16", SMALL), "sm_80", {"cp", "ld"}, {"ld", "st"},
    ),
    "no k": (Matmul(40, 40, 0), SMALL, "sm_80", set(), {"ld", "st"}),
    "wgmma, several tiles a block": (
        Matmul(130, 72, 200), GpuSchedule.parse(HOPPER), "sm_90a", set(), {"stmatrix"},
    ),
    "wgmma, rows of odd length": (
        Matmul(130, 71, 201), GpuSchedule.parse(f"{HOPPER},tma=0"), "sm_90a", {"st"},
        {"stmatrix", "ld"},
    ),
}  # fmt: skip


def opcodes(sites: tuple[AccessSite, ...], phase: str) -> set[str]:
    return {s.text.split(".")[0].split()[-1] for s in sites if s.phase == phase and s.wavefronts}


@pytest.mark.parametrize("name", CASES)
def test_operands_and_staging_are_told_apart(name: str) -> None:
    problem, schedule, target, operand, staging = CASES[name]
    report = check(compile_kernel(problem, schedule, target), Mode()).report
    assert opcodes(report.shared, "operand") == operand
    assert opcodes(report.shared, "staging") == staging


def test_the_conflicts_of_both_phases_add_up() -> None:
    schedule = GpuSchedule.parse("swizzle=0,block_n=96,block_k=64", SMALL)
    report = check(compile_kernel(Matmul(64, 96, 96), schedule, "sm_80"), Mode()).report
    assert report.conflicts_of("operand") > 0
    assert report.bank_conflicts == report.conflicts_of("operand") + report.conflicts_of("staging")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("warp_n", [16, 32, 64])
@pytest.mark.parametrize("split_k", [1, 2])
def test_results_are_staged_without_conflicts(dtype: str, warp_n: int, split_k: int) -> None:
    problem = Matmul(32, 2 * warp_n, 64, out_dtype=dtype)
    schedule = GpuSchedule.parse(
        f"block_n={warp_n},warps_n=1,split_k={split_k},smem_stages=2", SMALL
    )
    checked = check(compile_kernel(problem, schedule, "sm_80"), Mode())
    assert (checked.report.conflicts_of("staging"), checked.report.hazards) == (0, ())
