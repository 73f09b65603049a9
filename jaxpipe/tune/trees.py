"""Extremely randomised trees over a finite list: the surrogate for cliffs.

In: integer codes of all rows, observed rows with their values. Out: each tree's prediction for the
asked rows. Every split tries one random threshold a knob and takes the best (Geurts, Ernst,
Wehenkel 2006). It must not know Optuna.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jaxpipe.tune.candidates import Codes, Floats

TREES, LEAST_LEAF = 12, 2


def predict(
    codes: Codes,
    observed: NDArray[np.int64],
    values: Floats,
    asked: NDArray[np.int64],
    rng: np.random.Generator,
) -> Floats:
    """(TREES, len(asked)) predictions of `values` for the asked rows."""
    known, wanted = codes[observed], codes[asked]
    return np.stack([_grown(known, values, wanted, rng) for _ in range(TREES)])


def _grown(known: Codes, values: Floats, wanted: Codes, rng: np.random.Generator) -> Floats:
    """Grow one tree and send the wanted rows down while it grows."""
    result = np.empty(len(wanted))
    todo = [(np.arange(len(known)), np.arange(len(wanted)))]
    while todo:
        here, asked = todo.pop()
        if not len(asked):
            continue
        split = _split(known[here], values[here], rng)
        if split is None:
            result[asked] = values[here].mean()
            continue
        knob, threshold = split
        left, asked_left = known[here, knob] <= threshold, wanted[asked, knob] <= threshold
        todo += [(here[left], asked[asked_left]), (here[~left], asked[~asked_left])]
    return result


def _split(known: Codes, values: Floats, rng: np.random.Generator) -> tuple[int, int] | None:
    """The best of one random threshold a knob, or None where the node is a leaf."""
    low, high = known.min(axis=0), known.max(axis=0)
    if len(known) < 2 * LEAST_LEAF or not np.any(high > low):
        return None
    thresholds = rng.integers(low, np.maximum(high, low + 1))
    left = known <= thresholds
    count = left.sum(axis=0)
    enough = (count >= LEAST_LEAF) & (len(known) - count >= LEAST_LEAF)
    if not enough.any():
        return None
    centred = values - values.mean()
    sums = centred @ left
    # Explained variance of a split of centred values: s^2 / n_left + s^2 / n_right.
    gain = np.where(
        enough, sums**2 * (1 / np.maximum(count, 1) + 1 / np.maximum(len(known) - count, 1)), -1.0
    )
    knob = int(np.argmax(gain))
    return knob, int(thresholds[knob])
