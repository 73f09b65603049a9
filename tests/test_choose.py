"""Which schedule a problem gets: explicit, tuned, nearest, model, and when XLA wins."""

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jaxpipe import choose as choosing
from jaxpipe import legality, tuned
from jaxpipe.choose import choose
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import ScheduleError, SettingError, TargetError, TuningError
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.records import Measurement, Record
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule
from jaxpipe.space import gpu_space
from jaxpipe.target import ARCHES, DEVICES, HostDevice

A100 = DEVICES["a100"]
HOST = HostDevice("test_cpu", "avx2", 2, 3e9)
PROBLEM = Matmul(512, 768, 768)
NEAR = Matmul(640, 768, 768)
FAR = Matmul(8192, 768, 768)
ILLEGAL = GpuSchedule(block_k=128, smem_stages=8)
TUNED = GpuSchedule(block_m=64, block_n=64, block_k=64, smem_stages=4)


@pytest.fixture(autouse=True)
def no_user_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("JAXPIPE_TARGET", raising=False)


def record(
    problem: Problem, schedule: Schedule = TUNED, ours: float = 1e-5, xla: tuple[float, ...] = ()
) -> Record:
    return Record(problem.key, "cuda", "a100", schedule, Measurement("ok", (ours,) * 3, xla))


def table(*records: Record) -> tuned.Table:
    return tuned.Table.of(records)


def test_an_explicit_schedule_is_taken_before_any_record() -> None:
    mine = GpuSchedule(smem_stages=3)
    with tuned.using(table(record(PROBLEM))):
        choice = choose(PROBLEM, executor="cuda", device=A100, explicit=mine)
    assert (choice.schedule, choice.source) == (mine, "explicit")


def test_an_illegal_explicit_schedule_is_refused_with_the_reason() -> None:
    with pytest.raises(ScheduleError, match="bytes of shared memory per block"):
        choose(PROBLEM, executor="cuda", device=A100, explicit=ILLEGAL)


@pytest.mark.parametrize("name", ["a100", "h200"])
@pytest.mark.parametrize(
    "problem",
    [Matmul(64, 64, 64, dtype="float32"), Conv2d(1, 8, 8, 16, 16, (3, 3), dtype="float32")],
    ids=str,
)
def test_true_float32_has_no_schedule_on_a_gpu(problem: Problem, name: str) -> None:
    refusal = "multiply float32 as TF32 .* use precision='tf32' or XLA"
    with pytest.raises(ScheduleError, match=refusal):
        choose(problem, executor="cuda", device=DEVICES[name])
    with pytest.raises(ScheduleError, match=refusal):
        gpu_space(problem, DEVICES[name])
    for family in ("ampere", "hopper"):
        schedule = GpuSchedule(family=family)
        with pytest.raises(ScheduleError, match=refusal):
            choose(problem, executor="cuda", device=DEVICES[name], explicit=schedule)
    permitted = replace(problem, precision="tf32")
    assert not any("TF32" in r for r in legality.check(GpuSchedule(), permitted, ARCHES["sm_80"]))


@pytest.mark.parametrize(("device", "explicit"), [(A100, HostSchedule()), (HOST, TUNED)], ids=str)
def test_a_schedule_of_the_other_executor_is_refused(device: object, explicit: Schedule) -> None:
    executor = "host" if device is HOST else "cuda"
    with pytest.raises(ScheduleError, match=r"takes a .*Schedule, got a .*Schedule"):
        choose(PROBLEM, executor=executor, device=device, explicit=explicit)


def test_a_record_of_the_problem_is_taken_before_the_model() -> None:
    with tuned.using(table(record(PROBLEM), record(NEAR, GpuSchedule()))):
        choice = choose(PROBLEM, executor="cuda", device=A100)
    assert (choice.schedule, choice.source) == (TUNED, "tuned")
    assert "10 us" in choice.reason


def test_a_near_record_serves_when_the_model_agrees() -> None:
    with tuned.using(table(record(NEAR))):
        choice = choose(PROBLEM, executor="cuda", device=A100)
    assert (choice.schedule, choice.source) == (TUNED, "nearest")
    assert NEAR.key in choice.reason


def test_a_near_record_that_the_model_calls_slow_does_not_serve() -> None:
    slow = GpuSchedule(block_m=256, block_n=256, block_k=32, warps_m=4, warps_n=4, smem_stages=1)
    with tuned.using(table(record(NEAR, slow))):
        choice = choose(PROBLEM, executor="cuda", device=A100)
    assert choice.source == "model"


def test_a_far_record_does_not_serve() -> None:
    with tuned.using(table(record(FAR))):
        choice = choose(PROBLEM, executor="cuda", device=A100)
    assert (choice.source, choice.schedule) == ("model", choosing.constructed(PROBLEM, A100)[0])


def test_an_illegal_record_does_not_serve() -> None:
    with tuned.using(table(record(PROBLEM, ILLEGAL))):
        assert choose(PROBLEM, executor="cuda", device=A100).source == "model"


@pytest.mark.parametrize(("xla", "wins"), [((), False), ((2e-5,) * 3, False), ((5e-6,) * 3, True)])
def test_xla_wins_only_where_a_record_measured_it_faster(
    xla: tuple[float, ...], wins: bool
) -> None:
    with tuned.using(table(record(PROBLEM, xla=xla))):
        choice = choose(PROBLEM, executor="cuda", device=A100)
    assert choice.xla_wins is wins
    assert choice.schedule == TUNED  # a named executor still serves


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        Matmul(1, 3072, 768),
        Matmul(17, 33, 7),
        Matmul(512, 512, 64, batch=(12,), epilogue=Epilogue(alpha=0.125)),
        Conv2d(8, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1))),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", list(DEVICES))
