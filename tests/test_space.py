"""The spaces: finite, aligned, complete in their constraints; and ALCOP's published ones."""

import numpy as np
import pytest

from jaxpipe import legality
from jaxpipe.errors import ScheduleError
from jaxpipe.model import host_rule
from jaxpipe.model.occupancy import occupancy
from jaxpipe.model.workload import workload
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.space import gpu_space, host_space, paper_space
from jaxpipe.target import ARCHES, DEVICES, HOST_ISAS, HostDevice

HOST = HostDevice("test_cpu", "avx512", 2, 3e9)
PROBLEMS: tuple[Problem, ...] = (
    Matmul(512, 768, 768),
    Matmul(1, 3072, 768),
    Matmul(48, 768, 768, lhs=Layout(True)),
    Matmul(128, 1000, 100),
    Matmul(1024, 50257, 768),
    Matmul(512, 512, 64, batch=(12,), rhs=Layout(True)),
    Matmul(512, 768, 8192, dtype="float32", precision="tf32", rhs=Layout(True)),
    Matmul(256, 256, 1024, dtype="int8", rhs=Layout(True)),
    Conv2d(8, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1))),
    Conv2d(2, 224, 224, 3, 64, (7, 7), stride=(2, 2), padding=((3, 3), (3, 3))),
)
SAMPLE = 400


@pytest.mark.parametrize("name", ["a100", "h200", "rtx4090"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_nothing_in_a_space_is_illegal(problem: Problem, name: str) -> None:
    device = DEVICES[name]
    space = gpu_space(problem, device)
    rows = np.random.default_rng(0).permutation(len(space))[:SAMPLE]
    reasons = [legality.check(space.schedule(int(r)), problem, ARCHES[device.arch]) for r in rows]
    assert not any(reasons)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [PROBLEMS[0], PROBLEMS[1], PROBLEMS[7]], ids=str)
def test_not_one_row_of_a_space_is_illegal(problem: Problem) -> None:
    device = DEVICES["h200"]
    space = gpu_space(problem, device)
    rows = range(len(space))
    assert not any(legality.check(space.schedule(r), problem, ARCHES[device.arch]) for r in rows)


@pytest.mark.parametrize("problem", PROBLEMS[:4], ids=str)
def test_every_block_fits_an_sm(problem: Problem) -> None:
    device = DEVICES["a100"]
    space = gpu_space(problem, device)
    fits = occupancy(space.table, workload(problem), ARCHES[device.arch])
    assert fits.blocks_per_sm.min() >= 1
    assert fits.registers[space.columns["family"] == "ampere"].max() <= 255


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_no_schedule_appears_twice(problem: Problem) -> None:
    space = gpu_space(problem, DEVICES["h200"])
    schedules = space.table.take(slice(None, None, 11)).schedules()
    assert len(set(schedules)) == len(schedules)


def test_a_space_holds_its_schedules_by_row() -> None:
    space = gpu_space(PROBLEMS[0], DEVICES["a100"])
    schedule = space.schedule(17)
    assert schedule.block_m == space.columns["block_m"][17]
    assert 10_000 < len(space) < 100_000


def test_families_can_be_asked_for_alone() -> None:
    space = gpu_space(PROBLEMS[0], DEVICES["h200"], family="hopper")
    assert set(space.columns["family"]) == {"hopper"}


def test_a_space_without_schedules_says_so() -> None:
    with pytest.raises(ScheduleError, match=r"no aligned schedule of matmul .* fits a100"):
        gpu_space(PROBLEMS[0], DEVICES["a100"], family="hopper")


@pytest.mark.parametrize(("operator", "size"), [("dense", 1620), ("bmm", 4860), ("conv2d", 2430)])
def test_the_published_spaces_have_their_published_sizes(operator: str, size: int) -> None:
    assert len(paper_space(PROBLEMS[0], operator)) == size


def test_the_published_dense_space_has_the_published_tiles() -> None:
    columns = paper_space(PROBLEMS[0], "dense").columns
    assert set(columns["block_k"]) == {32, 64}
    assert set(columns["smem_stages"]) == {2, 3, 4, 5, 6}
    assert set(columns["reg_stages"]) == {1, 2, 4}
    assert (columns["block_m"].max(), columns["block_n"].max()) == (256, 128)


def test_an_unknown_published_space_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no published space 'conv3d': use dense, bmm, conv2d"):
        paper_space(PROBLEMS[0], "conv3d")


@pytest.mark.parametrize("problem", PROBLEMS[:7], ids=str)
def test_host_spaces_are_legal_and_small_enough_to_measure(problem: Problem) -> None:
    space = host_space(problem, HOST)
    schedules = space.table.schedules()
    assert 20 <= len(set(schedules)) == len(schedules) <= 700
    assert not any(legality.check_host(s) for s in schedules)


@pytest.mark.parametrize("threads", [1, 2, 64])
@pytest.mark.parametrize("isa", HOST_ISAS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_host_space_holds_what_the_rule_chooses(problem: Problem, isa: str, threads: int) -> None:
    host = HostDevice("test_cpu", isa, threads, 3e9)
    assert host_space(problem, host).table.schedules().count(host_rule.rule(problem, host)) == 1


def test_streaming_is_only_offered_where_it_serves() -> None:
    few, many = (host_space(Matmul(m, 768, 768), HOST).columns["path"] for m in (4, 64))
    assert "stream" in few
    assert "stream" not in many
