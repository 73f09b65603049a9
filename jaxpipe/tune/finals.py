"""Which finalist wins: by its ratio to XLA in the same blocks; ties go by a fixed rule.

In: records of finalists that were measured side by side. Out: the winner. Two schedules within
TIE are equally fast as far as anybody can tell; the one that takes less of the machine wins then,
so that a choice is stable from run to run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from jaxpipe.dtypes import DTYPES
from jaxpipe.keys import problem_from_key
from jaxpipe.records import Record
from jaxpipe.schedule import GpuSchedule, Schedule

FINALISTS = 5
"""The best by short measurement, which are measured again side by side."""
FINAL_BLOCKS = 45
"""Samples of each: finalists differ by less than a short measurement's noise; five cost some three
seconds."""
TIE = 0.01


def winner_of(records: Sequence[Record]) -> Record | None:
    """The fastest of those that worked, or None."""
    good = [r for r in records if r.measurement.status == "ok" and r.measurement.samples_s]
    if not good:
        return None
    slowness = {id(r): _slowness(r, good) for r in good}
    best = min(slowness.values())
    tied = [r for r in good if slowness[id(r)] <= best * (1 + TIE)]
    return min(tied, key=lambda r: (_footprint(r), str(r.schedule)))


def _slowness(record: Record, all_of: Sequence[Record]) -> float:
    """Time relative to XLA's, pair by pair where everybody has a baseline; seconds else."""
    if all(r.measurement.baseline_s for r in all_of):
        return 1.0 / record.measurement.speedup
    return statistics.median(record.measurement.samples_s)


def _footprint(record: Record) -> tuple[float, ...]:
    """What a schedule takes of the machine, smaller first."""
    schedule: Schedule = record.schedule
    if not isinstance(schedule, GpuSchedule):
        return (float(schedule.block_k), float(schedule.strip))
    size = DTYPES[problem_from_key(record.problem).dtype].size_bytes
    shared = schedule.smem_stages * (schedule.block_m + schedule.block_n) * schedule.block_k * size
    registers = dict(record.resources).get("registers", 0)
    return (float(shared), float(registers), float(schedule.split_k))
