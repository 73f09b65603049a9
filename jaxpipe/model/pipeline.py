"""The latency of a load-and-use loop that is pipelined and multiplexed, exact for finite loops.

The machine (ALCOP section 4.2, reconstructed): `workers` identical workers share one exclusive
unit; a chunk's use holds it for `use` seconds. A worker owns a ring of `stages` buffers. Load j is
issued once use j - stages of the same worker has finished, takes `load` seconds and blocks nothing.

    stages = 2, workers = 1            load 0 |######|   load 2 |######|
                                       load 1 |######|           load 3 |######|
                                       use           |0|1|            |2|3|

Two bounds hold in the steady state, and a greedy order meets the larger one: the unit serves every
worker (workers * use an iteration), and use j waits for use j - stages and one load ((load + use) /
stages). So an iteration takes max(workers * use, (load + use) / stages), and latency is hidden when
load <= (stages * workers - 1) * use: stages and workers enter as a product.

Everything works element by element on numpy arrays. It must not know schedules or devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]
Values = NDArray[Any] | float | int


def service_interval(use: Values, workers: Values, busy: Values | None = None) -> Seconds:
    """Seconds between two uses of one worker when no load is ever waited for.

    `busy` is how long a use keeps the unit from the other workers; by default all of `use`. It is
    shorter when a use has latencies of its own that others can fill: then workers * busy may be
    less than `use`, and a worker still needs `use` for each of its chunks.
    """
    latency = np.asarray(use, dtype=np.float64)
    held = latency if busy is None else np.asarray(busy, dtype=np.float64)
    return np.maximum(np.asarray(workers) * held, latency)


def steady_interval(
    load: Values,
    use: Values,
    stages: Values,
    workers: Values,
    busy: Values | None = None,
) -> Seconds:
    """Seconds of an iteration in the steady state:
    max(workers * busy, use, (load + use) / stages)."""
    wait: Seconds = (np.asarray(load, dtype=np.float64) + use) / np.asarray(stages)
    return np.maximum(service_interval(use, workers, busy), wait)


def is_hidden(
    load: Values,
    use: Values,
    stages: Values,
    workers: Values,
    busy: Values | None = None,
) -> NDArray[np.bool_]:
    """True where only the first load is waited for: load <= (stages * workers - 1) * use."""
    interval = service_interval(use, workers, busy)
    hidden = np.asarray(load, dtype=np.float64) + use <= np.asarray(stages) * interval
    return np.asarray(hidden)


def makespan(
    load: Values,
    use: Values,
    stages: Values,
    workers: Values,
    steps: Values,
    busy: Values | None = None,
) -> Seconds:
    """Seconds from the first load to the last use of `workers` workers with `steps` chunks each.

    Exact for the machine above (with busy = use):
        hidden:     load + steps * workers * use
        not hidden: load + q * (load + use) + (r + 1) * workers * use,
                    where q, r = divmod(steps - 1, stages)
    The first `load` is the fill (ALCOP's T_init). No steps take no time.
    """
    count: NDArray[Any] = np.asarray(steps)
    fill = np.asarray(load, dtype=np.float64)
    interval = service_interval(use, workers, busy)
    rounds, rest = np.divmod(np.maximum(count - 1, 0), np.asarray(stages))
    waiting = fill + rounds * (fill + use) + (rest + 1) * interval
    flowing = fill + count * interval
    total = np.where(is_hidden(load, use, stages, workers, busy), flowing, waiting)
    return np.where(count > 0, total, 0.0)
