"""The baseline that ALCOP compares with: the slowest of compute, shared memory and device memory.

In: a problem, schedules, a device. Out: seconds. Every unit is taken at its peak and as one pool:
the model knows neither SMs nor waves nor latency, so it cannot tell stages apart. It stands in the
evaluation tables beside alcop.py and host.py; nothing chooses by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from jaxpipe.model.host_plan import WORD_BYTES, host_plan
from jaxpipe.model.loop import mma_flops_hz
from jaxpipe.model.occupancy import occupancy
from jaxpipe.model.table import Floats, ScheduleTable, as_table, table_of
from jaxpipe.model.traffic import Tiles, tiles_of
from jaxpipe.model.workload import Workload, workload, write_bytes
from jaxpipe.problem import Problem
from jaxpipe.records import Prediction
from jaxpipe.schedule import GpuSchedule, HostSchedule
from jaxpipe.target import ARCHES, Device, HostDevice

AnyTable = ScheduleTable[GpuSchedule] | ScheduleTable[HostSchedule]
AnySchedules = Sequence[GpuSchedule] | Sequence[HostSchedule] | AnyTable

GPU_BOUNDS = ("tensor", "shared", "dram")
HOST_BOUNDS = ("multiply", "cache", "dram")


def predict(
    problem: Problem, schedule: GpuSchedule | HostSchedule, device: Device | HostDevice
) -> Prediction:
    """Seconds of one schedule; parts are the three times whose largest it is."""
    table: AnyTable = table_of(cast(Any, [schedule]))
    times = _times(problem, table, device)[:, 0]
    bounds = HOST_BOUNDS if isinstance(device, HostDevice) else GPU_BOUNDS
    seconds = float(predict_many(problem, table, device)[0])
    parts = tuple(zip(bounds, map(float, times), strict=True))
    return Prediction(seconds, bounds[int(times.argmax())], parts)


def predict_many(problem: Problem, schedules: AnySchedules, device: Device | HostDevice) -> Floats:
    """Seconds of every schedule, in order; infinite where a block does not fit an SM."""
    table: AnyTable = as_table(cast(Any, schedules))
    times = _times(problem, table, device).max(axis=0)
    if isinstance(device, HostDevice):
        return np.asarray(times)
    gpu = cast(ScheduleTable[GpuSchedule], table)
    fits = occupancy(gpu, workload(problem), ARCHES[device.arch]).blocks_per_sm > 0
    return np.where(fits, times, np.inf)


def _times(problem: Problem, table: AnyTable, device: Device | HostDevice) -> Floats:
    if isinstance(device, HostDevice):
        return _host_times(problem, cast(ScheduleTable[HostSchedule], table), device)
    return _gpu_times(problem, cast(ScheduleTable[GpuSchedule], table), device)


def _host_times(problem: Problem, table: ScheduleTable[HostSchedule], host: HostDevice) -> Floats:
    """All threads at their peak; operands once through L2 a register tile; memory once."""
    plan = host_plan(table, problem, host)
    panel = host.kernels.panel_cols
    tiles = -(-plan.rows // plan.tile_rows)
    panels = -(-plan.n // panel)
    rate = plan.threads * host.fma_flops_hz * (host.pair_share * 2 if plan.per_word == 2 else 1)
    flops = 2.0 * plan.batches * plan.m * panels * panel * plan.k
    words = -(-plan.k // plan.per_word) * WORD_BYTES
    moved = plan.batches * panels * words * (plan.m + plan.blocks_m * tiles * panel)
    memory = problem.bytes_min + plan.batches * plan.m * plan.n * write_bytes(problem)
    return np.stack(
        np.broadcast_arrays(
            flops / rate, moved / (plan.threads * host.l2_bps), memory / host.dram_bps
        )
    )


def _gpu_times(problem: Problem, table: ScheduleTable[GpuSchedule], device: Device) -> Floats:
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
