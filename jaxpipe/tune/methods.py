"""The methods of ALCOP's table and the usual baselines, as samplers of one interface.

In: a finite list, a study. Out: the next row. METHODS names them all: what is compared in
tuning/compare_samplers.py and what `--sampler` of the scripts takes. The paper's names: grid,
random, analytical-only and bottleneck-only (rank order of a model), XGB, and XGB pre-trained on
the model's predictions (Model-Assisted XGB).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from jaxpipe.errors import TuningError
from jaxpipe.tune.candidates import Candidates, Floats
from jaxpipe.tune.listed import History, ListSampler, Scale, fixed_params
from jaxpipe.tune.sampler import PriorSampler

Rows = NDArray[np.int64]


class GridSampler(ListSampler):
    """Every row in the order of the list, as AutoTVM's grid search."""

    def pick(self, history: History, allowed: Rows, rng: np.random.Generator) -> int:
        """The first allowed row."""
        return int(allowed[0])


class RandomSampler(ListSampler):
    """Uniform over the rows that are left."""

    def pick(self, history: History, allowed: Rows, rng: np.random.Generator) -> int:
        """Any allowed row."""
        return int(rng.choice(allowed))


class RankSampler(ListSampler):
    """Rows by ascending `ranks` (N,), ties by position: a model's order, nothing learnt.

    Analytical-only, bottleneck-only and ROLLER's top-k are this with the ranks of each.
    """

    def __init__(
        self, candidates: Candidates, ranks: Floats, *, seed: int = 0, scale: Scale = "log"
    ) -> None:
        super().__init__(candidates, seed=seed, scale=scale)
        if len(ranks) != len(candidates):
            raise TuningError(f"{len(ranks)} ranks for {len(candidates)} candidates")
        self._ranks = np.asarray(ranks)

    def pick(self, history: History, allowed: Rows, rng: np.random.Generator) -> int:
        """The allowed row of the lowest rank."""
        return int(allowed[np.argmin(self._ranks[allowed])])


class XgbSampler(ListSampler):
    """Boosted trees on what was measured, as AutoTVM's tuner, one proposal at a time.

    pretrained: the trees start from a booster fitted to the list's predictions (ALCOP's
    Model-Assisted XGB); measured values then refine it. n_startup: random rows before the first
    fit, for the cold kind. One proposal in twenty is random (AutoTVM's epsilon).
    """

    EPSILON = 0.05
    PARAMS: Mapping[str, Any] = {
        "max_depth": 3,
        "eta": 0.3,
        "gamma": 1e-4,
        "lambda": 1.0,
        "nthread": 1,
    }

    def __init__(
        self,
        candidates: Candidates,
        *,
        pretrained: bool = False,
        n_startup: int = 5,
        seed: int = 0,
        scale: Scale = "log",
    ) -> None:
        super().__init__(candidates, seed=seed, scale=scale)
        self._xgb: Any = _optional("xgboost", "the XGB samplers", "xgboost-cpu")
        self._n_startup = n_startup
        self._base: Floats | None = self._pretrain() if pretrained else None

    def _pretrain(self) -> Floats:
        """A booster's own copy of the prediction: what "offline training" leaves it with."""
        prior = self.candidates.log_prior
        if prior is None:
            raise TuningError("Model-Assisted XGB needs predictions: these candidates have none")
        target = prior - prior.mean()
        table = self._xgb.DMatrix(self.candidates.features, label=target)
        booster = self._xgb.train({**self.PARAMS, "max_depth": 6, "seed": self.seed}, table, 100)
        return np.asarray(booster.predict(table), dtype=np.float64)

    def pick(self, history: History, allowed: Rows, rng: np.random.Generator) -> int:
        """The allowed row that the trees call fastest."""
        if self._base is None and len(history.tried) < self._n_startup:
            return int(rng.choice(allowed))
        if rng.random() < self.EPSILON:
            return int(rng.choice(allowed))
        return int(allowed[np.argmin(self._predict(history, allowed))])

    def _predict(self, history: History, allowed: Rows) -> Floats:
        base = np.zeros(len(self.candidates)) if self._base is None else self._base
        if len(history.rows) < 2:
            return base[allowed]
        values = history.values - history.values.mean()
        offset = base - base[history.rows].mean()
        known = self._xgb.DMatrix(
            self.candidates.features[history.rows], label=values, base_margin=offset[history.rows]
        )
        params = {**self.PARAMS, "base_score": 0.0, "seed": self.seed}
        booster = self._xgb.train(params, known, 60)
        asked = self._xgb.DMatrix(self.candidates.features[allowed], base_margin=offset[allowed])
        return np.asarray(booster.predict(asked), dtype=np.float64)


