"""ALCOP's analytical model (MLSys'23, Table I): seconds of a kernel from its schedule, unmeasured.

In: a problem, schedules, a device. Out: seconds, and the phases that make them up. A kernel is its
waves of blocks; a block is fill, main loop and epilogue; the main loop (loop.py) is a pipeline of
global loads and uses; a use is the steady state of an inner pipeline of shared-memory loads and
tensor-core work. The paper's table is not public in full: every row is a reconstruction, and where
it departs from the paper's text a comment says so. It must not know how kernels are emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from jaxpipe.model.loop import BOUNDS, Main, ampere_main, hopper_main
from jaxpipe.model.occupancy import Occupancy, occupancy
from jaxpipe.model.table import Floats, Ints, ScheduleTable, as_table, table_of
from jaxpipe.model.traffic import Tiles, tiles_of
from jaxpipe.model.workload import Workload, workload
from jaxpipe.problem import Problem
from jaxpipe.records import Prediction
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import ARCHES, Device

PARTS = ("launch", "fill", "loop", "epilogue", "reduce")


@dataclass(frozen=True, slots=True, eq=False)
class Phases:
    """What a kernel's time is made of: columns in seconds, one row a schedule.

    seconds is the sum of PARTS, infinite where a block does not fit an SM. main is the main loop of
    a full wave, or of the only one. waves counts full waves; tail_blocks run in the last.
    """

    seconds: Floats
    launch: Floats
    fill: Floats
    loop: Floats
    epilogue: Floats
    reduce: Floats
    waves: Ints
    tail_blocks: Ints
    blocks_per_sm: Ints
    main: Main
    occupancy: Occupancy
    tiles: Tiles


def predict(problem: Problem, schedule: GpuSchedule, device: Device) -> Prediction:
    """Seconds of one schedule, the parts that add up to them, and what bounds the kernel."""
    p = phases(problem, table_of([schedule]), device)
    parts = tuple((name, float(getattr(p, name)[0])) for name in PARTS)
    return Prediction(float(p.seconds[0]), bound_of(p), parts)


def predict_many(
    problem: Problem,
    schedules: Sequence[GpuSchedule] | ScheduleTable[GpuSchedule],
    device: Device,
    *,
    is_warm: bool = False,
) -> Floats:
    """Seconds of every schedule, in order; infinite where a block does not fit an SM.

    is_warm: operands that fit L2 are there already (a kernel timed in a loop); by default they
    come from device memory, as in a network.
    """
    table = as_table(schedules)
    is_hopper = table["family"] == "hopper"
    seconds = np.empty(len(table))
    for mask in (is_hopper, ~is_hopper):
        if mask.any():
            part = table if mask.all() else table.take(mask)
            seconds[mask] = phases(problem, part, device, is_warm=is_warm).seconds
    return seconds


def bound_of(p: Phases, row: int = 0) -> str:
    """What limits the kernel in `row`: a word of BOUNDS, "launch" or "epilogue"."""
    parts = {name: float(getattr(p, name)[row]) for name in PARTS}
    main = parts["loop"] + parts["fill"]
    if parts["launch"] + parts["reduce"] > main + parts["epilogue"]:
        return "launch"
    if parts["epilogue"] > main:
        return "epilogue"
    return BOUNDS[int(p.main.terms()[:, row].argmax())]


def phases(
    problem: Problem, table: ScheduleTable[GpuSchedule], device: Device, *, is_warm: bool = False
) -> Phases:
    """Every row of Table I for every schedule of a table whose rows are all of one family."""
    load = workload(problem, is_warm=is_warm)
    occupied = occupancy(table, load, ARCHES[device.arch])
    tiles = tiles_of(table, load)
    if len(table) and table["family"][0] == "hopper":
        return _hopper(table, tiles, load, device, occupied)
    return _ampere(table, tiles, load, device, occupied)


def _ampere(
    table: ScheduleTable[GpuSchedule],
    tiles: Tiles,
    load: Workload,
    device: Device,
    occupied: Occupancy,
) -> Phases:
    """Waves of as many blocks as all SMs hold, then a tail wave with what is left.

    The paper counts ceil(blocks / wave) equal batches; a tail with fewer blocks an SM has fewer
    workers and less traffic, so it is priced by itself.
    """
    needed = -(-tiles.blocks // device.sm_count)
    per_sm = np.maximum(1, np.minimum(occupied.blocks_per_sm, needed))
    full = device.sm_count * per_sm
    waves, tail = np.divmod(tiles.blocks, full)
    main = ampere_main(table, tiles, load, device, per_sm, np.minimum(full, tiles.blocks))
    last = ampere_main(table, tiles, load, device, -(-tail // device.sm_count), tail)
    has_tail = tail > 0
    fill = waves * main.load + np.where(has_tail, last.load, 0.0)
    both = waves * main.seconds + np.where(has_tail, last.seconds, 0.0)
    fill = np.minimum(fill, both)
    epilogue = waves * _epilogue(tiles, load, device, full) + _epilogue(tiles, load, device, tail)
    return _sum(
        tiles, load, device, occupied, main, (fill, both - fill, epilogue), (waves, tail, per_sm)
    )


def _hopper(
    table: ScheduleTable[GpuSchedule],
    tiles: Tiles,
    load: Workload,
    device: Device,
    occupied: Occupancy,
) -> Phases:
    """Persistent blocks: the producer runs ahead over tile borders, so the ring fills once.

    A cooperative kernel's epilogue is exposed between tiles; with ping_pong one consumer's epilogue
    runs under the other's main loop: a tile costs max(loop, (loop + epilogue) / 2).
    """
    cluster = table["cluster_m"] * table["cluster_n"]
    have = np.minimum(device.sm_count, table["persistent_blocks"]) // cluster * cluster
    across = -(-tiles.tiles_m // table["cluster_m"]) * -(-tiles.tiles_n // table["cluster_n"])
    total = across * cluster * load.batch * tiles.split_k
    grid = np.minimum(np.maximum(have, cluster), total)
    main = hopper_main(table, tiles, load, device, grid)
    waves = -(-total // np.maximum(grid, 1))
    tile = tiles.steps * main.interval
    drain = _epilogue(tiles, load, device, grid)
    exposed = _exposed_epilogue(tiles, load, device)
    covered = np.maximum(0.0, (tile + exposed) / 2 - tile)
    between = np.where(table["ping_pong"], covered, exposed)
    store = load.write_bytes * load.result_elements / device.stream_bps
    loop = np.maximum(waves * tile, store)
    epilogue = np.maximum(waves - 1, 0) * between + drain
    fill = np.where(tiles.steps > 0, main.load, 0.0)
    ones = np.ones_like(grid)
    return _sum(
        tiles, load, device, occupied, main, (fill, loop, epilogue), (waves, grid * 0, ones)
    )


def _sum(
    tiles: Tiles,
    load: Workload,
    device: Device,
    occupied: Occupancy,
    main: Main,
    times: tuple[Floats, Floats, Floats],
    counts: tuple[Ints, Ints, Ints],
) -> Phases:
    fill, loop, epilogue = times
    launch = np.full(len(fill), device.launch_s)
    reduce = _reduce(tiles, load, device)
    seconds = launch + fill + loop + epilogue + reduce
    seconds = np.where(occupied.blocks_per_sm > 0, seconds, np.inf)
    return Phases(seconds, launch, fill, loop, epilogue, reduce, *counts, main, occupied, tiles)


def _epilogue(tiles: Tiles, load: Workload, device: Device, blocks: Ints) -> Floats:
    """Seconds in which `blocks` blocks write their tiles (DeLTA's epilogue); 0 for no block."""
    split = tiles.split_k > 1
    moved = np.where(split, 4, load.write_bytes + load.read_bytes) * _tile_elements(tiles, load)
    here = -(-blocks // device.sm_count) * _math(tiles, load, device)
    latency = device.dram_latency_clk / device.clock_hz
    return np.where(
        blocks > 0,
        latency + np.maximum(blocks * moved / device.stream_bps, here),
        0.0,
    )


def _exposed_epilogue(tiles: Tiles, load: Workload, device: Device) -> Floats:
    """Seconds between two tiles of a cooperative block: its arithmetic and its way through shared
    memory; the TMA store itself drains under the next tile."""
    staged = _tile_elements(tiles, load) * (load.write_bytes + load.read_bytes) * 2
    wait = np.where(load.read_bytes > 0, device.dram_latency_clk, device.shared_latency_clk)
    clk: Floats = staged / device.shared_bytes_per_clk + wait
    seconds: Floats = clk / device.clock_hz + _math(tiles, load, device)
    return seconds


def _math(tiles: Tiles, load: Workload, device: Device) -> Floats:
    """Seconds of the epilogue's arithmetic of one tile on one SM's float32 lanes."""
    ops = np.where(tiles.split_k > 1, 1, load.epilogue_ops)
    lanes_hz = device.fma_flops_hz / 2.0 / device.sm_count
    return np.asarray(_tile_elements(tiles, load) * ops / lanes_hz, dtype=np.float64)


def _tile_elements(tiles: Tiles, load: Workload) -> Ints:
    return np.minimum(tiles.block_m, load.m) * np.minimum(tiles.block_n, load.n)


def _reduce(tiles: Tiles, load: Workload, device: Device) -> Floats:
    """Seconds of the launch that sums split-K partials (float32) and runs the epilogue."""
    partial = tiles.split_k * load.result_elements * 4
    moved = partial + load.result_elements * (load.write_bytes + load.read_bytes)
    bandwidth = np.where(partial < device.l2_bytes / 2, device.l2_bps, device.stream_bps)
    return np.where(tiles.split_k > 1, device.launch_s + moved / bandwidth, 0.0)


assert set(PARTS) < {f.name for f in fields(Phases)}
