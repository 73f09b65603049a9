"""The host model: its plan is csrc/host's, its limits hold, and it tells good from bad."""

from dataclasses import replace

import numpy as np
import pytest

from jaxpipe.epilogue import Epilogue
from jaxpipe.model import bottleneck, host
from jaxpipe.model.host_plan import host_plan
from jaxpipe.model.table import table_of
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.schedule import HostSchedule
from jaxpipe.space import host_space
from jaxpipe.target import HostDevice

HOST = HostDevice("test_cpu", "avx512_bf16", 2, 3.6e9)
LINEAR = Matmul(512, 768, 768, dtype="float32")
PROBLEMS: tuple[Problem, ...] = (
    LINEAR,
    Matmul(512, 768, 3072, dtype="bfloat16"),
    Matmul(16, 3072, 768, dtype="float32"),
    Matmul(1, 3072, 768, dtype="float16"),
    Matmul(512, 512, 64, batch=(12,), dtype="float32", rhs=Layout(True)),
    Matmul(33, 65, 17, dtype="int8"),
    Conv2d(2, 28, 28, 64, 64, (3, 3), padding=((1, 1), (1, 1)), dtype="float32"),
)
FASTER = ("clock_hz", "fma_share", "l1_bps", "l2_bps", "l3_bps", "dram_bps")


def seconds(problem: Problem, schedule: HostSchedule, device: HostDevice = HOST) -> float:
    return host.predict(problem, schedule, device).seconds


@pytest.mark.parametrize("field", FASTER)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_faster_part_never_makes_a_call_slower(problem: Problem, field: str) -> None:
    schedules = host_space(problem, HOST).table
    better = replace(HOST, **{field: 2 * getattr(HOST, field)})
    before, after = (host.predict_many(problem, schedules, h) for h in (HOST, better))
    assert np.all(after <= before * (1 + 1e-9))


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_no_call_beats_the_peak_of_its_threads(problem: Problem) -> None:
    widest = 2 if problem.dtype in ("bfloat16", "int8") else 1
    ideal = problem.flops / (HOST.threads * HOST.fma_flops_hz * widest)
    assert host.predict_many(problem, host_space(problem, HOST).table, HOST).min() >= ideal


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_parts_add_up(problem: Problem) -> None:
    said = host.predict(problem, HostSchedule(), HOST)
    assert sum(s for _, s in said.parts) == pytest.approx(said.seconds)
    assert said.bound in host.PARTS


def test_with_memory_for_free_what_remains_is_the_multiply_adds() -> None:
    free = replace(HOST, l1_bps=1e18, l2_bps=1e18, l3_bps=1e18, dram_bps=1e18,
                   wake_s=0, call_s=0)  # fmt: skip
    even = Matmul(14 * 64, 1024, 4096, dtype="float32")
    ideal = even.flops / (free.threads * free.fma_flops_hz)
    assert seconds(even, HostSchedule(strip=32), free) == pytest.approx(ideal, rel=0.02)


def test_three_strips_on_two_threads_leave_one_idle() -> None:
    uneven, even = (seconds(LINEAR, HostSchedule(strip=s)) for s in (256, 384))
    assert uneven == pytest.approx(even * 512 / 384, rel=0.05)


def test_packing_again_for_every_block_of_rows_costs_time() -> None:
    once, again = (seconds(LINEAR, HostSchedule(strip=64, block_m=b)) for b in (0, 64))
    assert once < again


def test_shared_panels_pay_when_many_items_use_them() -> None:
    shared = HostSchedule(strip=64, block_m=64, pack="shared")
    assert seconds(LINEAR, shared) < seconds(LINEAR, replace(shared, pack="item"))


def test_a_tiny_product_stays_on_one_thread() -> None:
    plan = host_plan(table_of([HostSchedule()]), Matmul(16, 16, 16, dtype="float32"), HOST)
    assert plan.threads[0] == 1


def test_more_threads_help_a_large_product() -> None:
    one, two = (seconds(LINEAR, HostSchedule(threads=t)) for t in (1, 2))
    assert two < 0.6 * one


def test_an_activation_costs_time() -> None:
    heavy = replace(LINEAR, epilogue=Epilogue(bias="column", activation="gelu_erf"))
    assert seconds(heavy, HostSchedule()) > seconds(LINEAR, HostSchedule())


def test_a_batch_over_one_rhs_is_more_rows() -> None:
    shared = Matmul(128, 768, 768, (4,), "float32", rhs=Layout(batch_strides=(0,)))
    plan = host_plan(table_of([HostSchedule()]), shared, HOST)
    assert (plan.m, plan.batches) == (512, 1)


@pytest.mark.parametrize(
    ("problem", "per_word", "copies"),
    [
        (LINEAR, 1, False),
        (replace(LINEAR, lhs=Layout(True)), 1, True),
        (PROBLEMS[1], 2, False),
        (PROBLEMS[3], 1, True),
        (PROBLEMS[5], 2, True),
    ],
    ids=str,
)
def test_words_and_copies_follow_dtype_and_layout(
    problem: Problem, per_word: int, copies: bool
) -> None:
    plan = host_plan(table_of([HostSchedule()]), problem, HOST)
    assert (plan.per_word, bool(plan.copies_lhs[0])) == (per_word, copies)


def test_streaming_is_planned_only_for_few_rows() -> None:
    stream = table_of([HostSchedule(path="stream")])
    few, many = (host_plan(stream, Matmul(m, 768, 768), HOST).streams[0] for m in (8, 64))
    assert (few, many) == (True, False)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_bottleneck_model_is_a_lower_bound_of_three_times(problem: Problem) -> None:
    said = bottleneck.predict(problem, HostSchedule(), HOST)
    assert said.seconds == max(s for _, s in said.parts)
    assert said.bound in bottleneck.HOST_BOUNDS


@pytest.mark.parametrize(("k", "share"), [(1024, True), (3072, True), (1040, False), (3088, False)])
def test_tall_tiles_wait_where_the_rows_of_lhs_share_few_cache_sets(k: int, share: bool) -> None:
    problem = Matmul(512, 768, k, dtype="float32")  # a row of 1024 or 3072 is whole L1 ways apart

    def wait(rows: int, copy_lhs: bool) -> float:
        schedule = HostSchedule(rows=rows, strip=128, copy_lhs=copy_lhs)
        return dict(host.predict(problem, schedule, HOST).parts)["wait"]

    assert (wait(14, False) > 2 * wait(7, False)) is share
    assert (wait(14, False) > 2 * wait(14, True)) is share
