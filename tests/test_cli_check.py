"""`jaxpipe check`: silence and 0 for right kernels, a reason and 1 for everything else."""

import dataclasses

import pytest

from jaxpipe import compiler
from jaxpipe.cli import main
from jaxpipe.cli_check import check
from jaxpipe.problem import Matmul
from jaxpipe.ptx.run import Mode
from jaxpipe.schedule import GpuSchedule

SMALL = "block_m=64,block_n=64,block_k=32,warps_m=2,warps_n=2,smem_stages=3"


def test_check_of_a_right_kernel_prints_its_figures_and_exits_with_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["check", "matmul", "96", "64", "64", "--target", "a100", "--schedule", SMALL])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "0 hazards: ok" in printed
    assert "tensor-core instructions" in printed


def test_check_finds_a_wait_that_is_taken_away() -> None:
    schedule = GpuSchedule.parse(SMALL)
    compiled = compiler.compile_kernel(Matmul(64, 64, 128), schedule, "sm_80")
    ptx = compiled.ptx.replace("cp.async.wait_group", "cp.async.commit_group; //")
    assert ptx != compiled.ptx
    found = check(dataclasses.replace(compiled, ptx=ptx), Mode())
    assert {hazard.kind for hazard in found.report.hazards} & {"read-pending", "read-race"}
