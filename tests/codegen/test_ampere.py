"""Emitted kernels of the mma.sync family: what NVRTC makes of them computes the right results."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from jaxpipe import compiler
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import ScheduleError
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Buffer, Mode, run_launches
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch, arch
from jaxpipe.transform.build import build
from tests.drawn import assert_equal, draw, draw_residual_first, expected, inputs

SM_80 = arch("sm_80")
NUMPY = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int8": np.int8,
    "int32": np.int32,
}
SMALL = GpuSchedule(block_m=32, block_n=32, block_k=32, smem_stages=3)


@functools.cache
def compiled(problem: Problem, schedule: GpuSchedule, target: Arch) -> CompiledKernel:
    return compiler.compile_kernel(problem, schedule, target)


def execute(
    kernel: CompiledKernel, arrays: dict[str, NDArray[np.float64]], mode: Mode
) -> tuple[dict[str, NDArray[np.float64]], Report]:
    """Run every launch on the CPU: outputs by role, and the report."""
    buffers: dict[str, Buffer] = {}
    outputs = {}
    for p in build(kernel.kernel.problem).params:
        if p.name in arrays:
            data = np.ascontiguousarray(arrays[p.name].astype(NUMPY[p.dtype]))
            raw = data.reshape(-1).view(np.uint8)
            padded = np.concatenate([raw, np.zeros(max(-raw.size % 16, 16), np.uint8)])
            buffers[p.name] = Buffer(padded, writable=False)
        else:
            outputs[p.name] = np.zeros(p.shape, NUMPY[p.dtype])
            raw = outputs[p.name].reshape(-1).view(np.uint8)
            raw[:] = 0xFF
            buffers[p.name] = Buffer(raw, written=False)
    if size := kernel.kernel.workspace_bytes:
        buffers["workspace"] = Buffer(np.full(size, 0xFF, np.uint8), written=False)
    report = run_launches(kernel.ptx, kernel.kernel.launches, buffers, mode=mode, threads=1)
    return {name: out.astype(np.float64) for name, out in outputs.items()}, report


def check(problem: Problem, schedule: GpuSchedule, target: Arch, seed: int, mode: Mode) -> None:
    arrays = inputs(problem, seed)
    got, report = execute(compiled(problem, schedule, target), arrays, mode)
    assert not report.hazards, report.hazards[0].text
    assert_equal(problem, got, expected(problem, arrays))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_kernels_are_exact_and_free_of_hazards(seed: int) -> None:
    problem, schedule, target = draw(seed)
    check(problem, schedule, target, seed, ADVERSARIAL_MODES[seed % len(ADVERSARIAL_MODES)])


@pytest.mark.parametrize("seed", range(8))
def test_a_residual_before_the_activation_is_exact(seed: int) -> None:
    mode = ADVERSARIAL_MODES[seed % len(ADVERSARIAL_MODES)]
    check(*draw_residual_first(seed), seed, mode)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2000, 2100, 10))
def test_many_drawn_kernels_are_exact_and_free_of_hazards(first: int) -> None:
    for seed in range(first, first + 10):
        problem, schedule, target = draw(seed)
        check(problem, schedule, target, seed, ADVERSARIAL_MODES[seed % len(ADVERSARIAL_MODES)])


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
def test_every_layout_is_read_as_it_lies(layout: str, dtype: str) -> None:
    lhs, rhs = (Layout(letter == "t") for letter in layout)
    problem = Matmul(48, 64, 96, dtype=dtype, lhs=lhs, rhs=rhs, precision="tf32")
    schedule = replace(SMALL, block_k={"bfloat16": 32, "float32": 16, "int8": 64}[dtype])
    check(problem, schedule, SM_80, 0, Mode())


@pytest.mark.parametrize("stages", range(1, 9))
@pytest.mark.parametrize("k", [16, 32, 96, 200])
def test_every_depth_fits_every_trip_count(stages: int, k: int) -> None:
    problem = Matmul(32, 32, k)
    schedule = replace(SMALL, block_k=16, smem_stages=stages, reg_stages=1)
    check(problem, schedule, SM_80, 1, Mode("early", "descending"))


@pytest.mark.parametrize("size", [64, 66, 68, 65])  # rows aligned to 16, 4, 8 and 2 bytes
def test_every_alignment_class_has_a_copy_path(size: int) -> None:
    problem = Matmul(size, size, size)
    check(problem, SMALL, SM_80, 2, Mode())
    source = compiler.emit_kernel(problem, SMALL, SM_80).source
    wanted = {64: "copy_async<16>", 66: "copy_async<4>", 68: "copy_async<8>", 65: "load_unaligned"}
    assert f"{wanted[size]}" in source


@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
def test_rows_of_six_chunks_stay_apart(mode: Mode) -> None:
    """96 bytes a row: a swizzle made for 8 chunks sends chunks 4 and 5 into the next row, where
    another lane's cp.async writes. 64 threads copy 8 rows at once, 48 of them at work."""
    problem = Matmul(33, 64, 99, batch=(2, 3), dtype="int8")
    schedule = GpuSchedule(
        block_m=32, block_n=96, block_k=128, warps_m=1, smem_stages=1, reg_stages=2
    )
    check(problem, schedule, SM_80, 0, mode)


