"""A recorded space as a device: measurements are looked up, so tuners run anywhere in milliseconds.

In: candidates with their true seconds (NaN: this one fails) and relative spread. Out: noisy
measurements as a device would give them, how good a choice was, and the course of a whole study
under any Optuna sampler.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from jaxpipe.errors import TuningError
from jaxpipe.tune.candidates import Candidates, Floats


@dataclass(frozen=True, eq=False)
class Replay:
    """One recorded space: `seconds` (N,) true times or NaN, `spread` (N,) relative deviation."""

    name: str
    candidates: Candidates
    seconds: Floats
    spread: Floats

    def __post_init__(self) -> None:
        if not len(self.seconds) == len(self.spread) == len(self.candidates):
            raise TuningError(
                f"{self.name}: {len(self.candidates)} candidates, {len(self.seconds)} times, "
                f"{len(self.spread)} spreads: they must be as many"
            )
        if not np.any(self.seconds > 0):
            raise TuningError(f"{self.name}: no candidate has a time")

    @property
    def best_s(self) -> float:
        """The time of the fastest candidate."""
        return float(np.nanmin(self.seconds))

    def measure(self, row: int, rng: np.random.Generator, runs: int = 3) -> tuple[float, ...]:
        """`runs` samples in seconds of the candidate in `row`; () when it fails."""
        if not np.isfinite(self.seconds[row]):
            return ()
        noise = np.exp(self.spread[row] * rng.standard_normal(runs))
        return tuple(float(self.seconds[row] * factor) for factor in noise)

    def efficiency(self, row: int) -> float:
        """best time / true time of `row`: 1.0 is the exhaustive optimum, 0.0 a failure."""
        seconds = float(self.seconds[row])
        return self.best_s / seconds if np.isfinite(seconds) else 0.0


def simulate(replay: Replay, sampler: BaseSampler, trials: int, seed: int) -> Floats:
    """(trials,) efficiency of the row that a tuner would return after each trial.

    A failed trial counts as one; the choice is by measured medians, the efficiency by true times.
    When the list ends early the rest repeats the last. seed: of the noise, not of the sampler.
    """
    rng = np.random.default_rng([seed, 7])
    study = optuna.create_study(sampler=sampler)
    course = np.zeros(trials)
    best_s, efficiency = float("inf"), 0.0
    for number in range(trials):
        if number < len(replay.candidates):
            trial = study.ask(replay.candidates.distributions())
            row = replay.candidates.row(trial.params)
            assert row is not None, f"{replay.name}: {trial.params} is no candidate"
            samples = replay.measure(row, rng)
            if not samples:
                study.tell(trial, state=TrialState.FAIL)
            else:
                measured_s = statistics.median(samples)
                study.tell(trial, measured_s)
                if measured_s < best_s:
                    best_s, efficiency = measured_s, replay.efficiency(row)
        course[number] = efficiency
    return course
