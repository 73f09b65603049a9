"""ROLLER's construction for csrc/host: register tile, packed panel, strip, in the cache levels.

In: a problem, the host, how many. Out: that many HostSchedules, best first. It must not know how
the kernels are written.
"""

from __future__ import annotations

import numpy as np

from jaxpipe.model import host as host_model
from jaxpipe.model.table import ScheduleTable, concatenate, product_table
from jaxpipe.problem import Matmul, Problem
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import HostDevice


def construct(problem: Problem, host: HostDevice, top_k: int) -> tuple[HostSchedule, ...]:
    """At most `top_k` schedules of `problem`, best predicted first; () for an empty problem."""
    if problem.is_empty or problem.k == 0:
        return ()
    table = _programs(problem, host)
    order = np.argsort(host_model.predict_many(problem, table, host), kind="stable")
    return tuple(table.schedule(int(row)) for row in order[:top_k])


def _programs(problem: Problem, host: HostDevice) -> ScheduleTable[HostSchedule]:
    """Tiles that fit their level: rows in registers, a strip's panels and a block's rows in L2."""
    kernels = host.kernels
    panel = kernels.panel_cols
    most = max(1, host.l2_bytes // (4 * max(1, problem.k) * panel))
    strips = sorted({panel * min(most, 1 << i) for i in range(5)})
    packed = product_table(
        HostSchedule,
        {
            "rows": (kernels.tile_rows,),
            "strip": [s for s in strips if s < problem.n + panel] or [panel],
            "block_m": [0] + [b for b in (64, 128, 256) if b < problem.m],
            "order": ("panel", "row"),
        },
    )
    if problem.m > kernels.tile_rows or not isinstance(problem, Matmul) or problem.rhs.transposed:
        return packed
    knobs = {"path": ("stream",), "strip": [panel * (1 << i) for i in range(5)]}
    return concatenate([packed, product_table(HostSchedule, knobs)])