class OptunaSampler(ListSampler):
    """One of Optuna's own samplers, kept to the list: what it draws elsewhere is drawn again, and
    after DRAWS misses moved to the nearest row that is left.

    make: gives the inner sampler for a seed; a fresh one serves each proposal, so that nothing
    hangs on what happened before in this process.
    """

    DRAWS = 32

    def __init__(
        self,
        candidates: Candidates,
        make: Callable[[int], BaseSampler],
        *,
        seed: int = 0,
        scale: Scale = "log",
    ) -> None:
        super().__init__(candidates, seed=seed, scale=scale)
        self._make = make

    def pick(self, history: History, allowed: Rows, rng: np.random.Generator) -> int:
        """Not used: the inner sampler wants the study itself."""
        raise AssertionError("sample_relative does not ask")

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """What the inner sampler draws, once it is a row that may be tried."""
        fixed = fixed_params(trial)
        if set(self.candidates.names) <= fixed.keys():
            return {}
        history = self.history(study, before=trial.number)
        allowed = np.zeros(len(self.candidates), dtype=np.bool_)
        allowed[self._allowed(study, trial, history, fixed)] = True
        inner = self._make(int(np.random.default_rng([self.seed, trial.number]).integers(2**31)))
        drawn: dict[str, Any] = {}
        for _ in range(self.DRAWS):
            drawn = self._draw(inner, study, trial) | fixed
            row = self.candidates.row(drawn)
            if row is not None and allowed[row]:
                return drawn
        return self.candidates.params(self.candidates.nearest(drawn, allowed))

    def _draw(self, inner: BaseSampler, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        space = self.distributions()
        joint = {
            k: v for k, v in inner.infer_relative_search_space(study, trial).items() if k in space
        }
        drawn = inner.sample_relative(study, trial, joint) if joint else {}
        return {
            name: drawn[name]
            if name in drawn
            else inner.sample_independent(study, trial, name, distribution)
            for name, distribution in space.items()
        }


def _optional(module: str, what: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TuningError(f"{what} need {module}: pip install {package}") from error


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the comparison: its name, what it is, how to make it from a list and a seed.

    order: the prediction that it needs, "prior" or one of the list's `orders`; "" for none.
    needs: an optional module.
    """

    name: str
    about: str
    make: Callable[[Candidates, int], BaseSampler]
    order: str = ""
    needs: str = ""

    def serves(self, candidates: Candidates) -> bool:
        """True when `candidates` hold the prediction that this method needs."""
        known = {"", *candidates.orders} | (
            {"prior"} if candidates.log_prior is not None else set()
        )
        return self.order in known


def _ranked(candidates: Candidates, seed: int) -> BaseSampler:
    assert candidates.log_prior is not None
    return RankSampler(candidates, candidates.log_prior, seed=seed)


def _by_order(name: str) -> Callable[[Candidates, int], BaseSampler]:
    return lambda candidates, seed: RankSampler(candidates, candidates.orders[name], seed=seed)


def _tpe(seed: int) -> BaseSampler:
    return optuna.samplers.TPESampler(seed=seed)


def _gp(seed: int) -> BaseSampler:
    _optional("torch", "Optuna's GPSampler", "torch")
    return optuna.samplers.GPSampler(seed=seed)


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("prior", "PriorSampler: the model first, then both views in turn", lambda c, s: PriorSampler(c, seed=s), "prior"),
        Method("gp", "PriorSampler without its prior: a cold Gaussian process over the list", lambda c, s: PriorSampler(c, seed=s, use_prior=False)),
        Method("grid", "list order", lambda c, s: GridSampler(c, seed=s)),
        Method("random", "uniform", lambda c, s: RandomSampler(c, seed=s)),
        Method("analytical", "rank order of the model, nothing learnt", _ranked, "prior"),
        Method("bottleneck", "rank order of the bottleneck model", _by_order("bottleneck"), "bottleneck"),
        Method("roller", "ROLLER's construction, best first", _by_order("roller"), "roller"),
        Method("xgb", "boosted trees, cold", lambda c, s: XgbSampler(c, seed=s), needs="xgboost"),
        Method("xgb_assisted", "boosted trees pre-trained on the model (ALCOP)", lambda c, s: XgbSampler(c, pretrained=True, seed=s), "prior", "xgboost"),
        Method("optuna_tpe", "Optuna's TPE, kept to the list", lambda c, s: OptunaSampler(c, _tpe, seed=s)),
        Method("optuna_gp", "Optuna's GPSampler, kept to the list", lambda c, s: OptunaSampler(c, _gp, seed=s), needs="torch"),
    )
}  # fmt: skip