def test_attention_reads_heads_in_place() -> None:
    """[batch, sequence, head, depth]: batch strides and leading dimensions as they are."""
    layout = Layout(ld=4 * 16, batch_strides=(20 * 64, 16))
    problem = Matmul(20, 20, 16, batch=(2, 4), lhs=layout, rhs=Layout(True, 4 * 16, (20 * 64, 16)))
    rng = np.random.default_rng(3)
    query, key = rng.integers(-3, 4, (2, 2, 20, 4, 16)).astype(np.float64)
    got, report = execute(compiled(problem, SMALL, SM_80), {"lhs": query, "rhs": key}, Mode())
    assert not report.hazards
    np.testing.assert_array_equal(got["out"], np.einsum("bqhd,bkhd->bhqk", query, key))


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu_erf", "silu", "tanh"])
def test_activations_are_as_accurate_as_the_result(activation: str) -> None:
    problem = Matmul(32, 32, 32, epilogue=Epilogue(activation=activation))  # type: ignore[arg-type]
    arrays = {name: value / 4 for name, value in inputs(problem, 5).items()}
    got, _ = execute(compiled(problem, SMALL, SM_80), arrays, Mode())
    np.testing.assert_allclose(got["out"], expected(problem, arrays)["out"], rtol=2**-7, atol=1e-6)


def test_relu_keeps_nan_and_tails_do_not_spread_it() -> None:
    problem = Matmul(20, 20, 20, epilogue=Epilogue(activation="relu"))
    arrays = inputs(problem, 6)
    arrays["lhs"][3, 7] = np.nan
    got, _ = execute(compiled(problem, SMALL, SM_80), arrays, Mode())
    assert np.isnan(got["out"][3]).all()
    assert np.isfinite(np.delete(got["out"], 3, axis=0)).all()


def test_without_k_the_result_is_the_epilogue_of_zeros() -> None:
    problem = Matmul(20, 24, 0, epilogue=Epilogue(bias="column", activation="relu"))
    check(problem, SMALL, SM_80, 7, Mode())


@pytest.mark.parametrize("shape", [(0, 8, 8), (8, 0, 8)])
def test_an_empty_result_launches_nothing(shape: tuple[int, int, int]) -> None:
    assert compiler.emit_kernel(Matmul(*shape), GpuSchedule(), SM_80).launches == ()


def test_split_k_sums_partials_in_a_fixed_order() -> None:
    problem = Matmul(32, 32, 500, epilogue=Epilogue(bias="row"))
    schedule = replace(SMALL, split_k=4)
    kernel = compiler.emit_kernel(problem, schedule, SM_80)
    assert [launch.entry for launch in kernel.launches] == ["jaxpipe_ampere", "jaxpipe_reduce"]
    assert kernel.workspace_bytes == 4 * 32 * 32 * 4
    assert "atom" not in kernel.source
    check(problem, schedule, SM_80, 8, Mode("random", "random", 3))


@pytest.mark.parametrize("channels", [3, 24, 64])
def test_convolutions_pad_by_copies_that_fill_zeros(channels: int) -> None:
    problem = Conv2d(2, 9, 7, channels, 20, (3, 3), (2, 1), ((1, 1), (1, 1)))
    check(problem, SMALL, SM_80, 9, Mode())


def test_bank_conflicts_are_gone_with_the_swizzle_and_there_without() -> None:
    problem = Matmul(64, 64, 64)
    schedule = GpuSchedule(block_m=64, block_n=64, block_k=64, smem_stages=2)
    counts = []
    for swizzled in (True, False):
        kernel = compiled(problem, replace(schedule, swizzle=swizzled), SM_80)
        _, report = execute(kernel, inputs(problem, 10), Mode())
        sites = [s for s in report.shared if s.text.startswith(("ldmatrix", "cp.async"))]
        assert sites
        counts.append(sum(site.bank_conflicts for site in sites))
    assert counts[0] == 0
    assert counts[1] > 0


def test_offsets_beyond_32_bits_are_computed_in_64() -> None:
    problem = Matmul(65537, 65536, 16, batch=(4,))
    source = compiler.emit_kernel(problem, GpuSchedule(block_k=16), SM_80).source
    assert "row * 65536ll" in source
    assert f"b * {65537 * 65536}ll" in source
    launch = compiler.emit_kernel(Matmul(65537, 65536, 16), GpuSchedule(), SM_80).launches[0]
    assert launch.grid == (513 * 512, 1, 1)


def test_an_illegal_schedule_is_refused_before_compiling_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler, "toolchain", lambda **_: pytest.fail("compiled"))
    schedule = GpuSchedule(block_m=128, block_n=128, block_k=128, smem_stages=5)
    with pytest.raises(
        ScheduleError, match=r"5 stages need 327680 .* sm_80 allows 166912: use at most 2"
    ):
        compiler.compile_kernel(Matmul(512, 3072, 768), schedule, "a100")


def test_every_reason_is_listed() -> None:
    schedule = GpuSchedule(block_m=40, block_k=48, smem_stages=9, reg_stages=3)
    with pytest.raises(ScheduleError) as error:
        compiler.emit_kernel(Matmul(64, 64, 64), schedule, SM_80)
    for part in ("block_m=40", "block_k=48", "smem_stages=9", "reg_stages=3"):
        assert part in str(error.value)


@pytest.mark.parametrize("seed", [0, 1])
def test_shared_memory_is_what_the_schedule_predicts(seed: int) -> None:
    rng = random.Random(seed)
    problem = Matmul(rng.randint(1, 300), 128, rng.randint(1, 300))
    launch = compiler.emit_kernel(problem, SMALL, SM_80).launches[0]
    assert launch.shared_bytes == SMALL.shared_bytes(problem)
