"""The baseline that ALCOP compares with: the slowest of compute, shared memory and device memory.

In: a problem, schedules, a device. Out: seconds. Every unit is taken at its peak and as one pool:
the model knows neither SMs nor waves nor latency, so it cannot tell stages apart. It stands in the
evaluation tables beside alcop.py and host.py; nothing chooses by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpipe.model.loop import mma_flops_hz
from jaxpipe.model.occupancy import occupancy
from jaxpipe.model.table import Floats, ScheduleTable, as_table, table_of
from jaxpipe.model.traffic import Tiles, tiles_of
from jaxpipe.model.workload import Workload, workload
from jaxpipe.problem import Problem
from jaxpipe.records import Prediction
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import ARCHES, Device

BOUNDS = ("tensor", "shared", "dram")


def predict(problem: Problem, schedule: GpuSchedule, device: Device) -> Prediction:
    """Seconds of one schedule; parts are the three times whose largest it is."""
    table = table_of([schedule])
    times = _times(problem, table, device)[:, 0]
    seconds = float(predict_many(problem, table, device)[0])
    parts = tuple(zip(BOUNDS, map(float, times), strict=True))
    return Prediction(seconds, BOUNDS[int(times.argmax())], parts)


def predict_many(
    problem: Problem,
    schedules: Sequence[GpuSchedule] | ScheduleTable[GpuSchedule],
    device: Device,
) -> Floats:
    """Seconds of every schedule, in order; infinite where a block does not fit an SM."""
    table = as_table(schedules)
    fits = occupancy(table, workload(problem), ARCHES[device.arch]).blocks_per_sm > 0
    return np.where(fits, _times(problem, table, device).max(axis=0), np.inf)


def _times(problem: Problem, table: ScheduleTable[GpuSchedule], device: Device) -> Floats:
    load = workload(problem)
    tiles = tiles_of(table, load)
    work = tiles.blocks * tiles.steps
    flops = 2.0 * tiles.block_m * tiles.block_n * tiles.block_k * work
    is_hopper = table["family"] == "hopper"
    rate = np.where(
        is_hopper, _tensor_hz(load, device), mma_flops_hz(load, device) * device.sm_count
    )
    loaded = (tiles.block_m + tiles.block_n) * tiles.block_k * load.operand_bytes * work
    written = load.result_elements * load.write_bytes
    shared_bps = device.shared_bytes_per_clk * device.clock_hz * device.sm_count
    return np.stack(
        [
            flops / rate,
            (_shared_reads(table, tiles, load) * work + loaded) / shared_bps,
            (loaded + written) / device.stream_bps,
        ]
    )


def _tensor_hz(load: Workload, device: Device) -> float:
    return device.fma_flops_hz if load.unit == "fma" else device.flops_hz(load.unit)


def _shared_reads(table: ScheduleTable[GpuSchedule], tiles: Tiles, load: Workload) -> Floats:
    """Bytes that a block reads of shared memory in one k step."""
    depth = tiles.block_k * load.operand_bytes
    ampere = tiles.block_m * table["warps_n"] + tiles.block_n * table["warps_m"]
    hopper = tiles.block_m + -(-tiles.block_m // 64) * tiles.block_n
    return np.where(table["family"] == "hopper", hopper, ampere) * depth
