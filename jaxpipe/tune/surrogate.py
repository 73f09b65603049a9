"""Gaussian processes over a finite list: what is to be expected of rows that were not measured.

In: features and codes of all rows, observed rows with their log values, optionally a predicted log
value of every row. Out: for the asked rows the expected improvement on the best observation. No
gradients, no restarts: a grid of kernels, weighed by their evidence, so the same inputs give the
same picks. It must not know Optuna.

Two kernels span what schedules do. Matern-5/2 on standardised log2 features is smooth where sizes
trade off; the exponential of the Hamming distance of knobs is what a switch or a divisibility
makes: a cliff that no neighbour shares. Noise and amplitude are of the grid and in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import ndtr

from jaxpipe.tune.candidates import Candidates, Floats

Rows = NDArray[np.int64]
Family = Literal["matern", "hamming"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One point of the grid: the family, its length and the noise variance over the signal's."""

    family: Family
    length: float
    noise: float


_LENGTHS: dict[Family, tuple[float, ...]] = {
    "matern": (0.5, 1.0, 2.0, 4.0),  # of half the typical distance of two rows
    "hamming": (0.1, 0.2, 0.4, 0.8, 1.6),  # of all knobs
}
KERNELS: tuple[Kernel, ...] = tuple(
    Kernel(family, length, noise)
    for family, lengths in _LENGTHS.items()
    for length in lengths
    for noise in (1e-3, 1e-2, 1e-1)
)
SLOPES = (0.4, 0.8, 1.2)
"""How far a predicted difference is believed: models are timid here and bold there."""
KEPT_KERNELS, LEAST_WEIGHT = 4, 0.02
MOST_OBSERVATIONS = 160


@dataclass(frozen=True, slots=True)
class _Fit:
    """One kernel with one slope on the observations: posterior weights and scales."""

    kernel: Kernel
    slope: float
    evidence: float
    solved: Floats
    amplitude: float
    mean: float
    scale: float


def expected_improvement(
    candidates: Candidates,
    observed: Rows,
    values: Floats,
    asked: Rows,
    log_prior: Floats | None = None,
    slopes: Sequence[float] = SLOPES,
) -> Floats:
    """Expected fall of the log value below the best of `values`, for each asked row.

    observed (n,), values (n,): rows with their log values. log_prior (N,): predicted log value of
    every row, taken as the mean with each of `slopes`; None: a constant mean. The average over
    kernels and slopes is weighed by evidence.
    """
    observed, values = _kept(observed, values)
    factors = _factors(candidates, observed)
    fits = [
        _fit(kernel, factor, slope, values - slope * _at(log_prior, observed))
        for kernel, factor in factors.items()
        for slope in (slopes if log_prior is not None else (0.0,))
    ]
    gain = np.zeros(len(asked))
    posterior = _Posterior(candidates, observed, asked, factors)
    for weight, fit in _weighed(fits):
        mean, deviation = posterior.of(fit)
        mean = mean + fit.slope * _at(log_prior, asked)
        gain += weight * _improvement(mean, deviation, float(values.min()))
    return gain


