"""ROLLER's construction: legal, quick, and as good as the model's best of the whole space."""

import time

import pytest

from jaxpipe import legality
from jaxpipe.model import alcop, roller
from jaxpipe.model import host as host_model
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.space import gpu_space, host_space
from jaxpipe.target import ARCHES, DEVICES, HostDevice

HOST = HostDevice("test_cpu", "avx2", 2, 3e9)
PROBLEMS: tuple[Problem, ...] = (
    Matmul(512, 768, 768),
    Matmul(512, 768, 3072, dtype="float16"),
    Matmul(4096, 4096, 4096),
    Matmul(1, 3072, 768),
    Matmul(16, 768, 3072),
    Matmul(512, 512, 64, batch=(12,)),
    Matmul(17, 33, 7),
    Matmul(1024, 50257, 768),
    Matmul(512, 512, 512, dtype="float32", precision="tf32", rhs=Layout(True)),
    Matmul(256, 256, 1024, dtype="int8", rhs=Layout(True)),
    Conv2d(8, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1))),
)
DEVICE_NAMES = ("a100", "h200", "a6000", "rtx4090", "b200", "rtx5090")


@pytest.mark.parametrize("name", DEVICE_NAMES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_constructed_schedules_are_legal(problem: Problem, name: str) -> None:
    device = DEVICES[name]
    built = roller.construct(problem, device, 10)
    assert built
    assert [legality.check(s, problem, ARCHES[device.arch]) for s in built] == [()] * len(built)


@pytest.mark.parametrize("name", ["a100", "h200"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_first_is_close_to_the_models_best_of_the_space(problem: Problem, name: str) -> None:
    device = DEVICES[name]
    first = alcop.predict(problem, roller.construct(problem, device, 1)[0], device).seconds
    best = alcop.predict_many(problem, gpu_space(problem, device).table, device).min()
    assert best >= 0.9 * first


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_schedules_come_best_first_and_none_twice(problem: Problem) -> None:
    built = roller.construct(problem, DEVICES["h200"], 10)
    seconds = alcop.predict_many(problem, built, DEVICES["h200"])
    assert list(seconds) == sorted(seconds)
    assert len(set(built)) == len(built) <= 10


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_construction_takes_less_than_50_ms(problem: Problem) -> None:
    roller.construct(problem, DEVICES["h200"], 10)
    start = time.process_time()
    roller.construct(problem, DEVICES["h200"], 10)
    assert time.process_time() - start < 0.05


def test_construction_is_the_same_every_time() -> None:
    problem = PROBLEMS[0]
    twice = [roller.construct(problem, DEVICES["h200"], 10) for _ in range(2)]
    assert twice[0] == twice[1]


def test_small_operators_get_smaller_tiles_until_the_device_is_full() -> None:
    device = DEVICES["a100"]
    large, small = (roller.construct(Matmul(m, 768, 768), device, 1)[0] for m in (8192, 256))
    assert small.block_m * small.block_n < large.block_m * large.block_n


@pytest.mark.parametrize("sizes", [(0, 8, 8), (8, 8, 0), (8, 8, 8, (0,))], ids=str)
def test_nothing_is_built_where_nothing_runs(sizes: tuple[int, ...]) -> None:
    problem = Matmul(*sizes)
    assert roller.construct(problem, DEVICES["a100"], 3) == ()
    assert roller.construct(problem, HOST, 3) == ()


@pytest.mark.parametrize("problem", PROBLEMS[:7], ids=str)
def test_host_construction_is_close_to_the_models_best_of_the_space(problem: Problem) -> None:
    built = roller.construct(problem, HOST, 5)
    first = host_model.predict_many(problem, built, HOST)[0]
    best = host_model.predict_many(problem, host_space(problem, HOST).table, HOST).min()
    assert best >= 0.9 * first
