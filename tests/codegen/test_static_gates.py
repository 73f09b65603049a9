"""What can be held of a kernel without running it: bytes, resources, machine code, time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import pytest

from jaxpipe import compiler
from jaxpipe.dtypes import DTYPES
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import ToolchainError
from jaxpipe.legality import check, warnings
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import ARCHES, Arch, arch
from jaxpipe.toolchain import sass

SM_80 = arch("sm_80")
MAINS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FIGURES = GpuSchedule(block_m=128, block_n=128, block_k=64, smem_stages=3)

# block_m, block_n, block_k, warps_m, warps_n, stages -> instructions a trip that Triton 3.9 emits
PEER = {
    (128, 128, 64, 2, 2, 3): 336,
    (128, 128, 64, 2, 4, 3): 208,
    (128, 256, 64, 2, 4, 3): 313,
    (128, 128, 32, 2, 2, 4): 202,
}


def draw_large(seed: int) -> tuple[Problem, GpuSchedule, Arch]:
    """A problem of model size, a schedule that is legal without a warning, a target."""
    rng = random.Random(seed)
    dtype = rng.choice(["bfloat16", "bfloat16", "float16", "float32", "int8", "float8_e4m3fn"])
    targets = MAINS[2:] if dtype.startswith("float8") else MAINS
    while True:
        problem = _conv(rng, dtype) if rng.random() < 0.25 else _product(rng, dtype)
        schedule = _schedule(rng, DTYPES[dtype].size_bytes)
        target = arch(rng.choice(targets))
        if not check(schedule, problem, target) and not warnings(schedule, problem, target):
            return problem, schedule, target


def _epilogue(rng: random.Random, dtype: str) -> Epilogue:
    bias = rng.choice(["none", "column", "row"])
    if dtype == "int8":
        return Epilogue(bias=bias)
    activation = rng.choice(["none", "relu", "gelu_erf", "gelu_tanh", "silu", "tanh"])
    return Epilogue(bias=bias, activation=activation, residual=rng.random() < 0.3)


def _product(rng: random.Random, dtype: str) -> Matmul:
    extra = rng.choice([0, 0, 0, 8, 24, 2, 1])
    m, n, k = (rng.choice([512, 768, 1024, 3072, 4096]) + extra for _ in range(3))
    return Matmul(
        m, n, k, batch=rng.choice([(), (), (12,), (2, 3)]), dtype=dtype, precision="tf32",
        lhs=Layout(rng.random() < 0.4), rhs=Layout(rng.random() < 0.4),
        epilogue=_epilogue(rng, dtype),
    )  # fmt: skip


def _conv(rng: random.Random, dtype: str) -> Conv2d:
    kernel = rng.choice([(3, 3), (1, 1), (7, 7)])
    pad = (kernel[0] // 2, kernel[0] // 2)
    return Conv2d(
        rng.choice([1, 8, 64]), rng.choice([14, 28, 56]), rng.choice([14, 28, 56]),
        rng.choice([64, 128, 256, 24, 3]), rng.choice([64, 128, 256, 100]), kernel,
        rng.choice([(1, 1), (2, 2)]), (pad, pad), dtype=dtype, precision="tf32",
        epilogue=_epilogue(rng, dtype),
    )  # fmt: skip


def _schedule(rng: random.Random, size: int) -> GpuSchedule:
    warps_m, warps_n = rng.choice([(1, 2), (2, 1), (2, 2), (2, 4), (4, 2), (1, 4), (4, 1)])
    return GpuSchedule(
        block_m=16 * warps_m * rng.choice([1, 2, 3, 4]),
        block_n=16 * warps_n * rng.choice([1, 2, 3, 4]),
        block_k=rng.choice([64, 128, 128]) // size,
        warps_m=warps_m, warps_n=warps_n, smem_stages=rng.randint(1, 6),
        reg_stages=rng.choice([1, 2, 2, 2, 4]), split_k=rng.choice([1, 1, 1, 2]),
    )  # fmt: skip


def hold(seed: int) -> None:
    """Compiles; no spill, no diagnostic; shared bytes as predicted; the instructions are there."""
    problem, schedule, target = draw_large(seed)
    kernel = compiler.compile_kernel(problem, schedule, target)
    label = f"seed {seed}: {problem} under {schedule} for {target.name}"
    for r in kernel.resources:
        assert r.spill_store_bytes == r.spill_load_bytes == 0, f"{label}: {r}"
        assert not r.diagnostics, f"{label}: {r.diagnostics}"
        assert r.shared_bytes == 0, label
    shared = kernel.kernel.launches[0].shared_bytes
    assert shared == schedule.shared_bytes(problem) <= target.shared_per_block_bytes, label
    main = sass.disassemble(kernel.cubin)["jaxpipe_ampere"]
    assert main.count("[HIQ]MMA"), label
    assert main.count("LDSM") or problem.dtype == "float32", label
    assert not any(word in text for text in main.main_loop() for word in ("LDL", "STL")), label


@pytest.mark.parametrize("seed", range(8))
def test_drawn_kernels_pass_the_static_gates(seed: int) -> None:
    hold(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 400, 25))
def test_three_hundred_drawn_kernels_pass_the_static_gates(first: int) -> None:
    for seed in range(first, first + 25):
        hold(seed)


@pytest.mark.parametrize("target", MAINS[2:])
def test_products_of_8_bit_floats_are_native_where_the_table_says(target: str) -> None:
    schedule = GpuSchedule(block_m=32, block_n=32, block_k=64, smem_stages=2)
    kernel = compiler.compile_kernel(Matmul(64, 64, 128, dtype="float8_e4m3fn"), schedule, target)
    main = sass.disassemble(kernel.cubin)["jaxpipe_ampere"]
    native = main.count("QMMA") > 0
    assert native == ARCHES[target].has_native_mma_fp8
    assert native != (main.count("HMMA") > 0)


@pytest.mark.slow
def test_warnings_of_8_bit_floats_are_specific() -> None:
    """Where mma.sync unpacks them: who is not warned does not spill, and many are not warned."""
    unwarned, clean = 0, 0
    for seed in range(5000, 5060):  # about a minute
        problem, schedule, target = draw_unpacked(seed)
        kernel = compiler.compile_kernel(problem, schedule, target)
        spilled = kernel.resources[0].spill_store_bytes > 0
        warned = bool(warnings(schedule, problem, target))
        assert warned or not spilled, f"seed {seed}: {problem} under {schedule} for {target.name}"
        clean += not spilled
        unwarned += not warned
    assert unwarned > 0.3 * clean > 5


def draw_unpacked(seed: int) -> tuple[Problem, GpuSchedule, Arch]:
    """8-bit floats on a target without an instruction for them, with any legal schedule."""
    rng = random.Random(seed)
    dtype = rng.choice(["float8_e4m3fn", "float8_e5m2"])
    target = arch(rng.choice(["sm_90", "sm_100"]))
    while True:
        problem = _conv(rng, dtype) if rng.random() < 0.25 else _product(rng, dtype)
        schedule = _schedule(rng, 1)
        if not check(schedule, problem, target):
            return problem, schedule, target


@pytest.mark.parametrize("target", MAINS)
def test_one_source_assembles_for_every_generation(target: str) -> None:
    schedule = GpuSchedule(block_m=64, block_n=64, block_k=64, smem_stages=4)
    kernel = compiler.compile_kernel(Matmul(512, 512, 512), schedule, target)
    assert kernel.cubin[:4] == b"\x7fELF"
    assert ARCHES[target].shared_per_block_bytes >= kernel.kernel.launches[0].shared_bytes


def trip(problem: Matmul, key: tuple[int, int, int, int, int, int]) -> tuple[str, ...]:
    bm, bn, bk, wm, wn, stages = key
    schedule = GpuSchedule(
        block_m=bm, block_n=bn, block_k=bk, warps_m=wm, warps_n=wn, smem_stages=stages
    )
    kernel = compiler.compile_kernel(problem, schedule, SM_80)
    try:
        loop = sass.disassemble(kernel.cubin)["jaxpipe_ampere"].main_loop()
    except ToolchainError as error:
        pytest.skip(str(error))
    assert any("LDGSTS" in text for text in loop)
    return tuple(text for text in loop if text != "NOP")


@pytest.mark.parametrize("key", PEER)
def test_the_main_loop_is_no_longer_than_tritons(key: tuple[int, int, int, int, int, int]) -> None:
    assert len(trip(Matmul(4096, 4096, 4096), key)) <= PEER[key]


@pytest.mark.slow
@pytest.mark.parametrize("key", PEER)
def test_general_sizes_cost_at_most_a_quarter_more(
    key: tuple[int, int, int, int, int, int],
) -> None:
    assert len(trip(Matmul(4000, 4008, 4040), key)) <= 1.25 * PEER[key]


def test_the_main_loop_waits_with_loads_in_flight_and_one_barrier() -> None:
    loop = trip(Matmul(4096, 4096, 4096), (128, 128, 64, 2, 2, 3))
    assert sum("BAR.SYNC" in text for text in loop) == 1
    assert sum("DEPBAR.LE SB0, 0x1" in text for text in loop) == 1
    assert not any(text.split()[0] in ("LDL", "STL") for text in loop)


EMIT = """
import hashlib
from jaxpipe import compiler
from tests.drawn import draw
for seed in range(30):
    kernel = compiler.emit_kernel(*draw(seed))
    print(hashlib.sha256(repr(kernel).encode()).hexdigest())
"""


def test_two_processes_with_other_hash_seeds_emit_the_same_bytes() -> None:
    command = [sys.executable, "-c", EMIT]
    both = [
        subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": s}, stdout=subprocess.PIPE)
        for s in ("1", "2")
    ]
    outputs = [process.communicate()[0] for process in both]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].split()) == 30


def test_emitting_takes_under_50_ms() -> None:
    times = []
    for m in range(5):  # other sizes, so that no cache helps
        problem = Matmul(512 + m, 3072, 768)
        started = time.process_time()
        compiler.emit_kernel(problem, FIGURES, SM_80)
        times.append(time.process_time() - started)
    assert min(times) < 0.05


def test_sources_need_no_header() -> None:
    source = compiler.emit_kernel(Matmul(512, 3072, 768), FIGURES, SM_80).source
    assert "#include" not in source
    assert "/work" not in source
