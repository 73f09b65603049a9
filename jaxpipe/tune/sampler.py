"""PriorSampler: starts from the model, learns from measurements, and is held by neither.

In: a finite list with predicted log latencies, a study. Out: the next row. The rules, and the case
that each is there for (measured on spaces that the rules were not made on: tuning/README.md):

1. The first picks are the model's best, rows spread over the model's best 2 %, and one uniform
   row: a model is right in the bulk and blind in one corner, and its first ten are often one row
   ten times over.
2. Until `hand_off` trials the model's prediction is the mean of the Gaussian process: with a
   handful of values nothing else orders the list.
3. Then proposals come in turn from the process with that mean and without any: evidence keeps
   trusting a prior that fits the bulk and hides the optimum, so evidence alone must not decide.
4. Every fourth of them is another view's: a neighbour of the incumbent (one knob changed), which
   finishes what the process is too smooth to see, or what trees propose, which take cliffs.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study

from jaxpipe.errors import TuningError
from jaxpipe.tune import trees
from jaxpipe.tune.candidates import Candidates, Floats
from jaxpipe.tune.listed import History, ListSampler, Scale
from jaxpipe.tune.surrogate import euclidean, expected_improvement

View = Literal["model", "plain", "trees", "neighbour"]
TURNS: tuple[View, ...] = (
    "plain", "model", "plain", "neighbour", "plain", "model", "plain", "trees",
)  # fmt: skip
TOP_SHARE, TOP_LEAST = 0.02, 8
SCORED = 16_000
"""Larger lists are scored in part: the model's best half of these, neighbours, random rows."""


