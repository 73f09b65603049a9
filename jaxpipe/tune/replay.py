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
from jaxpipe.tune.finals import FINAL_BLOCKS, FINALISTS


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

    A failed trial counts as one. As in a live study the FINALISTS best by their short measurement
    are measured again at length, and the best of those is returned; efficiency is by true times.
    When the list ends early the rest repeats the last. seed: of the noise, not of the sampler.
    """
    rng = np.random.default_rng([seed, 7])
    study = optuna.create_study(sampler=sampler)
    course = np.zeros(trials)
    found: list[tuple[float, int]] = []
    finals = _Finals(replay, seed)
    efficiency = 0.0
    for number in range(trials):
        if number < len(replay.candidates):
            trial = study.ask(replay.candidates.distributions())
            row = replay.candidates.row(trial.params)
            assert row is not None, f"{replay.name}: {trial.params} is no candidate"
            samples = replay.measure(row, rng)
            if not samples:
                study.tell(trial, state=TrialState.FAIL)
            else:
                found.append((statistics.median(samples), row))
                study.tell(trial, found[-1][0])
                efficiency = replay.efficiency(finals.winner(found))
        course[number] = efficiency
    return course


class _Finals:
    """Long measurements of finalists; each row's is taken once a study, from a seed of its own."""

    def __init__(self, replay: Replay, seed: int) -> None:
        self._replay, self._seed = replay, seed
        self._known: dict[int, float] = {}

    def winner(self, found: list[tuple[float, int]]) -> int:
        """The row of the best long measurement among the FINALISTS best short ones."""
        return min((row for _, row in sorted(found)[:FINALISTS]), key=self._long_s)

    def _long_s(self, row: int) -> float:
        if row not in self._known:
            rng = np.random.default_rng([self._seed, 13, row])
            self._known[row] = statistics.median(self._replay.measure(row, rng, FINAL_BLOCKS))
        return self._known[row]
