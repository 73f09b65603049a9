"""NVRTC and nvcc: what comes back, and what is said when something is missing or refused."""

import pathlib

import pytest

from jaxpipe import compiler
from jaxpipe.errors import CompileError, TargetError, ToolchainError
from jaxpipe.problem import Matmul
from jaxpipe.schedule import GpuSchedule
from jaxpipe.toolchain import nvcc, nvrtc
from jaxpipe.toolchain.binaries import parse_log

SOURCE = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }'
SMALL = GpuSchedule(block_m=16, block_n=16, block_k=16, warps_m=1, warps_n=1, smem_stages=2)


def test_nvrtc_gives_ptx_cubin_and_resources_without_a_driver() -> None:
    found = nvrtc.compile(SOURCE, "sm_80")
    assert ".target sm_80" in found.ptx
    assert found.cubin[:4] == b"\x7fELF"
    assert [(r.entry, r.spill_store_bytes) for r in found.resources] == [("k", 0)]
    assert found.resources[0].registers > 0


def test_a_refused_source_carries_the_compilers_log() -> None:
    with pytest.raises(CompileError, match=r"(?s)refused a kernel .*identifier .x. is undefined"):
        nvrtc.compile('extern "C" __global__ void k() { x = 1; }', "sm_80")


def test_an_architecture_that_the_library_does_not_know_is_named() -> None:
    with pytest.raises(TargetError, match=r"cannot compile for sm_50: it knows sm_75"):
        nvrtc.compile(SOURCE, "sm_50")


def test_a_missing_library_lists_what_was_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPIPE_NVRTC", "/nowhere/libnvrtc.so")
    with pytest.raises(ToolchainError, match=r"searched /nowhere/libnvrtc.so .* nvidia-cuda-nvrtc"):
        nvrtc.load()


def test_a_missing_nvcc_lists_what_was_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPIPE_NVCC", "/nowhere/nvcc")
    with pytest.raises(ToolchainError, match="searched /nowhere/nvcc"):
        nvcc.find()


def test_nvcc_is_run_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "nvcc"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "release 13.0, V13.0.88" && exit\n'
        "echo \"ptxas info : Compiling entry function 'k' for 'sm_80'\"\n"
        'echo "ptxas info : Used 9 registers"\n'
        'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo built > "$2"; shift; done\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("JAXPIPE_NVCC", str(script))
    monkeypatch.setenv("JAXPIPE_COMPILER", "nvcc")
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path / "cache"))
    kernel = compiler.compile_kernel(Matmul(17, 16, 16), SMALL, "a100")
    assert (kernel.compiler, kernel.ptx, kernel.resources[0].registers) == (
        "nvcc 13.0.88", "built\n", 9,
    )  # fmt: skip


def test_the_log_gives_registers_spills_and_diagnostics_of_every_entry() -> None:
    log = """\
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async are serialized
ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 512 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Used 20 registers, 380 bytes cmem[0]
"""
    a, b = parse_log(log)
    assert (a.entry, a.registers, a.spill_store_bytes) == ("a", 20, 0)
    assert (b.registers, b.spill_store_bytes, b.spill_load_bytes, b.shared_bytes) == (
        255, 4, 8, 512,
    )  # fmt: skip
    assert "C7510" in a.diagnostics[0]


def test_the_second_process_reads_what_the_first_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path))
    first = compiler.compile_kernel(Matmul(18, 16, 16), SMALL, "a100")
    compiler._compiled.cache_clear()
    monkeypatch.setattr(nvrtc, "compile", lambda *_: pytest.fail("compiled again"))
    again = compiler.compile_kernel(Matmul(18, 16, 16), SMALL, "a100")
    assert (again.cubin, again.ptx, again.resources) == (first.cubin, first.ptx, first.resources)
    assert first.compile_s > 0.0 == again.compile_s


@pytest.mark.parametrize("other", ["sm_86", "sm_89"])
def test_keys_differ_by_the_exact_architecture(other: str) -> None:
    keys = {
        compiler.emit_kernel(Matmul(19, 16, 16), SMALL, compiler.target_arch(name)).key("c", (), "")
        for name in ("sm_80", other)
    }
    assert len(keys) == 2


def test_line_information_does_not_depend_on_the_working_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (*nvrtc.FLAGS, nvrtc.LINE_INFO)
    here = nvrtc.compile(SOURCE, "sm_80", flags).ptx
    monkeypatch.chdir(tmp_path)
    assert nvrtc.compile(SOURCE, "sm_80", flags).ptx == here
    assert '"kernel.cu"' in here
