"""Between measurements and a study's trials: values, attributes, records.

In: measurements, trials. Out: the value that a sampler learns from, what the dashboard shows, and
ledger records. A value is seconds, freed from the machine's drift where XLA was measured beside:
the study's first XLA time over the candidate's speedup.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterable, Mapping
from typing import Any

from optuna.trial import FrozenTrial, TrialState, create_trial

from jaxpipe.records import Measurement, Record
from jaxpipe.schedule import Schedule
from jaxpipe.tune.job import Executor, Outcome
from jaxpipe.tune.problem_space import ProblemSpace
from jaxpipe.version import VERSION

BASELINE = "baseline_s"
"""The study's attribute that holds XLA's time at its start."""


def current_versions() -> dict[str, str]:
    """What must be equal for two measurements to be of the same thing."""
    return {
        "jaxpipe": VERSION,
        "jax": importlib.metadata.version("jax"),
        "jaxlib": importlib.metadata.version("jaxlib"),
    }


def is_current(record: Record) -> bool:
    """True when `record` was measured with the versions of this process."""
    return current_versions().items() <= dict(record.versions).items()


def value_s(measured: Measurement, baseline_s: float) -> float:
    """The seconds that a sampler is told; infinity for what has no time."""
    if measured.status not in ("ok", "pruned") or not measured.samples_s:
        return math.inf
    if measured.speedup and baseline_s:
        return baseline_s / measured.speedup
    return measured.median_s


def state_of(measured: Measurement) -> TrialState:
    """COMPLETE for a time, PRUNED for a clear loser, FAIL with a reason for the rest."""
    states = {"ok": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    has_time = bool(measured.samples_s)
    return states.get(measured.status, TrialState.FAIL) if has_time else TrialState.FAIL


def attributes(record: Record) -> dict[str, Any]:
    """What optuna-dashboard shows of a trial."""
    m = record.measurement
    found: dict[str, Any] = {
        "status": m.status,
        "predicted_s": record.predicted_s,
        "samples_s": [float(f"{s:.5g}") for s in m.samples_s],
        "speedup": float(f"{m.speedup:.5g}"),
        "max_error": m.max_error,
        "foreign_load": m.foreign_load,
        "schedule": str(record.schedule),
        **dict(record.resources),
    }
    if m.reason:
        found["reason"] = m.reason[:1500]
    return found


def record_of(
    space: ProblemSpace, schedule: Schedule, executor: Executor, outcome: Outcome, index: int = 0
) -> Record:
    """The ledger record of one schedule of an outcome."""
    versions = current_versions() | dict(outcome.versions)
    if outcome.worker:
        versions["worker"] = outcome.worker
    return Record(
        space.problem.key,
        executor,
        space.target.name,
        schedule,
        outcome.measurements[index],
        space.prediction_s(schedule),
        outcome.resources,
        tuple(sorted(versions.items())),
    )


def trial_of(space: ProblemSpace, row: int, record: Record, baseline_s: float) -> FrozenTrial:
    """A finished trial that says what `record` says, for studies that have it not."""
    state = state_of(record.measurement)
    value = value_s(record.measurement, baseline_s)
    kinds: Mapping[TrialState, dict[str, Any]] = {
        TrialState.COMPLETE: {"value": value},
        TrialState.PRUNED: {"intermediate_values": {0: value}},
    }
    return create_trial(
        state=state,
        params=space.candidates.params(row),
        distributions=space.candidates.distributions(),
        user_attrs={**attributes(record), "from_ledger": True},
        **kinds.get(state, {}),
    )


def best_rows(done: Iterable[FrozenTrial], space: ProblemSpace, count: int) -> list[int]:
    """Rows of the `count` fastest of complete trials, fastest first, each once."""
    rows: list[int] = []
    for trial in sorted(done, key=lambda t: (t.value, t.number)):
        row = space.candidates.row(trial.params)
        if row is not None and row not in rows and math.isfinite(trial.value):
            rows.append(row)
    return rows[:count]
