"""ALCOP's structure over a CPU's caches: seconds of csrc/host from its schedule, unmeasured.

In: a problem, schedules, the host. Out: seconds, and what bounds them. A call prepares what its
items share (copies of lhs, panels of rhs), then runs work items on a few threads. An item packs its
strip of rhs and multiplies register tiles; a tile loads (the panel and lhs rows, from the cache
level that holds them) while it multiplies. Pipelining is what the core and `stages` overlap: with
two stages the next tile's lines are asked for in time. It must not know how kernels are written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxpipe.model.host_plan import WORD_BYTES, HostPlan, host_plan
from jaxpipe.model.loop import together
from jaxpipe.model.table import Floats, Ints, ScheduleTable, as_table, table_of
from jaxpipe.model.workload import epilogue_ops, read_bytes, write_bytes
from jaxpipe.problem import Problem
from jaxpipe.records import Prediction
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import HostDevice

FMA_LATENCY_CLK = 4  # of a multiply-add; so many sums must be in flight
LINE = 64  # bytes
WAY_BYTES = 4096  # one way of L1 on x86: it is indexed within a page
TILE_CLK = 60  # entering and leaving a register tile
STORE_CLK = 4  # one vector of sums stored (and loaded again when k goes on)
# A run of lines that starts in another page: translation and first line, not overlapped. Set from
# recordings of 1x3072x768 (reads) and 12x512x512x64 (results); other shapes were not looked at.
READ_RUN_S = 8e-9
RESULT_RUN_S = 9e-9  # stages=1
AHEAD_RUN_S = 4e-9  # stages=2: asked for before the tile is computed
FOLLOWING_RUN = 0.3  # of a run's cost when the tile before ended in the same rows (order="row")
PARTS = ("start", "prepare", "pack", "multiply", "wait", "store")


@dataclass(frozen=True, slots=True, eq=False)
class HostPhases:
    """Columns in seconds: the busiest thread's time by part; seconds is the sum of PARTS.

    multiply: multiply-adds and tile overheads. wait: operands that come later than they are used.
    """

    seconds: Floats
    start: Floats
    prepare: Floats
    pack: Floats
    multiply: Floats
    wait: Floats
    store: Floats
    plan: HostPlan


def predict(problem: Problem, schedule: HostSchedule, host: HostDevice) -> Prediction:
    """Seconds of one schedule; parts are shares of the busiest thread's time."""
    p = phases(problem, table_of([schedule]), host)
    parts = {name: float(getattr(p, name)[0]) for name in PARTS}
    bound = max(parts, key=lambda name: parts[name])
    return Prediction(float(p.seconds[0]), bound, tuple(parts.items()))


def predict_many(
    problem: Problem,
    schedules: Sequence[HostSchedule] | ScheduleTable[HostSchedule],
    host: HostDevice,
) -> Floats:
    """Seconds of every schedule, in order."""
    return phases(problem, as_table(schedules), host).seconds


def phases(problem: Problem, table: ScheduleTable[HostSchedule], host: HostDevice) -> HostPhases:
    """What every schedule's time is made of."""
    plan = host_plan(table, problem, host)
    share = _share(plan)
    prepare = _prepare(plan, host)
    start = host.call_s + host.wake_s * ((plan.threads > 1) * (1.0 + (prepare > 0)))
    pack = share * _pack(plan, host)
    item = _multiply(table, plan, host)
    multiply = share * item
    wait = share * _wait(table, plan, host, item)
    store = share * _store(table, plan, problem, host)
    seconds = start + prepare + pack + multiply + wait + store
    return HostPhases(seconds, start, prepare, pack, multiply, wait, store, plan)


