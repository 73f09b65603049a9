"""The candidates of a problem on a device: legal schedules with what the models say of them.

In: a problem, a device. Out: Candidates (knobs, prior, features, other models' orders) and the way
between rows and schedules. It must not know Optuna studies or measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from jaxpipe.dtypes import DTYPES
from jaxpipe.errors import ScheduleError, TuningError
from jaxpipe.model import bottleneck, host_rule, roller, seconds
from jaxpipe.model.table import table_of
from jaxpipe.problem import Problem
from jaxpipe.residual import Residual
from jaxpipe.schedule import GpuSchedule, Schedule
from jaxpipe.space import Space, gpu_space, host_space
from jaxpipe.target import Device, HostDevice
from jaxpipe.tune.candidates import Candidates, Floats

ROLLER_PICKS = 50


@dataclass(frozen=True, eq=False)
class ProblemSpace:
    """The finite list of one problem on one device. fixed: fields that are the same in all rows.

    untuned: what would serve without a record where it may be missing from the list (hosts: the
    rule's), else None.
    """

    problem: Problem
    target: Device | HostDevice
    space: Space[Any]
    candidates: Candidates
    predicted_s: Floats
    fixed: dict[str, Any]
    untuned: Schedule | None = None

    def __len__(self) -> int:
        return len(self.candidates)

    def schedule(self, row: int) -> Schedule:
        """The schedule in `row`."""
        found: Schedule = self.space.schedule(row)
        return found

    def prediction_s(self, schedule: Schedule) -> float:
        """The model's seconds of `schedule`, of the list or not."""
        row = self.row(schedule)
        if row is not None:
            return float(self.predicted_s[row])
        return float(seconds.predict_many(self.problem, table_of([schedule]), self.target)[0])

    def row(self, schedule: Schedule) -> int | None:
        """The row of `schedule`, or None when the list has it not."""
        fields = schedule.to_json()
        if any(fields.get(name) != value for name, value in self.fixed.items()):
            return None
        if not set(self.candidates.names) <= fields.keys():
            return None
        return self.candidates.row({name: fields[name] for name in self.candidates.names})


def problem_space(
    problem: Problem,
    target: Device | HostDevice,
    residual: Residual | None = None,
    space: Space[Any] | None = None,
) -> ProblemSpace:
    """Every schedule that may be tried, scored by the analytical model (corrected by `residual`).

    space: the schedules; None takes all that differ for `problem`. Raises ScheduleError or
    TuningError when there is nothing to choose from.
    """
    if problem.is_empty or problem.k == 0:
        raise TuningError(f"{problem} computes nothing: there is no schedule to tune")
    if space is None and isinstance(target, HostDevice):
        space = host_space(problem, target)
    elif space is None:
        space = gpu_space(problem, cast(Device, target))
    predicted = seconds.predict_many(problem, space.table, target)
    finite = np.isfinite(predicted) & (predicted > 0)
    if not finite.all():
        space, predicted = Space(problem, space.table.take(finite)), predicted[finite]
    if not len(space):
        raise ScheduleError(f"the model admits no schedule of {problem} on {target.name}")
    log_prior = np.log(predicted)
    if residual is not None:
        log_prior = log_prior + residual.correction(problem, space.table, target)
    knobs, fixed = _knobs(space)
    orders = _orders(problem, space, target, knobs, predicted)
    candidates = Candidates(knobs, log_prior, _derived(problem, space), orders)
    untuned = host_rule.rule(problem, target) if isinstance(target, HostDevice) else None
    return ProblemSpace(problem, target, space, candidates, predicted, fixed, untuned)


def _knobs(space: Space[Any]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Columns that vary, and the values of those that do not; a list of one keeps its first."""
    columns = {name: np.asarray(column) for name, column in space.columns.items()}
    varying = {n: c for n, c in columns.items() if (c != c[0]).any()} or dict(
        [*columns.items()][:1]
    )
    return varying, {n: c[0].item() for n, c in columns.items() if n not in varying}


def _derived(problem: Problem, space: Space[Any]) -> Floats | None:
    """What knobs mean together: shared bytes, threads, waves and tails of a GPU schedule."""
    if space.table.kind is not GpuSchedule:
        return None
    t = space.columns
    size = DTYPES[problem.dtype].size_bytes
    tiles_m, tiles_n = problem.m / t["block_m"], problem.n / t["block_n"]
    blocks = np.ceil(tiles_m) * np.ceil(tiles_n) * problem.batch_size * t["split_k"]
    shared = t["smem_stages"] * (t["block_m"] + t["block_n"]) * t["block_k"] * size
    padding = (np.ceil(tiles_m) / tiles_m) * (np.ceil(tiles_n) / tiles_n)
    return np.asarray(np.stack([np.log2(shared), np.log2(blocks), np.log2(padding)], axis=1))


def _orders(
    problem: Problem,
    space: Space[Any],
    target: Device | HostDevice,
    knobs: dict[str, NDArray[Any]],
    predicted: Floats,
) -> dict[str, Floats]:
    """Rankings of the other models; rows that ROLLER does not construct follow in model order."""
    times = bottleneck.predict_many(problem, space.table, target)
    return {
        "roller": _roller(problem, space, target, knobs, predicted),
        "bottleneck": np.log(np.where(np.isfinite(times), times, 1e6)),
    }


def _roller(
    problem: Problem,
    space: Space[Any],
    target: Device | HostDevice,
    knobs: dict[str, NDArray[Any]],
    predicted: Floats,
) -> Floats:
    rank = ROLLER_PICKS + np.argsort(np.argsort(predicted, kind="stable"))
    rank = rank.astype(np.float64)
    for place, schedule in enumerate(roller.construct(problem, target, ROLLER_PICKS)):
        same = np.ones(len(space), dtype=np.bool_)
        for name, column in knobs.items():
            same &= column == getattr(schedule, name)
        rank[same] = np.minimum(rank[same], place)
    return np.asarray(rank)
