"""ALCOP's structure over a CPU's caches: seconds of csrc/host from its schedule, unmeasured.

In: a problem, schedules, the host. Out: seconds, and what bounds them. A call is work items on a
few threads; an item packs its strip of rhs and multiplies register tiles; a tile loads (panel and
lhs rows from the cache level that holds them) and uses (multiply-adds). It must not know how the
kernels are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxpipe.model.table import Floats, Ints, ScheduleTable, as_table, table_of
from jaxpipe.model.workload import Workload, workload
from jaxpipe.problem import Problem
from jaxpipe.records import Prediction
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import HostDevice

SERIAL_FLOPS = 400_000  # below, csrc/host runs on the caller alone
FMA_LATENCY_CLK = 4
TILE_CLK = 40  # entering and leaving a register tile
PARTS = ("start", "pack", "compute", "operands", "store")


@dataclass(frozen=True, slots=True, eq=False)
class HostPhases:
    """Columns in seconds: what each part costs the busiest thread; seconds is their total."""

    seconds: Floats
    start: Floats
    pack: Floats
    compute: Floats
    operands: Floats
    store: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """csrc/host/plan.cc in columns: loop bounds of every schedule."""

    threads: Ints
    rows: Ints
    strip: Ints
    block_m: Ints
    items: Ints
    streams: NDArray[np.bool_]


def predict(problem: Problem, schedule: HostSchedule, host: HostDevice) -> Prediction:
    """Seconds of one schedule; parts are shares of the busiest thread's time."""
    p = phases(problem, table_of([schedule]), host)
    parts = {name: float(getattr(p, name)[0]) for name in PARTS}
    return Prediction(
        float(p.seconds[0]), max(parts, key=lambda name: parts[name]), tuple(parts.items())
    )


def predict_many(
    problem: Problem,
    schedules: Sequence[HostSchedule] | ScheduleTable[HostSchedule],
    host: HostDevice,
) -> Floats:
    """Seconds of every schedule, in order."""
    return phases(problem, as_table(schedules), host).seconds


def phases(problem: Problem, table: ScheduleTable[HostSchedule], host: HostDevice) -> HostPhases:
    """What every schedule's time is made of."""
    load = workload(problem)
    plan = _plan(table, load, host)
    shares = -(-plan.items // plan.threads)  # items of the busiest thread
    item_m, item_n = np.minimum(plan.block_m, load.m), np.minimum(plan.strip, load.n)
    pack = shares * _pack(plan, load, host, item_n)
    compute = shares * _compute(plan, load, host, item_m, item_n)
    operands = shares * _operands(table, plan, load, host, item_m, item_n)
    bytes_out = shares * item_m * item_n * (load.write_bytes + load.read_bytes)
    store = bytes_out * plan.threads / host.dram_bps
    start = host.call_s + np.where(plan.threads > 1, host.wake_s, 0.0)
    hidden = np.where(table["stages"] > 1, np.maximum(compute, operands), compute + operands)
    seconds = start + pack + hidden + store
    exposed = hidden - compute
    return HostPhases(seconds, start, pack, compute, exposed, store)


def _plan(table: ScheduleTable[HostSchedule], load: Workload, host: HostDevice) -> _Plan:
    kernels = host.kernels
    panel = kernels.panel_cols
    strip = np.where(table["strip"] > 0, np.minimum(table["strip"], max(load.n, 1)), panel)
    strip = -(-strip // panel) * panel
    block_m = np.where(table["block_m"] > 0, np.minimum(table["block_m"], load.m), load.m)
    block_m = np.maximum(block_m, 1)
    rows = np.where(
        table["rows"] > 0, np.minimum(table["rows"], kernels.tile_rows), kernels.tile_rows
    )
    items = load.batch * -(-load.m // block_m) * -(-load.n // strip)
    threads = np.where(
        table["threads"] > 0, np.minimum(table["threads"], host.threads), host.threads
    )
    threads = np.where(load.flops < SERIAL_FLOPS, 1, threads)
    streams = (table["path"] == "stream") & (load.m <= kernels.tile_rows)
    return _Plan(np.minimum(threads, np.maximum(items, 1)), rows, strip, block_m, items, streams)


def _pack(plan: _Plan, load: Workload, host: HostDevice, item_n: Ints) -> Floats:
    """Seconds to copy one item's strip of rhs into panels: read where it lies, written to L2."""
    read = load.k * item_n * load.operand_bytes
    source = _level_bps(host, load.rhs_bytes, plan.threads)
    return np.where(plan.streams, 0.0, read / source + load.k * item_n * 4 / host.l2_bps)


def _compute(plan: _Plan, load: Workload, host: HostDevice, item_m: Ints, item_n: Ints) -> Floats:
    """Seconds of one item's multiply-adds: whole panels, the tile's rows balanced."""
    kernels = host.kernels
    tiles_m = -(-item_m // plan.rows)
    rows = -(-item_m // tiles_m)
    panels = -(-item_n // kernels.panel_cols)
    vectors = kernels.panel_cols // kernels.lanes
    fmas = rows * vectors
    step = np.maximum(fmas / kernels.fma_per_clk, FMA_LATENCY_CLK)
    step = np.maximum(step, (rows + vectors) / 2)
    seconds: Floats = tiles_m * panels * (load.k * step + TILE_CLK) / host.clock_hz
    return seconds


def _operands(
    table: ScheduleTable[HostSchedule],
    plan: _Plan,
    load: Workload,
    host: HostDevice,
    item_m: Ints,
    item_n: Ints,
) -> Floats:
    """Seconds to bring one item's panels and lhs rows to the core from where they lie."""
    kernels = host.kernels
    panel_bytes = load.k * kernels.panel_cols * 4
    tiles_m = -(-item_m // plan.rows)
    panels = -(-item_n // kernels.panel_cols)
    lhs_bytes = item_m * load.k * load.operand_bytes
    by_row = table["order"] == "row"
    panel_moves = np.where(by_row | (panel_bytes > host.l1_bytes), tiles_m * panels, panels)
    lhs_moves = np.where(by_row, 1, panels)
    panel_home = np.where(by_row, panels * panel_bytes, panel_bytes)
    panel_s = panel_moves * panel_bytes / _level_bps(host, panel_home, plan.threads)
    lhs_s = lhs_moves * lhs_bytes / _level_bps(host, lhs_bytes, plan.threads)
    stream_s = load.k * item_n * load.operand_bytes / _level_bps(host, load.rhs_bytes, plan.threads)
    return np.where(plan.streams, stream_s, panel_s + lhs_s)


def _level_bps(host: HostDevice, size: Ints | int, threads: Ints) -> Floats:
    """Bandwidth of one core to the smallest level that holds `size` bytes."""
    size = np.asarray(size)
    shared = np.minimum(host.l3_bps, host.dram_bps / threads)
    levels = [size <= host.l1_bytes, size <= 0.75 * host.l2_bytes, size <= 0.75 * host.l3_bytes]
    return np.select(levels, [host.l1_bps, host.l2_bps, host.l3_bps], default=shared)
