"""Which schedule a problem gets, and why: explicit, then tuned, then nearest, then the model.

In: a problem, an executor, a device, records. Out: a Choice. Takes milliseconds: it runs at trace
time. It never compiles, and measures only with the tuner that a caller brings, under
JAXPIPE_ON_MISS=tune; that XLA is faster is only said where a record shows it.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from jaxpipe import legality, settings, tuned
from jaxpipe.errors import ScheduleError, TargetError, TuningError
from jaxpipe.model import alcop, host_rule, roller
from jaxpipe.model import host as host_model
from jaxpipe.model.calibration import calibrated
from jaxpipe.problem import Problem
from jaxpipe.records import Prediction, Record
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule
from jaxpipe.target import ARCHES, Device, HostDevice, host_device
from jaxpipe.target import device as device_named

Source = Literal["explicit", "tuned", "nearest", "model"]
Tuner = Callable[[Problem, tuned.Executor, Device | HostDevice], Record]
"""Measures schedules of a problem now, files the winner's record and gives it."""

NEAREST_OCTAVES = 1.0
"""A record of another shape serves without being measured again up to this distance
(tuned.octaves_between: summed |log2| ratios of batch, m, n and k), ..."""
NEAREST_SLACK = 1.25
"""... and only while the model does not call it slower than its own best by more than this."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The schedule of a problem: where it is from, why in words, what the model says of it.

    xla_wins: the record that it is from measured XLA, interleaved, as faster than the schedule.
    implementation=None then takes XLA; a named executor still serves.
    """

    schedule: Schedule
    source: Source
    reason: str
    prediction: Prediction
    xla_wins: bool = False


def choose(
    problem: Problem,
    *,
    executor: tuned.Executor,
    device: Device | HostDevice | None = None,
    explicit: Schedule | None = None,
    records: tuned.Table | None = None,
    tune: Tuner | None = None,
) -> Choice:
    """The schedule with which `executor` computes `problem` on `device`.

    device None: the host for "host", JAXPIPE_TARGET for "cuda". records come before all other
    tables. A problem without a record of its own is a miss; JAXPIPE_ON_MISS says what it gets:
    the nearest record within NEAREST_OCTAVES or the model's best ("model"), the winner of a short
    search with `tune` now ("tune"; "model" for callers who bring none), or TuningError ("error").
    A dynamic problem is served by the records of its nominal sizes that are legal for it, and is
    never searched for.
    Raises ScheduleError when the explicit schedule is illegal or nothing fits, TargetError without
    a device.
    """
    target = calibrated(device) if device is not None else _default(executor)
    if explicit is not None:
        _require(explicit, problem, target)
        return Choice(
            explicit, "explicit", "given by the caller", _predict(problem, explicit, target)
        )
    hits = [
        hit
        for hit in tuned.lookup(problem.nominal, executor, target.name, records)
        if is_legal(hit.record.schedule, problem, target)
    ]
    if hits and hits[0].is_exact:
        return _measured(hits[0], problem, target)
    policy = settings.get("JAXPIPE_ON_MISS")
    if policy == "error":
        raise TuningError(tuned.describe_miss(problem, executor, target.name, records))
    if policy == "tune" and tune is not None and not problem.dynamic:
        now = tuned.Hit(tune(problem, executor, target), 0.0, "tuned now")
        return _measured(now, problem, target)
    return _nearest_or_model(problem, target, hits)


def _measured(hit: tuned.Hit, problem: Problem, target: Device | HostDevice) -> Choice:
    record = hit.record
    ours, xla = record.measurement.median_s, baseline_median_s(record)
    reason = f"measured {ours * 1e6:.3g} us ({hit.layer} record)"
    if xla is not None:
        reason += f", XLA {xla * 1e6:.3g} us beside it"
    return Choice(
        record.schedule, "tuned", reason, _predict(problem, record.schedule, target),
        xla_wins=xla_wins(record),
    )  # fmt: skip


def xla_wins(record: Record) -> bool:
    """True where XLA was measured beside the schedule and was faster."""
    xla = baseline_median_s(record)
    return xla is not None and xla < record.measurement.median_s


def baseline_median_s(record: Record) -> float | None:
    """Median of XLA's interleaved samples in seconds, None where it was not measured."""
    samples = record.measurement.baseline_s
    return statistics.median(samples) if samples else None


def _nearest_or_model(
    problem: Problem, target: Device | HostDevice, hits: list[tuned.Hit]
) -> Choice:
    best, prediction = constructed(problem, target)
    for hit in hits:
        if hit.octaves > NEAREST_OCTAVES:
            break
        said = _predict(problem, hit.record.schedule, target)
        if said.seconds <= NEAREST_SLACK * prediction.seconds:
            reason = f"tuned for {hit.record.problem}, {hit.octaves:.2f} octaves away ({hit.layer})"
            return Choice(hit.record.schedule, "nearest", reason, said, xla_wins(hit.record))
    reason = f"no record within {NEAREST_OCTAVES:g} octave: best of the model's construction"
    return Choice(best, "model", reason, prediction)


@functools.lru_cache(maxsize=4096)
def constructed(problem: Problem, target: Device | HostDevice) -> tuple[Schedule, Prediction]:
    """The model's own choice and its prediction; ScheduleError when no schedule fits.

    On a host the measured rule (model/host_rule.py) chooses and the model predicts.
    """
    if isinstance(target, HostDevice):
        ruled = host_rule.rule(problem, target)
        return ruled, _predict(problem, ruled, target)
    if reasons := legality.check_problem(problem):
        raise ScheduleError(f"{problem} on {target.name}: " + "; ".join(reasons))
    found = roller.construct(problem, target, 1)
    if not found:
        raise ScheduleError(
            f"no schedule of {problem} fits {target.name}: use implementation='xla'"
        )
    return found[0], _predict(problem, found[0], target)


def _predict(problem: Problem, schedule: Schedule, target: Device | HostDevice) -> Prediction:
    if isinstance(target, HostDevice):
        return host_model.predict(problem, cast(HostSchedule, schedule), target)
    return alcop.predict(problem, cast(GpuSchedule, schedule), target)


def is_legal(schedule: Schedule, problem: Problem, target: Device | HostDevice) -> bool:
    """True when `target` can run `problem` by `schedule`; hosts take every HostSchedule."""
    if isinstance(target, HostDevice):
        return isinstance(schedule, HostSchedule)
    fits = isinstance(schedule, GpuSchedule)
    return fits and not legality.check(cast(GpuSchedule, schedule), problem, ARCHES[target.arch])


def _require(schedule: Schedule, problem: Problem, target: Device | HostDevice) -> None:
    wanted = HostSchedule if isinstance(target, HostDevice) else GpuSchedule
    if not isinstance(schedule, wanted):
        raise ScheduleError(
            f"{target.name} takes a {wanted.__name__}, got a {type(schedule).__name__}"
        )
    if isinstance(schedule, GpuSchedule) and isinstance(target, Device):
        legality.require(schedule, problem, ARCHES[target.arch])


def _default(executor: tuned.Executor) -> Device | HostDevice:
    if executor == "host":
        return _this_host()
    named = settings.get("JAXPIPE_TARGET")
    if not named:
        raise TargetError(
            "no GPU was named for executor 'cuda': pass device=, or set JAXPIPE_TARGET to one of "
            "the names that `python -m jaxpipe doctor` lists"
        )
    return calibrated(device_named(str(named)))


def _this_host() -> HostDevice:
    return calibrated(_detected_host())


@functools.cache
def _detected_host() -> HostDevice:
    return host_device()
