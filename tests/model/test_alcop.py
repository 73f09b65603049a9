"""ALCOP's model: limits, monotonicity, conservation of work, and speed."""

import time
from dataclasses import replace

import numpy as np
import pytest

from jaxpipe.epilogue import Epilogue
from jaxpipe.model import alcop
from jaxpipe.model.table import ScheduleTable, table_of
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.space import gpu_space
from jaxpipe.target import DEVICES, Device

A100, H200 = DEVICES["a100"], DEVICES["h200"]
LARGE = Matmul(4096, 4096, 4096)
LINEAR = Matmul(512, 3072, 768)
ATTENTION = Matmul(512, 64, 512, batch=(12,))
CONV = Conv2d(8, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1)))
PROBLEMS = (LARGE, LINEAR, ATTENTION, CONV)
AMPERE = GpuSchedule(block_k=64, smem_stages=3)
HOPPER = GpuSchedule("hopper", 128, 256, 64, cluster_m=2)
FASTER = {
    "dram": {"dram_bps": 2.0},
    "l2": {"l2_bps": 2.0, "l2_sm_bytes_per_clk": 2.0},
    "shared": {"shared_bytes_per_clk": 2.0},
    "latency": {"dram_latency_clk": 0.5, "l2_latency_clk": 0.5, "shared_latency_clk": 0.5},
    "larger l2": {"l2_bytes": 2},
    "launch": {"launch_s": 0.5},
}


def table(problem: Problem, device: Device, every: int = 7) -> ScheduleTable[GpuSchedule]:
    return gpu_space(problem, device).table.take(slice(None, None, every))


def scaled(device: Device, factors: dict[str, float]) -> Device:
    return replace(device, **{name: getattr(device, name) * f for name, f in factors.items()})


@pytest.mark.parametrize("device", [A100, H200], ids=lambda d: d.name)
@pytest.mark.parametrize("what", FASTER)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_faster_part_never_makes_a_kernel_slower(
    problem: Problem, what: str, device: Device
) -> None:
    schedules = table(problem, device, 37)
    before = alcop.predict_many(problem, schedules, device)
    after = alcop.predict_many(problem, schedules, scaled(device, FASTER[what]))
    assert np.all(after <= before * (1 + 1e-9))


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_faster_tensor_cores_never_make_a_kernel_slower(problem: Problem) -> None:
    rates = tuple((dtype, 2 * rate) for dtype, rate in H200.tensor_flops_hz)
    schedules = table(problem, H200, 37)
    before = alcop.predict_many(problem, schedules, H200)
    after = alcop.predict_many(problem, schedules, replace(H200, tensor_flops_hz=rates))
    assert np.all(after <= before * (1 + 1e-9))


@pytest.mark.parametrize("schedule", [AMPERE, HOPPER], ids=str)
def test_with_memory_for_free_what_remains_is_the_tensor_cores(schedule: GpuSchedule) -> None:
    free = replace(
        H200, dram_bps=1e30, l2_bps=1e30, l2_sm_bytes_per_clk=1e18, shared_bytes_per_clk=1e18,
        l2_latency_clk=0, dram_latency_clk=0, shared_latency_clk=0, launch_s=0, fma_flops_hz=1e30,
        sm_count=128,
    )  # fmt: skip
    share = H200.mma_sync_share if schedule.family == "ampere" else 1.0
    ideal = LARGE.flops / (free.flops_hz("bfloat16") * share)
    assert alcop.predict(LARGE, schedule, free).seconds == pytest.approx(ideal, rel=0.08)


@pytest.mark.parametrize("device", [A100, H200], ids=lambda d: d.name)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_no_kernel_beats_the_roofline(problem: Problem, device: Device) -> None:
    compute = problem.flops / device.flops_hz("bfloat16")
    memory = problem.bytes_min / device.dram_bps
    seconds = alcop.predict_many(problem, table(problem, device), device)
    assert seconds.min() >= max(compute, memory)


