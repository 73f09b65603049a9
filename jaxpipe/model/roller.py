"""ROLLER's construction (OSDI'22): a handful of schedules built, not searched, in milliseconds.

In: a problem, a device, how many. Out: that many schedules, best first. A program is one tile a
memory level: registers (a warp's or a consumer's tile), then shared memory (a block's). Tiles grow
from the smallest, along the axis that saves most traffic a byte first, until the level is full;
those that load as fast as they compute are kept. Stages of both levels, which ROLLER has not, are
further axes within shared memory and registers, and ALCOP's model takes the place of ROLLER's
throughput model: it orders what was built. It must not know how kernels are emitted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from jaxpipe import legality
from jaxpipe.model import alcop, roller_host
from jaxpipe.model.loop import mma_flops_hz
from jaxpipe.model.occupancy import ADDRESS_REGISTERS, FRAGMENT_BYTES
from jaxpipe.model.rtile import Alignment, RTile, grown_tiles, reuse_score
from jaxpipe.model.table import ScheduleTable, filled
from jaxpipe.model.workload import Workload, workload
from jaxpipe.problem import Conv2d, Problem
from jaxpipe.schedule import GpuSchedule, Schedule
from jaxpipe.target import ARCHES, Arch, Device, HostDevice

EPSILONS = (0.1, 0.25, 0.5, 1.0)
"""Padding that is put up with, grown until enough is built. (The paper starts at 0, where a size
like 50257 leaves only the smallest tile.)"""
WANTED = 10
MOST_TILES = 40  # tiles of a level that one growth keeps
FED = 0.9  # a level feeds the next when it gives this share of what computing takes
STAGES = (1, 2, 3, 4, 5, 6, 8)
SPLITS = (1, 2, 3, 4, 6, 8)
MIN_SPLIT_STEPS = 4
_HOPPER_FIELDS = (
    "block_m", "block_n", "block_k", "consumers", "ping_pong", "cluster_m", "cluster_n",
    "swap_operands",
)  # fmt: skip
_TILE_FIELDS = (*_HOPPER_FIELDS, "split_k")
MOST_ROWS = 256  # of a block, each way
SIZES = (16, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class Program:
    """An rProgram: the tile of each level, registers first."""

    register: RTile
    shared: RTile


@dataclass(frozen=True, slots=True)
class Level:
    """What a memory level admits: aligned sizes, what fits, and which tiles are fed from below."""

    align: Alignment
    fits: Callable[[RTile], bool]
    feeds: Callable[[RTile], bool]


def construct(
    problem: Problem, device: Device | HostDevice, top_k: int = 10
) -> tuple[Schedule, ...]:
    """At most `top_k` legal schedules of `problem`, best predicted first; () when none fits."""
    if isinstance(device, HostDevice):
        return roller_host.construct(problem, device, top_k)
    if problem.is_empty or problem.k == 0:
        return ()
    arch = ARCHES[device.arch]
    families = (_ampere, _hopper) if arch.has_wgmma else (_ampere,)
    found: list[tuple[float, GpuSchedule]] = []
    for family in families:
        found += family(problem, device, arch, top_k)
    found.sort(key=lambda pair: pair[0])
    return tuple(schedule for _, schedule in found[:top_k])


# ------------------------------------------------------------------ growing
def enlarge(start: RTile, level: Level, load: Workload, epsilon: float) -> list[RTile]:
    """Aligned tiles of one level, grown from `start`: those that are fed, or full (EnlargeTile).

    Growth takes the axis with the best data-reuse score first. A tile that is not fed and can
    still grow is only a step on the way; when nothing is fed, the full ones stay (the paper's
    border programs).
    """
    kept: dict[RTile, None] = {}
    seen = {start}
    front = [start] if level.fits(start) else []
    while front and len(kept) < MOST_TILES:
        tile = front.pop(0)
        grown = [t for t in grown_tiles(tile, load, level.align, epsilon) if level.fits(t)]
        if level.feeds(tile) or not grown:
            kept[tile] = None
        fresh = [t for t in grown if t not in seen]
        seen.update(fresh)
        front += fresh
    return list(kept)


def shrunk(program: Program, load: Workload, units: int, least: RTile) -> Iterator[Program]:
    """Smaller programs of an operator that has fewer tiles than the device has units.

    Each step halves the axis whose halving costs least reuse, in the block and, where the block
    would no longer hold a register tile, in the register tile.
    """
    tile, register = program.shared, program.register
    while _blocks(tile, load) < units:
        halves = [
            tile.with_size(axis, getattr(tile, axis) // 2)
            for axis in ("m", "n")
            if getattr(tile, axis) // 2 >= getattr(least, axis)
        ]
        if not halves:
            return
        tile = min(halves, key=lambda half: reuse_score(half, program.shared, load))
        register = RTile(min(register.m, tile.m), min(register.n, tile.n), register.k)
        yield Program(register, tile)


def _blocks(tile: RTile, load: Workload) -> int:
    return load.batch * -(-load.m // tile.m) * -(-load.n // tile.n)


def _programs(
    load: Workload,
    registers: Level,
    shared_of: Callable[[RTile], Level],
    least: RTile,
    units: int,
    wanted: int,
) -> list[Program]:
    """Programs of both levels, with more and more padding until `wanted` are found."""
    programs: dict[Program, None] = {}
    for epsilon in EPSILONS:
        for register in enlarge(least, registers, load, epsilon):
            level = shared_of(register)
            start = RTile(register.m, register.n, level.align.k[0])
            for tile in enlarge(start, level, load, epsilon):
                program = Program(register, tile)
                programs[program] = None
                programs.update(dict.fromkeys(shrunk(program, load, units, least)))
        if len(programs) >= max(wanted, WANTED):
            break
    return list(programs)


# ------------------------------------------------------------------ sm_80 and later
def _ampere(
    problem: Problem, device: Device, arch: Arch, top_k: int
) -> list[tuple[float, GpuSchedule]]:
    """Warp tiles in registers, blocks of 1 to 8 warps in shared memory."""
    load = workload(problem)
    slice_k = FRAGMENT_BYTES // load.operand_bytes
    least = RTile(16, 16, slice_k)
    registers = _ampere_registers(load, device, arch, slice_k)
    shared_of = functools.partial(_ampere_shared, load, device, arch)
    programs = _programs(load, registers, shared_of, least, device.sm_count, top_k)
    rows = [
        (p.shared.m, p.shared.n, p.shared.k, p.shared.m // p.register.m, p.shared.n // p.register.n)
        for p in programs
        if p.shared.m % p.register.m == 0 and p.shared.n % p.register.n == 0
    ]
    names = ("block_m", "block_n", "block_k", "warps_m", "warps_n")
    table = _with_stages(dict(zip(names, zip(*rows, strict=True), strict=True)), problem, "ampere")
    return _ranked(table, problem, device, arch, top_k)


def _ampere_registers(load: Workload, device: Device, arch: Arch, slice_k: int) -> Level:
    """A warp's tile: accumulators and two fragments in its registers, fed from shared memory."""
    sizes = SIZES[:6]
    budget = arch.max_registers_per_thread - ADDRESS_REGISTERS
    flops_clk = mma_flops_hz(load, device) / device.clock_hz

    def fits(t: RTile) -> bool:
        return t.m * t.n // 32 + 2 * (t.m + t.n) * FRAGMENT_BYTES // 128 <= budget

    def feeds(t: RTile) -> bool:
        compute = 2.0 * t.m * t.n * slice_k / flops_clk
        return compute >= FED * (t.m + t.n) * FRAGMENT_BYTES / device.shared_bytes_per_clk

    return Level(Alignment(sizes, sizes, (slice_k,)), fits, feeds)


