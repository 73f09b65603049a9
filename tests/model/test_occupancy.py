"""Occupancy: what blocks need is what the emitters ask for, and an SM holds as many as fit."""

import numpy as np
import pytest

from jaxpipe.geometry_hopper import geometry
from jaxpipe.model.occupancy import occupancy, registers_of
from jaxpipe.model.table import table_of
from jaxpipe.model.workload import workload
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.space import gpu_space
from jaxpipe.target import ARCHES, DEVICES

PROBLEMS: tuple[Problem, ...] = (
    Matmul(512, 768, 768),
    Matmul(48, 1000, 100),
    Matmul(33, 50257, 768, dtype="float16", out_dtype="float32"),
    Conv2d(8, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1))),
)
SAMPLE = 200
TINY = "block_m=16,block_n=16,block_k=32,warps_m=1,warps_n=1,smem_stages=1,reg_stages=1"
# ptxas 13.5 on emitted kernels of matmul 512x3072x768 bfloat16 for sm_80 (NVRTC, no GPU needed).
MEASURED_REGISTERS = {
    "block_m=128,block_n=128,block_k=32,smem_stages=6,reg_stages=2,split_k=3": 234,
    "block_m=96,block_n=96,block_k=32,smem_stages=4,reg_stages=1": 142,
    "block_m=64,block_n=96,block_k=64,warps_m=4,smem_stages=4,reg_stages=1": 80,
    "block_m=64,block_n=64,block_k=64,warps_m=4,warps_n=1,smem_stages=4,reg_stages=1": 99,
    "block_m=32,block_n=128,block_k=32,warps_m=1,warps_n=1,smem_stages=1,reg_stages=1": 234,
    "block_m=32,block_n=64,block_k=32,warps_n=4,smem_stages=2,reg_stages=1": 48,
    "block_m=256,block_n=64,block_k=32,warps_m=4,smem_stages=1,reg_stages=2": 150,
}


def sample(problem: Problem, device: str, family: str) -> list[GpuSchedule]:
    space = gpu_space(problem, DEVICES[device], family)
    rows = np.random.default_rng(1).permutation(len(space))[:SAMPLE]
    return [space.schedule(int(row)) for row in rows]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_shared_memory_of_an_ampere_block_is_what_is_launched(problem: Problem) -> None:
    schedules = sample(problem, "a100", "ampere")
    found = occupancy(table_of(schedules), workload(problem), ARCHES["sm_80"]).shared_bytes
    assert list(found) == [s.shared_bytes(problem) for s in schedules]


@pytest.mark.parametrize("problem", [*PROBLEMS[:1], *PROBLEMS[3:], Matmul(16, 768, 3072)], ids=str)
def test_shared_memory_of_a_hopper_block_is_what_is_launched(problem: Problem) -> None:
    schedules = sample(problem, "h200", "hopper")
    found = occupancy(table_of(schedules), workload(problem), ARCHES["sm_90a"]).shared_bytes
    assert list(found) == [geometry(problem, s).shared.total_bytes for s in schedules]


@pytest.mark.parametrize(("device", "family"), [("a100", "ampere"), ("h200", "hopper")])
def test_threads_are_the_schedules(device: str, family: str) -> None:
    schedules = sample(PROBLEMS[0], device, family)
    arch = ARCHES[DEVICES[device].arch]
    found = occupancy(table_of(schedules), workload(PROBLEMS[0]), arch).threads
    assert list(found) == [s.threads for s in schedules]


@pytest.mark.parametrize(("text", "measured"), MEASURED_REGISTERS.items(), ids=str)
def test_registers_are_close_to_what_ptxas_says(text: str, measured: int) -> None:
    estimate = registers_of(table_of([GpuSchedule.parse(text)]), workload(PROBLEMS[0]))[0]
    assert abs(estimate - measured) <= 24


@pytest.mark.parametrize(
    ("text", "arch", "blocks", "limit"),
    [
        ("block_k=32,smem_stages=4", "sm_80", 2, "shared memory"),
        ("block_k=64,smem_stages=3", "sm_80", 1, "shared memory"),
        ("block_k=32,smem_stages=2,reg_stages=1", "sm_80", 2, "registers"),
        (TINY, "sm_80", 32, "registers"),
        (TINY, "sm_86", 16, "block slots"),
    ],
)
def test_an_sm_holds_what_its_tightest_resource_allows(
    text: str, arch: str, blocks: int, limit: str
) -> None:
    table = table_of([GpuSchedule.parse(text)])
    found = occupancy(table, workload(PROBLEMS[0]), ARCHES[arch])
    assert (found.blocks_per_sm[0], found.limit_name(0)) == (blocks, limit)


def test_a_block_that_asks_for_too_much_fits_nowhere() -> None:
    deep = GpuSchedule(block_k=128, smem_stages=8)
    found = occupancy(table_of([deep]), workload(Matmul(512, 768, 8192)), ARCHES["sm_80"])
    assert found.blocks_per_sm[0] == 0


def test_persistent_blocks_have_an_sm_each() -> None:
    schedules = sample(PROBLEMS[0], "h200", "hopper")
    found = occupancy(table_of(schedules), workload(PROBLEMS[0]), ARCHES["sm_90a"])
    assert set(found.blocks_per_sm) == {1}
