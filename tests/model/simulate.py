"""Discrete-event simulation of the machine that model/pipeline.py describes, one event a use."""

from __future__ import annotations

import heapq


def simulate(load: float, use: float, stages: int, workers: int, steps: int) -> float:
    """Seconds until the last of `workers` workers has used its last chunk.

    One unit, first come first served. Load j is issued when use j - stages of its worker is done.
    """
    arrived = [[load] * min(stages, steps) for _ in range(workers)]
    queue = [(load, worker) for worker in range(workers)]
    done = [0] * workers
    unit_free = finish = 0.0
    while queue:
        ready, worker = heapq.heappop(queue)
        finish = max(ready, unit_free) + use
        unit_free = finish
        done[worker] += 1
        if len(arrived[worker]) < steps:
            arrived[worker].append(finish + load)
        if done[worker] < steps:
            heapq.heappush(queue, (max(finish, arrived[worker][done[worker]]), worker))
    return finish