def _share(plan: HostPlan) -> Floats:
    """Whole items' worth of work of the busiest thread.

    Threads take items in order from one queue. The last strip may be narrower, so that it is a
    fraction of an item.
    """
    rest = plan.n - (plan.strips - 1) * plan.cols
    narrow = np.ceil(rest / plan.cols * 8) / 8
    whole = plan.batches * plan.blocks_m * (plan.strips - 1)
    last = plan.batches * plan.blocks_m
    rounds, left = np.divmod(whole, plan.threads)
    spare = np.where(left > 0, (plan.threads - left) / np.maximum(narrow, 1e-9), 0.0)
    tail = np.ceil(np.maximum(0.0, last - np.floor(spare)) / plan.threads) * narrow
    total = (whole + last * narrow) / plan.threads
    return np.maximum(rounds + np.where(left > 0, 1.0, 0.0) + tail, total)


def _prepare(plan: HostPlan, host: HostDevice) -> Floats:
    """Seconds of what is copied once for the whole call, all threads together."""
    panels = -(-plan.n // host.kernels.panel_cols)
    lhs = _copy_s(plan, host, plan.batches * plan.m * plan.k, plan.batches * plan.m)
    rhs = _copy_s(plan, host, plan.batches * plan.n * plan.k, plan.batches * panels * plan.k)
    moved = np.where(plan.is_lhs_shared, lhs, 0.0) + np.where(plan.is_rhs_shared, rhs, 0.0)
    return np.asarray(moved / plan.threads)


def _pack(plan: HostPlan, host: HostDevice) -> Floats:
    """Seconds in which one item packs its strip, and copies its rows of lhs where it must."""
    panels = _panels(plan, host)
    strip = _copy_s(plan, host, np.minimum(plan.cols, plan.n) * plan.k, panels * plan.k)
    rows = _copy_s(plan, host, plan.rows * plan.k, plan.rows)
    packs = ~plan.streams & ~plan.is_rhs_shared
    copies = plan.copies_lhs & ~plan.is_lhs_shared
    return np.where(packs, strip, 0.0) + np.where(copies, rows, 0.0)


def _copy_s(plan: HostPlan, host: HostDevice, elements: Ints | int, runs: Ints | int) -> Floats:
    """Seconds in which one core reads operand elements in so many runs and writes them as words."""
    read = np.asarray(elements) * plan.operand_bytes / host.l3_bps
    written = np.asarray(elements) / plan.per_word * WORD_BYTES / host.l2_bps
    return np.asarray(read + written + np.asarray(runs) * READ_RUN_S)


def _row_tiles(plan: HostPlan) -> tuple[Ints, Ints]:
    """Row tiles of an item, and rows of the taller ones (they are balanced)."""
    tiles = -(-plan.rows // plan.tile_rows)
    return tiles, -(-plan.rows // tiles)


def _panels(plan: HostPlan, host: HostDevice) -> Ints:
    """Panels of an item that is as wide as it gets."""
    panel = host.kernels.panel_cols
    return np.minimum(plan.cols // panel, max(1, -(-plan.n // panel)))


def _multiply(table: ScheduleTable[HostSchedule], plan: HostPlan, host: HostDevice) -> Floats:
    """Seconds of one item's multiply-adds and of entering and leaving its tiles."""
    kernels = host.kernels
    tiles, height = _row_tiles(plan)
    panels = _panels(plan, host)
    vectors = kernels.panel_cols // kernels.lanes
    rate = host.fma_per_clk * (host.pair_share if plan.per_word == 2 else 1.0)
    step = np.maximum(height * vectors / rate, FMA_LATENCY_CLK)
    step = np.maximum(step, (height + vectors) / 2.0)
    ends = TILE_CLK + STORE_CLK * vectors * height * np.where(plan.blocks_k > 1, 2, 1)
    clk = tiles * panels * (plan.words * step + plan.blocks_k * ends)
    return np.asarray(clk / host.clock_hz)


def _wait(
    table: ScheduleTable[HostSchedule], plan: HostPlan, host: HostDevice, multiply: Floats
) -> Floats:
    """Seconds that one item's operands come late: loads overlap multiplying, but not perfectly."""
    tiles, height = _row_tiles(plan)
    panels = _panels(plan, host)
    depth = np.minimum(plan.block_k, max(plan.k, 1))
    panel_bytes = depth / plan.per_word * host.kernels.panel_cols * WORD_BYTES
    lhs_row = np.where(plan.copies_lhs, WORD_BYTES / plan.per_word, plan.operand_bytes) * depth
    by_row = table["order"] == "row"
    strip_home = np.where(by_row, panels, 1.0) * panel_bytes + height * lhs_row
    rows_home = np.where(by_row, height * lhs_row, plan.rows * lhs_row + panel_bytes)
    whole = plan.n * plan.k / plan.per_word * WORD_BYTES
    first_home = np.where(plan.is_rhs_shared, whole, strip_home)
    first_s = panels * panel_bytes / _home_bps(host, first_home, plan.threads)
    again_s = (tiles - 1) * panels * panel_bytes / _home_bps(host, strip_home, plan.threads)
    lhs_s = panels * plan.rows * lhs_row / _home_bps(host, rows_home, plan.threads)
    evicted_s = panels * tiles * depth * _evicted_lines(plan, host, height) * LINE / host.l2_bps
    packed = (first_s + again_s + lhs_s + evicted_s) * plan.blocks_k
    raw = np.minimum(plan.cols, plan.n) * plan.k * plan.operand_bytes
    raw_home = plan.n * plan.k * plan.operand_bytes
    streamed = raw / _home_bps(host, raw_home, plan.threads) + plan.k * READ_RUN_S
    load = np.where(plan.streams, streamed, packed)
    return np.maximum(0.0, together(multiply, load) - multiply)


def _evicted_lines(plan: HostPlan, host: HostDevice, height: Ints) -> Floats:
    """Lines of lhs that a tile loads anew from L2 at every word of k.

    A line of lhs is read for as many steps as it has words. Where rows of lhs are read in place and
    are a multiple of many lines apart, those of a tile fall into few sets of L1; what exceeds the
    ways (one is for the panel that streams through) has gone at the next step. Copied rows are
    spread over the sets by csrc/host.
    """
    ways = host.l1_bytes / WAY_BYTES - 1
    sets = WAY_BYTES / max(LINE, math.gcd(plan.lhs_row_bytes, WAY_BYTES))
    evicted = np.maximum(0.0, height - ways * sets)
    return np.where(plan.copies_lhs, 0.0, evicted / plan.per_word)


def _store(
    table: ScheduleTable[HostSchedule], plan: HostPlan, problem: Problem, host: HostDevice
) -> Floats:
    """Seconds of one item's epilogue, and of the runs of result lines that its tiles write."""
    elements = plan.rows * np.minimum(plan.cols, plan.n)
    panels = _panels(plan, host)
    follow = np.where(table["order"] == "row", FOLLOWING_RUN, 1.0)
    runs = plan.rows * np.where(plan.streams, 1.0, 1.0 + (panels - 1) * follow)
    waits = runs * np.where(table["stages"] > 1, AHEAD_RUN_S, RESULT_RUN_S)
    moved = elements * (write_bytes(problem) + read_bytes(problem)) * plan.threads / host.dram_bps
    clk = 0.0 if plan.is_direct else elements * (2.0 + epilogue_ops(problem)) / host.kernels.lanes
    return np.asarray(waits + moved + clk / host.clock_hz)


def _home_bps(host: HostDevice, size: Floats | int, threads: Ints) -> Floats:
    """Bandwidth of one core to the smallest level that holds `size` bytes."""
    size = np.asarray(size)
    far = np.minimum(host.l3_bps, host.dram_bps / threads)
    levels = [
        size <= 0.9 * host.l1_bytes,
        size <= 0.8 * host.l2_bytes,
        size <= 0.7 * host.l3_bytes,
    ]
    return np.select(levels, [host.l1_bps, host.l2_bps, host.l3_bps], default=far)
