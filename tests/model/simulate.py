"""Discrete-event simulation of the machine that model/pipeline.py describes, many machines at once.

It knows nothing of the formula: it plays one use after the other, first come first served.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def simulate(load: Floats, use: Floats, stages: Ints, workers: Ints, steps: Ints) -> Floats:
    """Seconds until the last worker of each machine has used its last chunk; one row a machine.

    The unit takes the worker that has been ready for longest. Load j of a worker is issued when
    its use j - stages is done, and arrives `load` later in slot j % stages.
    """
    machine = np.arange(len(load))
    arrival = np.tile(load[:, None, None], (1, int(workers.max()), int(stages.max())))
    ready = np.where(np.arange(int(workers.max())) < workers[:, None], load[:, None], np.inf)
    used = np.zeros(ready.shape, dtype=np.int64)
    free = np.zeros(len(load))
    for _ in range(int((workers * steps).max())):
        worker = ready.argmin(axis=1)
        at = ready[machine, worker]
        end = np.maximum(at, free) + use
        free = np.where(np.isfinite(at), end, free)
        chunk = used[machine, worker]
        arrival[machine, worker, chunk % stages] = end + load
        used[machine, worker] += 1
        following = np.maximum(end, arrival[machine, worker, (chunk + 1) % stages])
        ready[machine, worker] = np.where(chunk + 1 < steps, following, np.inf)
    return free