class PriorSampler(ListSampler):
    """A warm-started sampler over `candidates` (their `log_prior` is the warm start).

    use_prior: False ignores the prediction (a plain Gaussian process over the list). n_startup:
    trials before any surrogate. hand_off: trials from which the prior has only every other say.
    promise: stop once the best expected gain stayed below this share for five trials running
    (0 never stops). seed: same seed, same study, same proposal, in any process.
    """

    def __init__(
        self,
        candidates: Candidates,
        *,
        seed: int = 0,
        use_prior: bool = True,
        n_startup: int = 4,
        hand_off: int = 10,
        promise: float = 0.0,
        scale: Scale = "log",
    ) -> None:
        super().__init__(candidates, seed=seed, scale=scale)
        if n_startup < 1 or hand_off < 0 or promise < 0:
            raise TuningError(
                f"n_startup={n_startup}, hand_off={hand_off}, promise={promise}: use at least 1, "
                "0 and 0"
            )
        self._log_prior = candidates.log_prior if use_prior else None
        self._n_startup, self._hand_off, self._promise = n_startup, hand_off, promise

    def pick(self, history: History, allowed: NDArray[np.int64], rng: np.random.Generator) -> int:
        """The most promising allowed row, by the view whose turn it is."""
        tried = len(history.tried)
        if tried < self._n_startup or not len(history.rows):
            return self._first_pick(history, allowed, rng)
        view = self._view(tried)
        asked = self._neighbours(history, allowed) if view == "neighbour" else allowed
        asked = self._shortlist(history, asked, rng)
        gain = self._gain(view, history, asked, rng)
        return int(asked[np.argmax(gain * self._survival(history, asked, rng))])

    def _view(self, tried: int) -> View:
        if self._log_prior is not None and tried < self._hand_off:
            return "model"
        view = TURNS[tried % len(TURNS)]
        return "plain" if view == "model" and self._log_prior is None else view

    # ------------------------------------------------------------------ before any surrogate
    def _first_pick(
        self, history: History, allowed: NDArray[np.int64], rng: np.random.Generator
    ) -> int:
        """The model's best; then spread over its best rows; the last one uniform."""
        tried = history.tried
        is_last = len(tried) == self._n_startup - 1 and self._n_startup > 1
        if self._log_prior is None or is_last:
            return int(rng.choice(allowed))
        prior = self._log_prior[allowed]
        if not len(tried):
            return int(rng.choice(allowed[prior <= prior.min() + 1e-9]))
        count = min(len(allowed), max(TOP_LEAST, round(TOP_SHARE * len(self.candidates))))
        top = allowed[np.argsort(prior, kind="stable")[:count]]
        apart = euclidean(self.candidates, tried, top).min(axis=0)
        return int(top[np.argmax(apart * self._survival(history, top, rng))])

    # ------------------------------------------------------------------ surrogates
    def _shortlist(
        self, history: History, allowed: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """All of `allowed`, or SCORED rows of it where a surrogate of all would take long."""
        if len(allowed) <= SCORED:
            return allowed
        parts = [rng.choice(allowed, SCORED // 4, replace=False)]
        if self._log_prior is not None:
            best = np.argpartition(self._log_prior[allowed], SCORED // 2)[: SCORED // 2]
            parts.append(allowed[best])
        for row in history.rows[np.argsort(history.values, kind="stable")[:4]]:
            parts.append(allowed[self._steps_from(row, allowed) <= 2][: SCORED // 8])
        return np.unique(np.concatenate(parts))

    def _neighbours(self, history: History, allowed: NDArray[np.int64]) -> NDArray[np.int64]:
        """Allowed rows that differ from the best one in a single knob; all where none does."""
        best = int(history.rows[np.argmin(history.values)])
        near = allowed[self._steps_from(best, allowed) == 1]
        return near if len(near) else allowed

    def _steps_from(self, row: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        codes = self.candidates.codes
        return np.asarray((codes[rows] != codes[row]).sum(axis=1))

    def _gain(
        self, view: View, history: History, asked: NDArray[np.int64], rng: np.random.Generator
    ) -> Floats:
        """Expected improvement of each asked row, in log seconds, as `view` sees it."""
        prior = self._log_prior if view == "model" else None
        rows = np.concatenate([history.rows, history.pending])
        values = np.concatenate([history.values, _lies(history, prior)])
        if view != "trees":
            return expected_improvement(self.candidates, rows, values, asked, prior)
        guesses = trees.predict(self.candidates.codes, rows, values, asked, rng)
        gain = np.maximum(values.min() - guesses, 0.0).mean(axis=0)
        return np.asarray(gain + 1e-9 * rng.random(len(asked)))

    def _survival(
        self, history: History, asked: NDArray[np.int64], rng: np.random.Generator
    ) -> Floats:
        """How likely each asked row is to work, by trees: what fails lies beyond a limit.

        Failures count from the second on; the first may be an accident.
        """
        if len(history.failed) < 2:
            return np.ones(len(asked))
        rows = np.concatenate([history.rows, history.failed])
        works = np.repeat([1.0, 0.0], [len(history.rows), len(history.failed)])
        share = trees.predict(self.candidates.codes, rows, works, asked, rng).mean(axis=0)
        return np.asarray(np.maximum(share, 1e-3) ** 2)

    # ------------------------------------------------------------------ when to stop
    def is_done(self, study: Study) -> bool:
        """True when every candidate was tried, or nothing promising is left (see `promise`)."""
        if self.is_exhausted(study):
            return True
        history = self.history(study)
        measured = len(history.rows)
        if not self._promise or measured < max(self._hand_off, self._n_startup) + 5:
            return False
        return all(self._best_gain(history.first(measured - i)) < self._promise for i in range(5))

    def _best_gain(self, history: History) -> float:
        """The larger of the best gains that the two processes see."""
        untried = np.setdiff1d(np.arange(len(self.candidates)), history.tried)
        rng = np.random.default_rng([self.seed, len(history.rows)])
        asked = self._shortlist(history, untried, rng)
        views: tuple[View, ...] = ("plain",) if self._log_prior is None else ("plain", "model")
        return max(float(self._gain(view, history, asked, rng).max()) for view in views)


def _lies(history: History, log_prior: Floats | None) -> Floats:
    """What pending rows are taken to be worth: the level so far, moved as the prior says."""
    if log_prior is None:
        return np.full(len(history.pending), float(np.median(history.values)))
    offset = float(np.median(history.values - log_prior[history.rows]))
    return np.asarray(log_prior[history.pending] + offset)