def _ampere_shared(load: Workload, device: Device, arch: Arch, register: RTile) -> Level:
    """A block's tile: 1, 2 or 4 warps each way, two stages in shared memory, fed from L2."""
    depths = tuple(row // load.operand_bytes for row in (64, 128))
    align = Alignment(
        tuple(register.m * w for w in (1, 2, 4)), tuple(register.n * w for w in (1, 2, 4)), depths
    )

    def fits(t: RTile) -> bool:
        warps = (t.m // register.m) * (t.n // register.n)
        return (
            warps <= 8
            and max(t.m, t.n) <= MOST_ROWS
            and 2 * t.footprint_bytes(load) <= arch.shared_per_block_bytes
        )

    return Level(
        align, fits, functools.partial(_fed_from_l2, load, device, mma_flops_hz(load, device))
    )


def _fed_from_l2(load: Workload, device: Device, sm_flops_hz: float, tile: RTile) -> bool:
    """True when L2 delivers tiles as fast as an SM uses them (MemPerf > MaxComputePerf)."""
    compute = 2.0 * tile.m * tile.n * tile.k / sm_flops_hz
    return compute >= FED * tile.footprint_bytes(load) * device.sm_count / device.l2_bps


# ------------------------------------------------------------------ sm_90a
def _hopper(
    problem: Problem, device: Device, arch: Arch, top_k: int
) -> list[tuple[float, GpuSchedule]]:
    """A warpgroup's wgmma tile in registers, 1 or 2 consumers a block, clusters of 1 or 2."""
    load = workload(problem)
    depth = 128 // load.operand_bytes
    smallest = GpuSchedule(
        "hopper", 64, 64, depth, smem_stages=2, consumers=1, tma=load.has_tma_operands
    )
    if legality.check(smallest, problem, arch):
        return []
    least = RTile(64, 64, depth)
    sizes = (64, 128, 192, 256)

    def fits(t: RTile) -> bool:
        return t.m * t.n // 128 + ADDRESS_REGISTERS <= 232

    registers = Level(Alignment(sizes, sizes, (depth,)), fits, lambda t: True)

    def shared_of(register: RTile) -> Level:
        align = Alignment((register.m, 2 * register.m), (register.n,), (depth,))
        room = arch.shared_per_block_bytes
        feeds = functools.partial(
            _fed_from_l2, load, device, device.flops_hz(load.unit) / device.sm_count
        )
        return Level(align, lambda t: t.m <= 256 and 2 * t.footprint_bytes(load) <= room, feeds)

    programs = _programs(load, registers, shared_of, least, device.sm_count, top_k)
    rows = [row for p in programs for row in _hopper_rows(p, load)]
    names = (*_HOPPER_FIELDS, "tma", "persistent_blocks")
    fixed = (load.has_tma_operands, device.sm_count)
    columns = zip(*(row + fixed for row in rows), strict=True)
    table = _with_stages(dict(zip(names, columns, strict=True)), problem, "hopper")
    return _ranked(table, problem, device, arch, top_k)


def _hopper_rows(p: Program, load: Workload) -> Iterator[tuple[int | bool, ...]]:
    """A program in both modes and every cluster; for few rows also with swapped operands."""
    consumers = p.shared.m // p.register.m
    modes = [(consumers, False)] + ([(2, True)] if consumers == 1 else [])
    clusters = ((1, 1), (2, 1), (1, 2)) if load.has_tma_operands else ((1, 1),)
    for count, ping_pong in modes:
        for cluster in clusters:
            yield (p.shared.m, p.shared.n, p.shared.k, count, ping_pong, *cluster, False)
    if load.m <= 64 and p.shared.m == 64:
        narrow = min(64, max(8, 1 << (load.m - 1).bit_length()))
        yield (narrow, p.shared.n, p.shared.k, 1, False, 1, 1, True)


# ------------------------------------------------------------------ stages and ranking
def _with_stages(
    columns: dict[str, tuple[int, ...]], problem: Problem, family: str
) -> ScheduleTable[GpuSchedule]:
    """Every program with every count of stages, splits and raster groups that make sense for it."""
    splits = (1,) if isinstance(problem, Conv2d) else SPLITS
    count = len(next(iter(columns.values())))
    axes = (np.arange(count), STAGES, (1, 2), splits, (8, 1))
    program, stages, reg, split, group = (
        grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")
    )
    wide = {name: np.array(values)[program] for name, values in columns.items()}
    wide |= {"smem_stages": stages, "reg_stages": reg, "split_k": split, "raster_group": group}
    steps = -(-problem.k // wide["block_k"])
    filled_by = np.maximum(2, steps) if family == "hopper" else np.maximum(1, -(-steps // split))
    keep = (stages <= filled_by) & ((split == 1) | (steps >= MIN_SPLIT_STEPS * split))
    keep &= stages >= reg
    wide = {name: column[keep] for name, column in wide.items()}
    wide["family"] = np.full(int(keep.sum()), family)
    return filled(GpuSchedule, wide)


def _ranked(
    table: ScheduleTable[GpuSchedule], problem: Problem, device: Device, arch: Arch, top_k: int
) -> list[tuple[float, GpuSchedule]]:
    """The fastest schedule of each tile, by prediction; a tile whose fastest is illegal is out."""
    seconds = alcop.predict_many(problem, table, device)
    found: list[tuple[float, GpuSchedule]] = []
    tried: set[tuple[int, ...]] = set()
    for row in np.argsort(seconds, kind="stable"):
        if len(found) >= top_k or not np.isfinite(seconds[row]):
            break
        tile = tuple(int(table[name][row]) for name in _TILE_FIELDS)
        if tile not in tried:
            tried.add(tile)
            schedule = table.schedule(int(row))
            if not legality.check(schedule, problem, arch):
                found.append((float(seconds[row]), schedule))
    return found