def _kept(observed: Rows, values: Floats) -> tuple[Rows, Floats]:
    """At most MOST_OBSERVATIONS of them: the best half, and the latest of the others."""
    if len(observed) <= MOST_OBSERVATIONS:
        return observed, values
    order = np.argsort(values, kind="stable")
    best, others = order[: MOST_OBSERVATIONS // 2], order[MOST_OBSERVATIONS // 2 :]
    keep = np.sort(np.concatenate([best, np.sort(others)[-MOST_OBSERVATIONS // 2 :]]))
    return observed[keep], values[keep]


def _at(log_prior: Floats | None, rows: Rows) -> Floats | float:
    return 0.0 if log_prior is None else log_prior[rows]


def _factors(candidates: Candidates, observed: Rows) -> dict[Kernel, Floats]:
    """Lower Cholesky factor of each kernel's matrix over the observations."""
    n = len(observed)
    distances = _distances(candidates, observed, observed)
    return {
        kernel: cho_factor(
            _covariance(kernel, distances[kernel.family]) + kernel.noise * np.eye(n), lower=True
        )[0]
        for kernel in KERNELS
    }


def _fit(kernel: Kernel, factor: Floats, slope: float, residual: Floats) -> _Fit:
    """Evidence with the amplitude in closed form; residuals are standardised first."""
    n, mean = len(residual), float(residual.mean())
    scale = max(float(residual.std()), 1e-6)
    z = (residual - mean) / scale
    solved = cho_solve((factor, True), z)
    amplitude = max(float(z @ solved) / n, 1e-9)
    evidence = -0.5 * n * np.log(amplitude) - n * np.log(scale)
    evidence -= float(np.log(np.diag(factor)).sum())
    return _Fit(kernel, slope, evidence, solved, amplitude, mean, scale)


def _weighed(fits: list[_Fit]) -> list[tuple[float, _Fit]]:
    """The fits that matter with weights by evidence that sum to one."""
    best = sorted(fits, key=lambda fit: -fit.evidence)[:KEPT_KERNELS]
    weights = np.exp([fit.evidence - best[0].evidence for fit in best])
    weights = np.where(weights < LEAST_WEIGHT * weights.sum(), 0.0, weights)
    weights = weights / weights.sum()
    return [(float(w), fit) for w, fit in zip(weights, best, strict=True) if w > 0]


class _Posterior:
    """Means and deviations of the asked rows; what kernels share is computed once."""

    def __init__(
        self, candidates: Candidates, observed: Rows, asked: Rows, factors: dict[Kernel, Floats]
    ) -> None:
        self._candidates, self._observed, self._asked = candidates, observed, asked
        self._factors = factors
        self._distances: dict[Family, Floats] = {}
        self._parts: dict[Kernel, tuple[Floats, Floats]] = {}

    def of(self, fit: _Fit) -> tuple[Floats, Floats]:
        """Mean (without the prior's share) and standard deviation, in the values' own scale."""
        if fit.kernel not in self._parts:
            self._parts[fit.kernel] = self._part(fit.kernel)
        cross, variance = self._parts[fit.kernel]
        mean = (fit.solved @ cross) * fit.scale + fit.mean
        return mean, np.sqrt(fit.amplitude * variance) * fit.scale

    def _part(self, kernel: Kernel) -> tuple[Floats, Floats]:
        family = kernel.family
        if family not in self._distances:
            distance = euclidean if family == "matern" else hamming
            self._distances[family] = distance(self._candidates, self._observed, self._asked)
        cross = _covariance(kernel, self._distances[family])
        half = solve_triangular(self._factors[kernel], cross, lower=True, check_finite=False)
        return cross, np.maximum(1.0 - np.einsum("ij,ij->j", half, half), 1e-10)


def _distances(candidates: Candidates, a: Rows, b: Rows) -> dict[Family, Floats]:
    return {"matern": euclidean(candidates, a, b), "hamming": hamming(candidates, a, b)}


def euclidean(candidates: Candidates, a: Rows, b: Rows) -> Floats:
    """Distances of rows a x b in standardised features, in units of half the typical distance."""
    x, y = candidates.features[a], candidates.features[b]
    squares = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)[None] - 2 * x @ y.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)) * (2 / np.sqrt(x.shape[1])))


def hamming(candidates: Candidates, a: Rows, b: Rows) -> Floats:
    """Share of knobs in which rows a x b differ."""
    codes = candidates.codes
    differing = np.zeros((len(a), len(b)))
    for column in codes.T:
        differing += column[a][:, None] != column[b][None]
    return np.asarray(differing / codes.shape[1])


def _covariance(kernel: Kernel, distance: Floats) -> Floats:
    if kernel.family == "hamming":
        return np.asarray(np.exp(-distance / kernel.length))
    scaled = np.sqrt(5.0) * distance / kernel.length
    return np.asarray((1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled))


def _improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    # The last term keeps an order among rows whose improvement underflows.
    return np.asarray(deviation * (z * ndtr(z) + density) + 1e-30 / (1 - np.minimum(z, 0)))
