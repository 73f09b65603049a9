"""Samplers over a finite list: what every one of them shares.

A subclass says which row comes next, given what is known (`pick`); this file makes it an Optuna
sampler for anybody's study: the joint choice of all knobs from the first trial on, nothing outside
the list, nothing twice, pending and enqueued trials respected. Samplers are stateless: they read
the study, so they resume, run in several processes and repeat themselves from their seed.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from jaxpipe.errors import TuningError
from jaxpipe.tune.candidates import Candidates, Floats

Scale = Literal["log", "linear"]


@dataclass(frozen=True, slots=True)
class History:
    """What a study knows, in rows of the list and in the order of its trials.

    rows, values: measured ones with the value to be minimised (natural log of seconds). failed:
    rows without a value. pending: rows that run or wait. before: trials before the one that asks.
    """

    rows: NDArray[np.int64]
    values: Floats
    failed: NDArray[np.int64]
    pending: NDArray[np.int64]
    before: int

    @property
    def tried(self) -> NDArray[np.int64]:
        """Every row that must not be proposed again."""
        return np.concatenate([self.rows, self.failed, self.pending])

    def first(self, count: int) -> History:
        """What was known after the first `count` measured or failed trials, none pending."""
        kept = min(count, len(self.rows))
        empty = np.zeros(0, dtype=np.int64)
        return History(self.rows[:kept], self.values[:kept], self.failed, empty, kept)


class ListSampler(BaseSampler, abc.ABC):  # type: ignore[misc]
    """An Optuna sampler that chooses whole rows of `candidates`.

    Use `study.ask(sampler.distributions())`, or suggest each knob as categorical with the choices
    of `candidates`. scale: "log" when the study's values are positive (seconds), "linear" when
    they are logarithms already. Raises TuningError when every candidate was tried, when a study
    has several objectives, and for a knob that is not the list's.
    """

    def __init__(self, candidates: Candidates, *, seed: int = 0, scale: Scale = "log") -> None:
        self.candidates = candidates
        self.seed = seed
        self._scale: Scale = scale

    @abc.abstractmethod
    def pick(self, history: History, allowed: NDArray[np.int64], rng: np.random.Generator) -> int:
        """The row to try next, one of `allowed` (never empty)."""

    # ------------------------------------------------------------------ Optuna's side
    def distributions(self) -> dict[str, BaseDistribution]:
        """The knobs as Optuna distributions, for `study.ask(fixed_distributions=...)`."""
        return self.candidates.distributions()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All knobs, from the first trial on: they are only ever chosen together."""
        return self.distributions()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of the next row; those that an enqueued trial fixes are kept."""
        fixed = fixed_params(trial)
        if set(self.candidates.names) <= fixed.keys():
            return {}
        history = self.history(study, before=trial.number)
        rows = self._allowed(study, trial, history, fixed)
        rng = np.random.default_rng([self.seed, trial.number])
        return self.candidates.params(self.pick(history, rows, rng))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Never: a knob chosen alone could complete no legal row."""
        raise TuningError(
            f"parameter {param_name!r} with {param_distribution} is not a knob of this list: ask "
            f"with sampler.distributions(), whose knobs are {', '.join(self.candidates.names)}"
        )

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Inside `study.optimize`, end the study when it is done."""
        if self.is_done(study):
            _stop(study)

    # ------------------------------------------------------------------ the study, read
    def history(self, study: Study, before: int | None = None) -> History:
        """What `study` knows, in rows: of each row its latest trial; others are passed over.

        before: the number of the trial that asks, which is no knowledge itself.
        """
        sign = self._sign(study)
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != before]
        latest: dict[int, FrozenTrial] = {}
        for trial in trials:
            row = self.candidates.row(trial.params or fixed_params(trial))
            if row is not None:
                latest[row] = trial
        measured, failed, pending = [], [], []
        for row, trial in sorted(latest.items(), key=lambda pair: pair[1].number):
            value = self._value(trial, sign)
            if trial.state in (TrialState.RUNNING, TrialState.WAITING):
                pending.append(row)
            elif value is None:
                failed.append(row)
            else:
                measured.append((row, value))
        rows, values = _rows(r for r, _ in measured), np.array([v for _, v in measured])
        return History(rows, values, _rows(failed), _rows(pending), len(trials))

    def is_exhausted(self, study: Study) -> bool:
        """True when no candidate is left to propose."""
        return len(np.unique(self.history(study).tried)) == len(self.candidates)

    def is_done(self, study: Study) -> bool:
        """True when proposing more has no use; a subclass may give up before the list ends."""
        return self.is_exhausted(study)

    def _sign(self, study: Study) -> float:
        if len(study.directions) != 1:
            raise TuningError(
                f"study has {len(study.directions)} objectives: this sampler minimises one"
            )
        return -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0

    def _value(self, trial: FrozenTrial, sign: float) -> float | None:
        """The value to be minimised; None for a failure. A pruned trial counts as last reported."""
        value = trial.value if trial.state == TrialState.COMPLETE else None
        if trial.state == TrialState.PRUNED and trial.intermediate_values:
            value = trial.intermediate_values[max(trial.intermediate_values)]
        if value is None or not math.isfinite(value):
            return None
        if self._scale == "linear":
            return float(sign * value)
        if value <= 0:
            raise TuningError(
                f"trial {trial.number} has value {value}: seconds (or rates) are positive; use "
                "scale='linear' for values that may be negative, such as logarithms"
            )
        return sign * math.log(value)

    def _allowed(
        self, study: Study, trial: FrozenTrial, history: History, fixed: Mapping[str, Any]
    ) -> NDArray[np.int64]:
        """Rows not tried yet that agree with `fixed`; with all rows when none of those is left."""
        untried = np.ones(len(self.candidates), dtype=np.bool_)
        untried[history.tried] = False
        if not untried.any():
            study.tell(trial.number, state=TrialState.FAIL)
            raise TuningError(
                f"all {len(self.candidates)} candidates were tried or are running: the study is "
                "complete, stop asking (sampler.is_exhausted says so)"
            )
        agreeing = untried & self.candidates.matching(fixed) if fixed else untried
        return np.flatnonzero(agreeing if agreeing.any() else untried)


def fixed_params(trial: FrozenTrial) -> dict[str, Any]:
    """What `study.enqueue_trial` fixed for this trial, {} for others."""
    return dict(trial.system_attrs.get("fixed_params", {}))


def _rows(rows: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(rows), dtype=np.int64)


def _stop(study: Study) -> None:
    """End `study.optimize`; with ask and tell there is nothing to end."""
    try:
        study.stop()
    except RuntimeError:
        return
