"""Small finite lists with known times, for the tests of samplers and studies."""

import itertools

import numpy as np

from jaxpipe.tune.candidates import Candidates
from jaxpipe.tune.replay import Replay

TILES, STAGES, ORDERS = (16, 32, 64, 128), (1, 2, 3, 4), ("row", "panel")


def grid():
    """56 rows: a product of four knobs from which the heaviest combinations are missing."""
    rows = itertools.product(TILES, STAGES, ORDERS, (False, True))
    return [row for row in rows if row[0] * row[1] <= 256]


def times(rows):
    """Seconds: best at 64 x 3, panel order, swizzled; the model misses what order costs."""
    tile, stages, order, swizzle = (np.array(column) for column in zip(*rows, strict=True))
    log = 0.3 * np.abs(np.log2(tile / 64)) + 0.15 * np.abs(stages - 3)
    prior = log + 0.2 * ~swizzle
    return np.exp(prior + 0.5 * (order == "row")) * 1e-3, prior


def candidates(with_prior=True, count=56):
    rows = grid()[:count]
    names = ("tile", "stages", "order", "swizzle")
    knobs = {n: np.array(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)}
    prior = times(rows)[1] if with_prior else None
    orders = {"bottleneck": np.log(knobs["tile"]), "roller": -np.log(knobs["tile"])}
    return Candidates(knobs, prior, orders=orders)


def replay(spread=0.01):
    rows = grid()
    seconds = times(rows)[0]
    return Replay("toy", candidates(), seconds, np.full(len(rows), spread))