def test_one_stage_on_a_lonely_block_loads_and_uses_in_turn() -> None:
    problem = Matmul(128, 128, 64 * 50)
    lonely = replace(AMPERE, smem_stages=1, reg_stages=1)
    p = alcop.phases(problem, table_of([lonely]), A100)
    turn = p.main.load[0] + p.main.use[0]
    assert p.fill[0] + p.loop[0] == pytest.approx(50 * turn, rel=0.06)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_parts_add_up_to_the_whole(problem: Problem) -> None:
    said = alcop.predict(problem, AMPERE, A100)
    assert sum(seconds for _, seconds in said.parts) == pytest.approx(said.seconds)


@pytest.mark.parametrize("problem", [LARGE, LINEAR, ATTENTION], ids=str)
def test_more_shared_stages_are_never_slower_while_as_many_blocks_fit(problem: Problem) -> None:
    deeper = [replace(AMPERE, block_k=32, smem_stages=s) for s in (1, 2, 3, 4)]
    assert np.all(np.diff(alcop.predict_many(problem, deeper, A100)) <= 1e-12)


def test_register_stages_pay_where_one_warp_has_a_partition_to_itself() -> None:
    stages = [replace(AMPERE, smem_stages=4, reg_stages=r) for r in (1, 2)]
    one, two = (alcop.predict(LINEAR, s, A100).seconds for s in stages)
    assert two < 0.99 * one


def test_bank_conflicts_cost_time() -> None:
    straight = replace(AMPERE, swizzle=False)
    assert alcop.predict(LARGE, straight, A100).seconds > alcop.predict(LARGE, AMPERE, A100).seconds


def test_operands_that_outgrow_l2_are_fetched_again() -> None:
    problem, slow = Matmul(2048, 2048, 2048), replace(A100, dram_bps=3e11)
    small = replace(slow, l2_bytes=1 << 20)
    before, after = (alcop.predict(problem, AMPERE, d).seconds for d in (slow, small))
    assert after > 1.05 * before


def test_a_square_walk_over_tiles_touches_fewer_panels() -> None:
    small = replace(A100, l2_bytes=8 << 20)
    walks = [replace(AMPERE, raster_group=g) for g in (1, 8)]
    column, grouped = (alcop.predict(LARGE, s, small).seconds for s in walks)
    assert grouped < column


def test_a_cluster_reads_less_of_l2() -> None:
    slow = replace(H200, l2_bps=4e12)
    alone = replace(HOPPER, cluster_m=1)
    assert alcop.predict(LARGE, HOPPER, slow).seconds < alcop.predict(LARGE, alone, slow).seconds


def test_ping_pong_hides_the_epilogue_of_short_products() -> None:
    problem = Matmul(8192, 8192, 512, epilogue=Epilogue(bias="column", activation="gelu_erf"))
    turns = GpuSchedule("hopper", 64, 256, 64, ping_pong=True)
    together = replace(turns, ping_pong=False, consumers=1)
    faster, slower = (alcop.predict(problem, s, H200).seconds for s in (turns, together))
    assert faster < slower


def test_split_k_pays_for_few_tiles_and_long_sums() -> None:
    problem = Matmul(128, 128, 16384)
    ways = [replace(AMPERE, split_k=s) for s in (1, 8)]
    whole, split = (alcop.predict(problem, s, A100).seconds for s in ways)
    assert split < whole


def test_a_block_that_does_not_fit_takes_for_ever() -> None:
    huge = replace(AMPERE, block_m=256, block_n=256, smem_stages=8)
    assert alcop.predict_many(LARGE, [huge], A100)[0] == np.inf


def test_warm_operands_are_never_slower_than_cold_ones() -> None:
    schedules = table(LINEAR, A100)
    warm = alcop.predict_many(LINEAR, schedules, A100, is_warm=True)
    assert np.all(warm <= alcop.predict_many(LINEAR, schedules, A100))


def test_rows_of_both_families_keep_their_order() -> None:
    mixed = [AMPERE, HOPPER, AMPERE]
    alone = [alcop.predict(LINEAR, s, H200).seconds for s in mixed]
    assert alcop.predict_many(LINEAR, mixed, H200) == pytest.approx(alone)


def test_ten_thousand_schedules_take_less_than_a_second() -> None:
    schedules = gpu_space(LINEAR, H200).table
    rows = schedules.take(np.arange(10_000))
    start = time.process_time()
    alcop.predict_many(LINEAR, rows, H200)
    assert time.process_time() - start < 1.0
