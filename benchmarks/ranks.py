"""Rank correlation and geometric means of measured and predicted figures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; ties share their mean rank. 0 where one side is constant."""
    x, y = (ranks(v) - ranks(v).mean() for v in (a, b))
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm else 0.0


def ranks(values: Floats) -> Floats:
    """Mean rank of every value."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)


def geomeans(columns: Floats) -> list[float]:
    """Geometric mean of each column."""
    return [float(x) for x in np.exp(np.log(columns).mean(axis=0))]
