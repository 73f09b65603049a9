"""`jaxpipe check`: silence and 0 for right kernels, a reason and 1 for everything else."""

import dataclasses

import pytest

from jaxpipe import compiler
from jaxpipe.cli import main
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Matmul
from jaxpipe.ptx.run import Mode
from jaxpipe.runtime.interpreted import check
from jaxpipe.schedule import GpuSchedule

SMALL = "block_m=64,block_n=64,block_k=32,warps_m=2,warps_n=2,smem_stages=3"
HOPPER = "family=hopper,block_m=64,block_n=64,block_k=64,consumers=1,smem_stages=3"
CONV = "1 6 7 16 24 3 3 --padding 1"
RIGHT = {
    "a product": f"matmul 96 64 64 --target a100 --schedule {SMALL}",
    "a product by wgmma": f"matmul 96 64 200 --target h200 --schedule {HOPPER}",
    "a convolution": f"conv {CONV} --target a100 --bias column --activation relu",
    "a convolution by wgmma": f"conv2d {CONV} --target sm_90a --schedule {HOPPER}",
    "a product without k": "matmul 40 24 0 --bias row",
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_check_of_a_right_kernel_prints_its_figures_and_exits_with_0(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code = main(["check", *RIGHT[name].split()])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert printed.count("0 hazards: ok") == 3
    for part in ("tensor-core instructions", "bank conflicts on operand paths", "registers"):
        assert part in printed
    assert "sectors a request" in printed


@pytest.mark.parametrize("name", ["a product", "a convolution"])
def test_check_of_a_broken_kernel_names_the_hazard_and_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    compile_kernel = compiler.compile_kernel

    def broken(*args: object, **options: object) -> CompiledKernel:
        compiled = compile_kernel(*args, **options)  # type: ignore[arg-type]
        ptx = compiled.ptx.replace("cp.async.wait_group", "cp.async.commit_group; //")
        return dataclasses.replace(compiled, ptx=ptx)

    monkeypatch.setattr(compiler, "compile_kernel", broken)
    assert main(["check", *RIGHT[name].split()]) == 1
    printed = capsys.readouterr().out
    assert "FAULT" in printed
    assert "read-pending" in printed


def test_check_of_wrong_numbers_exits_with_1_without_a_hazard(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_kernel = compiler.compile_kernel

    def broken(*args: object, **options: object) -> CompiledKernel:
        compiled = compile_kernel(*args, **options)  # type: ignore[arg-type]
        ptx = compiled.ptx.replace("setp.lt.f32", "setp.gt.f32")  # of the activation
        return dataclasses.replace(compiled, ptx=ptx)

    monkeypatch.setattr(compiler, "compile_kernel", broken)
    assert main(["check", *RIGHT["a convolution"].split()]) == 1
    assert capsys.readouterr().out.count("0 hazards: FAULT") == 3


def test_check_finds_a_wait_that_is_taken_away() -> None:
    schedule = GpuSchedule.parse(SMALL)
    compiled = compiler.compile_kernel(Matmul(64, 64, 128), schedule, "sm_80")
    ptx = compiled.ptx.replace("cp.async.wait_group", "cp.async.commit_group; //")
    assert ptx != compiled.ptx
    found = check(dataclasses.replace(compiled, ptx=ptx), Mode())
    assert {hazard.kind for hazard in found.report.hazards} & {"read-pending", "read-race"}
