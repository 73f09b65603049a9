"""Kernels whose rows and batch entries the call brings: one source, right for every size."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from jaxpipe import compiler, legality
from jaxpipe.choose import choose
from jaxpipe.epilogue import Epilogue
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Mode
from jaxpipe.runtime import interpreted
from jaxpipe.runtime.reference import tolerance
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch, device

SM_80, SM_90A = arch("sm_80"), arch("sm_90a")
ARCHES = {"ampere": SM_80, "hopper": SM_90A}
SCHEDULE = GpuSchedule(block_m=32, block_n=32, block_k=32, smem_stages=3)
GROUPED = replace(SCHEDULE, raster_group=2)
ALL = Epilogue(bias="column", activation="gelu_tanh", residual=True, save_preactivation=True)
ROWS, BATCH, BOTH, IMAGES = ("m",), ("batch0",), ("m", "batch0"), ("batch",)
SIZES = (1, 31, 32, 33, 64, 133)
WGMMA = GpuSchedule(
    family="hopper", block_m=64, block_n=64, block_k=64, consumers=1, smem_stages=3,
    persistent_blocks=2,
)  # fmt: skip


def wgmma(**words: object) -> GpuSchedule:
    return replace(WGMMA, **words)  # type: ignore[arg-type]


# name: problem, schedule, the sizes of several calls
CASES: dict[str, tuple[Problem, GpuSchedule, list[dict[str, int]]]] = {
    "rows": (Matmul(512, 40, 72, dynamic=ROWS), SCHEDULE, [{"m": m} for m in SIZES]),
    "rows of one column of tiles": (
        Matmul(512, 32, 64, dynamic=ROWS), SCHEDULE, [{"m": m} for m in SIZES],
    ),
    "rows, grouped tiles": (
        Matmul(512, 72, 64, dynamic=ROWS), GROUPED, [{"m": m} for m in SIZES],
    ),
    "rows with an epilogue": (
        Matmul(512, 40, 64, epilogue=ALL, dynamic=ROWS), SCHEDULE, [{"m": m} for m in (1, 33, 70)],
    ),
    "rows with one bias each": (
        Matmul(512, 40, 64, epilogue=Epilogue(bias="row"), dynamic=ROWS), SCHEDULE,
        [{"m": m} for m in (1, 33, 70)],
    ),
    "rows of float32": (
        Matmul(512, 40, 32, dtype="float32", precision="tf32", dynamic=ROWS),
        replace(SCHEDULE, block_k=16), [{"m": m} for m in (1, 33, 70)],
    ),
    "rows without alignment": (
        Matmul(512, 37, 33, dynamic=ROWS), SCHEDULE, [{"m": m} for m in (1, 33, 70)],
    ),
    "rows by a transposed rhs": (
        Matmul(512, 40, 64, rhs=Layout(True), dynamic=ROWS), SCHEDULE,
        [{"m": m} for m in (1, 33, 70)],
    ),
    "rows of int8": (
        Matmul(512, 32, 64, dtype="int8", dynamic=ROWS), SCHEDULE, [{"m": m} for m in (1, 33, 70)],
    ),
    "rows of every batch entry": (
        Matmul(512, 40, 64, (3,), epilogue=ALL, dynamic=ROWS), SCHEDULE,
        [{"m": m} for m in (1, 33, 70)],
    ),
    "rows of two batches": (
        Matmul(512, 40, 64, (2, 2), epilogue=ALL, dynamic=ROWS), SCHEDULE,
        [{"m": m} for m in (1, 33)],
    ),
    "batch": (
        Matmul(33, 40, 64, (512,), epilogue=ALL, dynamic=BATCH), SCHEDULE,
        [{"batch0": b} for b in (1, 2, 5)],
    ),
    "batch of one tile each": (
        Matmul(32, 32, 64, (512,), dynamic=BATCH), SCHEDULE, [{"batch0": b} for b in (1, 5)],
    ),
    "batch over another": (
        Matmul(33, 40, 64, (512, 3), rhs=Layout(batch_strides=(0, 40 * 64)), dynamic=BATCH),
        SCHEDULE, [{"batch0": b} for b in (1, 4)],
    ),
    "rows and batch": (
        Matmul(512, 40, 64, (512,), epilogue=ALL, dynamic=BOTH), SCHEDULE,
        [{"m": m, "batch0": b} for m, b in ((1, 1), (33, 1), (1, 4), (70, 3))],
    ),
    "rows and batch, grouped tiles": (
        Matmul(512, 72, 64, (512,), dynamic=BOTH), GROUPED,
        [{"m": m, "batch0": b} for m, b in ((1, 1), (33, 1), (1, 4), (133, 3))],
    ),
    "images": (
        Conv2d(512, 7, 6, 16, 40, (3, 3), padding=((1, 1), (1, 1)), epilogue=ALL, dynamic=IMAGES),
        SCHEDULE, [{"batch": b} for b in (1, 2, 3)],
    ),
    "images without a border": (
        Conv2d(512, 9, 9, 16, 32, (2, 2), stride=(2, 2), dynamic=IMAGES), SCHEDULE,
        [{"batch": b} for b in (1, 2, 4)],
    ),
    "images by pixels": (
        Conv2d(512, 5, 5, 64, 32, (1, 1), dynamic=IMAGES), SCHEDULE,
        [{"batch": b} for b in (1, 2, 5)],
    ),
    "images of 85 pixels": (  # LIMIT // 85 is a multiple of a tile's rows
        Conv2d(512, 7, 19, 8, 32, (3, 3), dynamic=IMAGES), SCHEDULE, [{"batch": 1}, {"batch": 2}],
    ),
    "wgmma: rows": (
        Matmul(512, 72, 136, dynamic=ROWS), WGMMA, [{"m": m} for m in (1, 63, 64, 65, 128, 333)],
    ),
    "wgmma: rows with an epilogue": (
        Matmul(512, 72, 64, epilogue=ALL, dynamic=ROWS), WGMMA, [{"m": m} for m in (1, 65, 333)],
    ),
    "wgmma: rows with one bias each": (
        Matmul(512, 72, 64, epilogue=Epilogue(bias="row"), dynamic=ROWS), WGMMA,
        [{"m": m} for m in (1, 65)],
    ),
    "wgmma: rows, swapped": (
        Matmul(512, 72, 64, epilogue=ALL, dynamic=ROWS), wgmma(swap_operands=True),
        [{"m": m} for m in (1, 65, 200)],
    ),
    "wgmma: rows, one by one": (
        Matmul(512, 72, 64, epilogue=ALL, dynamic=ROWS), wgmma(ping_pong=True, consumers=2),
        [{"m": m} for m in (1, 65, 333)],
    ),
    "wgmma: rows, pairs along m": (
        Matmul(512, 72, 64, rhs=Layout(True), dynamic=ROWS),
        wgmma(cluster_m=2, persistent_blocks=4),
        [{"m": m} for m in (1, 65, 128, 333)],
    ),
    "wgmma: rows, pairs along n": (
        Matmul(512, 72, 64, dynamic=ROWS), wgmma(cluster_n=2, persistent_blocks=4),
        [{"m": m} for m in (1, 65, 333)],
    ),
    "wgmma: rows, grouped tiles": (
        Matmul(512, 136, 64, dynamic=ROWS), wgmma(raster_group=2), [{"m": m} for m in (1, 65, 333)],
    ),
    "wgmma: rows by threads": (
        Matmul(512, 72, 68, epilogue=ALL, dynamic=ROWS), wgmma(tma=False),
        [{"m": m} for m in (1, 65, 200)],
    ),
    "wgmma: rows that TMA cannot store": (
        Matmul(512, 37, 64, rhs=Layout(True), dynamic=ROWS), WGMMA, [{"m": m} for m in (1, 65)],
    ),
    "wgmma: batch": (
        Matmul(33, 72, 64, (512,), epilogue=ALL, dynamic=BATCH), WGMMA,
        [{"batch0": b} for b in (1, 2, 5)],
    ),
    "wgmma: batch over another": (
        Matmul(33, 72, 64, (512, 3), rhs=Layout(batch_strides=(0, 72 * 64)), dynamic=BATCH), WGMMA,
        [{"batch0": b} for b in (1, 3)],
    ),
    "wgmma: batch by threads": (
        Matmul(33, 37, 68, (512,), dynamic=BATCH), wgmma(tma=False),
        [{"batch0": b} for b in (1, 3)],
    ),
}  # fmt: skip
CALLS = [(name, i) for name, (_, _, calls) in CASES.items() for i in range(len(calls))]


def at(problem: Problem, sizes: dict[str, int]) -> Problem:
    """The problem of one call."""
    values: dict[str, object] = {k: v for k, v in sizes.items() if k != "batch0"}
    if "batch0" in sizes:
        assert isinstance(problem, Matmul)
        values["batch"] = (sizes["batch0"], *problem.batch[1:])
    return replace(problem, **values)  # type: ignore[arg-type]


@functools.cache
def compiled(name: str) -> CompiledKernel:
    problem, schedule, _ = CASES[name]
    return compiler.compile_kernel(problem, schedule, ARCHES[schedule.family])


def settled(name: str, sizes: dict[str, int]) -> CompiledKernel:
    kernel = compiled(name)
    return replace(kernel, kernel=kernel.kernel.settled(at(kernel.kernel.problem, sizes)))


@pytest.mark.parametrize(("name", "call"), CALLS, ids=lambda x: str(x))
def test_one_kernel_serves_every_size_without_a_hazard(name: str, call: int) -> None:
    kernel = settled(name, CASES[name][2][call])
    modes = ADVERSARIAL_MODES if call == 0 else (Mode("random", "random", call),)
    for mode in modes:
        found = interpreted.check(kernel, mode, seed=call)
        assert found.error <= tolerance(kernel.kernel.problem)
        assert found.report.ok, found.report


@pytest.mark.parametrize("name", ["rows", "batch", "rows and batch", "images", "wgmma: rows"])
def test_a_call_without_elements_launches_nothing(name: str) -> None:
    sizes = dict.fromkeys(CASES[name][2][0], 0)
    assert settled(name, sizes).kernel.launches == ()


@pytest.mark.parametrize("sizes", [{"m": 1}, {"m": 133}])
@pytest.mark.parametrize("name", ["rows with an epilogue", "wgmma: rows with an epilogue"])
def test_the_bits_are_those_of_the_static_kernel(name: str, sizes: dict[str, int]) -> None:
    ours = settled(name, sizes)
    problem, schedule = ours.kernel.problem, ours.kernel.schedule
    theirs = compiler.compile_kernel(problem, schedule, ARCHES[schedule.family])
    operands = interpreted.numpy_operands(problem, 0)
    mode = Mode("late", "ascending")
    for got, want in zip(
        *(interpreted.run(k, operands, mode)[0] for k in (ours, theirs)), strict=True
    ):
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


MAPPED = [name for name in CASES if name.startswith("wgmma") and "threads" not in name]


@pytest.mark.parametrize("name", MAPPED)
def test_tensor_maps_are_those_of_the_static_kernel(name: str) -> None:
    problem, schedule, calls = CASES[name]
    concrete = at(problem, calls[-1])
    ours = compiler.emit_kernel(problem, schedule, SM_90A).settled(concrete)
    theirs = compiler.emit_kernel(concrete.nominal, schedule, SM_90A)
    count = len(theirs.launches[0].params)
    assert ours.launches[0].params[:count] == theirs.launches[0].params


def test_a_grid_that_walks_takes_as_many_tiles_as_its_index_holds() -> None:
    kernel = compiler.emit_kernel(Matmul(512, 64000, 64, dynamic=ROWS), WGMMA, SM_90A)
    (size,) = kernel.sizes
    assert -(-size.limit // WGMMA.block_m) * 1000 < 2**30


def test_the_source_depends_on_the_nominal_size_in_its_heading_only() -> None:
    sources = [
        compiler.emit_kernel(Matmul(m, 40, 72, dynamic=ROWS), SCHEDULE, SM_80).source
        for m in (64, 500)
    ]
    first, second = (source.split("\n", 1) for source in sources)
    assert first[1] == second[1]
    assert first[0] != second[0]


REFUSED = {
    "columns": (Matmul(64, 512, 64, dynamic=("n",)), "symbolic n: on GPUs the rows"),
    "terms": (Matmul(64, 64, 512, dynamic=("k",)), "symbolic k"),
    "inner batch": (Matmul(64, 64, 64, (2, 512), dynamic=("batch1",)), "symbolic batch1"),
    "transposed": (
        Matmul(512, 64, 64, lhs=Layout(True), dynamic=ROWS), "symbolic m of a transposed lhs",
    ),
    "one rhs": (
        Matmul(512, 64, 64, (512,), rhs=Layout(batch_strides=(0,)), dynamic=BOTH),
        "fold the batch into the rows",
    ),
}  # fmt: skip


REFUSED_BY_WGMMA = {
    "images": (Conv2d(512, 9, 9, 64, 64, (3, 3), dynamic=IMAGES), "its patches count images"),
    "rows of every batch entry": (
        Matmul(512, 64, 64, (3,), dynamic=ROWS), "tensor maps have fixed strides",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_BY_WGMMA)
def test_what_wgmma_leaves_to_mma_sync_is_said(name: str) -> None:
    problem, text = REFUSED_BY_WGMMA[name]
    assert text in " ".join(legality.check(WGMMA, problem, SM_90A))


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_serves_is_said(name: str) -> None:
    problem, text = REFUSED[name]
    assert text in " ".join(legality.check(SCHEDULE, problem, SM_80))


def test_no_split_of_k_leaves_sizes_to_the_call() -> None:
    problem = Matmul(64, 64, 4096, dynamic=ROWS)
    reasons = " ".join(legality.check(replace(SCHEDULE, split_k=4), problem, SM_80))
    assert "split_k=4 of a symbolic size" in reasons


def test_what_the_model_chooses_for_long_sums_is_legal() -> None:
    problem = Matmul(16, 64, 65536, dynamic=ROWS)
    schedule = choose(problem, executor="cuda", device=device("a100")).schedule
    assert isinstance(schedule, GpuSchedule)
    assert legality.check(schedule, problem, SM_80) == ()