def test_every_untuned_problem_gets_a_legal_schedule_on_every_device(
    problem: Problem, name: str
) -> None:
    device = DEVICES[name]
    choice = choose(problem, executor="cuda", device=device)
    assert isinstance(choice.schedule, GpuSchedule)
    assert legality.check(choice.schedule, problem, ARCHES[device.arch]) == ()
    assert choice.prediction.seconds > 0


@pytest.mark.parametrize("name", ["a100", "h200"])
def test_small_convolutions_of_every_kind_get_a_schedule(name: str) -> None:
    draw = random.Random(0)
    for _ in range(60):
        k, step = draw.choice([1, 2, 3, 5]), draw.choice([1, 2])
        height, width = draw.choice([1, 3, 4, 8, 14]), draw.choice([1, 4, 7, 14])
        channels, out = draw.choice([1, 3, 8, 16, 64]), draw.choice([1, 8, 16, 32, 100])
        pad = ((k // 2, k // 2),) * 2
        problem = Conv2d(2, height, width, channels, out, (k, k), (step, step), pad)
        assert isinstance(
            choose(problem, executor="cuda", device=DEVICES[name]).schedule, GpuSchedule
        )


def test_the_host_chooses_for_itself() -> None:
    choice = choose(PROBLEM, executor="host", device=HOST)
    assert isinstance(choice.schedule, HostSchedule)
    assert choice.prediction.seconds > PROBLEM.flops / (HOST.threads * HOST.fma_flops_hz)


def test_without_a_device_the_setting_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPIPE_TARGET", "a100")
    assert choose(PROBLEM, executor="cuda") == choose(PROBLEM, executor="cuda", device=A100)


def test_without_any_device_the_error_says_how_to_name_one() -> None:
    with pytest.raises(TargetError, match="JAXPIPE_TARGET"):
        choose(PROBLEM, executor="cuda")


def test_records_of_the_caller_come_first() -> None:
    mine = GpuSchedule(smem_stages=3)
    with tuned.using(table(record(PROBLEM))):
        choice = choose(PROBLEM, executor="cuda", device=A100, records=table(record(PROBLEM, mine)))
    assert (choice.schedule, choice.source) == (mine, "tuned")


def test_xla_wins_where_the_near_record_measured_it_faster() -> None:
    with tuned.using(table(record(NEAR, xla=(5e-6,) * 3))):
        choice = choose(PROBLEM, executor="cuda", device=A100)
    assert (choice.source, choice.xla_wins) == ("nearest", True)


# ------------------------------------------------------------------ policies on a miss
def searched(xla: tuple[float, ...] = ()) -> choosing.Tuner:
    def tune(problem: Problem, executor: tuned.Executor, target: object) -> Record:
        assert (executor, target) == ("cuda", A100)
        return record(problem, xla=xla)

    return tune


@pytest.mark.parametrize("xla", [(), (5e-6,) * 3])
def test_the_tuner_answers_a_miss_when_told_so(
    monkeypatch: pytest.MonkeyPatch, xla: tuple[float, ...]
) -> None:
    monkeypatch.setenv("JAXPIPE_ON_MISS", "tune")
    with tuned.using(table(record(NEAR, GpuSchedule()))):
        choice = choose(PROBLEM, executor="cuda", device=A100, tune=searched(xla=xla))
    assert (choice.schedule, choice.source, choice.xla_wins) == (TUNED, "tuned", bool(xla))
    assert "tuned now" in choice.reason


def test_a_record_or_a_given_schedule_needs_no_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Record:
        raise AssertionError("searched")

    monkeypatch.setenv("JAXPIPE_ON_MISS", "tune")
    choose(PROBLEM, executor="cuda", device=A100, tune=never, records=table(record(PROBLEM)))
    choose(PROBLEM, executor="cuda", device=A100, tune=never, explicit=TUNED)


def test_without_a_tuner_at_hand_the_model_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPIPE_ON_MISS", "tune")
    assert choose(PROBLEM, executor="cuda", device=A100).source == "model"


@pytest.mark.parametrize(
    "rows", [[], [record(NEAR)], [record(PROBLEM, GpuSchedule(block_k=128, smem_stages=8))]]
)
def test_an_untuned_problem_can_be_an_error(
    monkeypatch: pytest.MonkeyPatch, rows: list[Record]
) -> None:
    monkeypatch.setenv("JAXPIPE_ON_MISS", "error")
    miss = r"no tuned record for matmul 512x768x768 .* on a100 by cuda.* user \(0 records\)"
    with pytest.raises(TuningError, match=miss), tuned.using(table(*rows)):
        choose(PROBLEM, executor="cuda", device=A100)
    with tuned.using(table(record(PROBLEM))):
        assert choose(PROBLEM, executor="cuda", device=A100).source == "tuned"


def test_an_unknown_policy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPIPE_ON_MISS", "guess")
    with pytest.raises(SettingError, match="JAXPIPE_ON_MISS"):
        choose(PROBLEM, executor="cuda", device=A100)


def test_choosing_again_takes_less_than_two_milliseconds() -> None:
    choose(PROBLEM, executor="cuda", device=A100)
    start = time.process_time()
    for _ in range(20):
        choose(PROBLEM, executor="cuda", device=A100)
    assert (time.process_time() - start) / 20 < 2e-3
