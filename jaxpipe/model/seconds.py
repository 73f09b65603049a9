"""One door to the two models that score schedules in seconds: a GPU's and a CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxpipe.model import alcop, host
from jaxpipe.model.table import ScheduleTable
from jaxpipe.problem import Problem
from jaxpipe.target import Device, HostDevice


def predict_many(
    problem: Problem, table: ScheduleTable[Any], target: Device | HostDevice
) -> NDArray[np.float64]:
    """(len(table),) predicted seconds; not finite where the model admits no such schedule."""
    if isinstance(target, HostDevice):
        return host.predict_many(problem, table, target)
    return alcop.predict_many(problem, table, target)
