"""The main loop of a wave of blocks: what an iteration waits for, in either kernel family.

In: tile columns, a workload, a device, how many blocks run. Out: Main, columns of Table I's rows
T_smem_load, T_smem_use, T_reg_load, T_compute. It must not know waves, epilogues or launches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxpipe.geometry_hopper import ATOM_ROWS
from jaxpipe.model.occupancy import FRAGMENT_BYTES
from jaxpipe.model.pipeline import makespan, service_interval, steady_interval
from jaxpipe.model.table import Floats, Ints, ScheduleTable
from jaxpipe.model.traffic import Tiles, dram_step_bytes, operand_step_bytes
from jaxpipe.model.workload import Workload
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Device

PARTITIONS = 4  # an SM's sub-partitions; each has its own tensor core, a warp stays on one
BARRIER_CLK = 30  # one __syncthreads a k step
WGMMA_DRAIN_CLK = 64  # from the last wgmma of a step to the first of the next, with a full wait
IMPERFECT = 0.05
"""Two limits that bind at once cost this much more than the larger: overlap is never exact."""
BOUNDS = ("tensor", "shared", "l2", "dram", "latency")


@dataclass(frozen=True, slots=True, eq=False)
class Main:
    """The main loop of one wave: columns, times in seconds.

    load: latency of one chunk's copy; ring: what of it the ring has to hide. use: latency of one
    chunk's use by one block alone; busy: how long that keeps the SM's tensor cores or shared memory
    from other blocks. tensor, shared, l2 and
    dram: what one iteration of all resident blocks takes of each. stages: buffers whose load can
    be in flight while others are used.
    """

    load: Floats
    ring: Floats
    use: Floats
    busy: Floats
    reg_load: Floats
    compute: Floats
    tensor: Floats
    shared: Floats
    l2: Floats
    dram: Floats
    stages: Ints
    workers: Ints
    steps: Ints

    @property
    def interval(self) -> Floats:
        """Seconds of one main-loop iteration in the steady state.

        Pipelining hides latency, not bandwidth: transfers bound the loop too. (The paper has no
        such bound; without it deep pipelines outrun the memory system.)
        """
        service = service_interval(self.use, self.workers, self.busy)
        waiting = (self.ring + self.use) / self.stages
        return together(service, waiting, self.l2, self.dram)

    @property
    def seconds(self) -> Floats:
        """Fill and main loop of a wave that starts empty, exact for few iterations.

        The memory system is one more unit that all workers share; what limits together cost beyond
        the larger counts once the ring has gone round.
        """
        service = service_interval(self.use, self.workers, self.busy)
        served = np.maximum(service, np.maximum(self.l2, self.dram))
        flow = makespan(self.load, self.use, self.stages, 1, self.steps, served)
        alone = steady_interval(self.ring, self.use, self.stages, 1, served)
        factor = np.where(self.steps > self.stages, self.interval / alone, 1.0)
        return np.where(self.steps > 0, self.load + (flow - self.load) * factor, 0.0)

    def terms(self) -> NDArray[np.float64]:
        """Seconds an iteration by each word of BOUNDS, one row a word."""
        waiting = np.maximum((self.ring + self.use) / self.stages, self.use)
        return np.stack([self.tensor, self.shared, self.l2, self.dram, waiting])


def together(*terms: Floats) -> Floats:
    """Seconds of work that is bound by all of `terms` at once: a little more than the largest.

    largest * (1 + IMPERFECT * sum of (other / largest)^4): a second limit is free while it is
    small. It grows with every term, and is the largest where the others vanish.
    """
    largest = np.maximum.reduce(terms)
    scale = np.where(largest > 0, largest, 1.0)
    others = sum((term / scale) ** 4 for term in terms) - 1.0
    return np.where(largest > 0, largest * (1.0 + IMPERFECT * others), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """Columns of one chunk's way to shared memory: latency, and seconds of L2 and of DRAM."""

    load: Floats
    l2: Floats
    dram: Floats


def ampere_main(
    table: ScheduleTable[GpuSchedule],
    tiles: Tiles,
    load: Workload,
    device: Device,
    per_sm: Ints,
    resident: Ints,
) -> Main:
    """cp.async, ldmatrix, mma.sync: a wave of `resident` blocks, at most `per_sm` on one SM.

    N_mplx of the inner loop is the warps of a block in the paper. Here it is those that share one
    sub-partition's tensor core: four warps on four partitions hide nothing for each other, which
    is why register stages pay. With one register stage the inner pipeline drains at every chunk's
    barrier; with more it is fused into the outer one and never does.
    """
    per_sm, resident = np.maximum(per_sm, 1), np.maximum(resident, 1)
    lhs, rhs = operand_step_bytes(tiles, load)
    copy = _copy(tiles, load, device, per_sm, resident, lhs + rhs)
    warps = table["warps_m"] * table["warps_n"]
    rows = tiles.block_m // table["warps_m"] + tiles.block_n // table["warps_n"]
    slices = np.maximum(1, tiles.block_k * load.operand_bytes // FRAGMENT_BYTES)
    shared_bps = device.shared_bytes_per_clk * device.clock_hz
    slice_flops = 2.0 * tiles.block_m * tiles.block_n * FRAGMENT_BYTES / load.operand_bytes
    compute = slice_flops / warps * PARTITIONS / mma_flops_hz(load, device)
    read = rows * FRAGMENT_BYTES * bank_conflicts(table, tiles, load) / shared_bps
    reg_load = device.shared_latency_clk / device.clock_hz + read * np.minimum(warps, PARTITIONS)
    neighbours = -(-warps // PARTITIONS)
    fused = slices * steady_interval(reg_load, compute, table["reg_stages"], neighbours)
    drained = makespan(reg_load, compute, 1, neighbours, slices)
    inner = np.where(table["reg_stages"] > 1, fused, drained)
    tensor = slices * -(-per_sm * warps // PARTITIONS) * compute
    write = (tiles.block_m + tiles.block_n) * tiles.block_k * load.operand_bytes / shared_bps
    shared = per_sm * (slices * warps * read + write)
    use = np.maximum(inner, shared / per_sm) + BARRIER_CLK / device.clock_hz
    busy = np.maximum(tensor, shared) / per_sm
    stages = np.minimum(table["smem_stages"], np.maximum(tiles.steps, 1))
    return Main(
        copy.load, copy.load, use, busy, reg_load, compute, tensor, shared, copy.l2, copy.dram,
        stages, per_sm, tiles.steps,
    )  # fmt: skip


def hopper_main(
    table: ScheduleTable[GpuSchedule],
    tiles: Tiles,
    load: Workload,
    device: Device,
    resident: Ints,
) -> Main:
    """TMA, mbarrier ring, wgmma: one persistent block an SM, `resident` of them.

    wgmma reads its operands from shared memory: each 64 rows of a read all of the b tile. Blocks of
    a cluster share a panel by multicast, so that L2 is read once for both. reg_stages is wgmma
    groups in flight. With one, a consumer drains every step, and only another consumer fills the
    gap. With two it frees slot j once load j + 1 has come and group j is done: loads then follow
    each other every load / (stages - 1), which is a ring of one stage less whose uses are free.
    """
    resident = np.maximum(resident, 1)
    one = np.ones_like(resident)
    lhs, rhs = operand_step_bytes(tiles, load)
    ask = lhs / table["cluster_n"] + rhs / table["cluster_m"]
    copy = _copy(tiles, load, device, one, resident, ask)
    rows = np.where(table["swap_operands"], tiles.block_n, tiles.block_m)
    columns = np.where(table["swap_operands"], tiles.block_m, tiles.block_n)
    groups = -(-rows // ATOM_ROWS)
    flops = 2.0 * groups * ATOM_ROWS * columns * tiles.block_k
    tensor = flops * device.sm_count / device.flops_hz(load.unit)
    depth = tiles.block_k * load.operand_bytes
    read, write = (rows + groups * columns) * depth, (rows + columns) * depth
    shared = (read + write) / (device.shared_bytes_per_clk * device.clock_hz)
    busy = np.maximum(tensor, shared)
    drains = table["reg_stages"] == 1
    sharers = np.where(table["ping_pong"], 1, np.maximum(table["consumers"], 1))
    drained = np.maximum(busy, busy / sharers + WGMMA_DRAIN_CLK / device.clock_hz)
    use = np.where(drains, drained, busy)
    ring = np.where(drains, copy.load, np.maximum(0.0, copy.load - busy))
    stages = np.where(drains, table["smem_stages"], np.maximum(1, table["smem_stages"] - 1))
    stages = np.minimum(stages, np.maximum(tiles.steps, 1))
    return Main(
        copy.load, ring, use, busy, busy * 0.0, tensor, tensor, shared, copy.l2, copy.dram,
        stages, one, tiles.steps,
    )  # fmt: skip


def mma_flops_hz(load: Workload, device: Device) -> float:
    """Rate of one SM for this problem's products through mma.sync (or the float32 cores)."""
    if load.unit == "fma":
        return device.fma_flops_hz / device.sm_count
    return device.flops_hz(load.unit) * device.mma_sync_share / device.sm_count


def bank_conflicts(table: ScheduleTable[GpuSchedule], tiles: Tiles, load: Workload) -> Ints:
    """How many times an ldmatrix phase is replayed: 8 rows of 16 bytes may fall on the same banks.

    Without swizzle, rows of r bytes repeat the banks every 128 / r rows: min(8, r / 16) ways. With
    it, rows of up to 128 bytes are free of conflicts.
    """
    row = tiles.block_k * load.operand_bytes
    return np.where(table["swizzle"], np.maximum(1, row // 128), np.clip(row // 16, 1, 8))


def _copy(
    tiles: Tiles,
    load: Workload,
    device: Device,
    per_sm: Ints,
    resident: Ints,
    ask: Floats,
) -> _Copy:
    """T_smem_load: the slower of L2 and DRAM, each latency plus the resident blocks' transfer.

    `ask` is what one block reads of L2 a step. One SM's port bounds its own blocks.
    """
    miss = dram_step_bytes(tiles, load, resident, device.l2_kept * device.l2_bytes)
    port_bps = device.l2_sm_bytes_per_clk * device.clock_hz
    l2 = np.maximum(resident * ask / device.l2_bps, per_sm * ask / port_bps)
    dram = resident * miss / (device.stream_bps)
    near = device.l2_latency_clk / device.clock_hz + l2
    far = np.where(miss > 0, device.dram_latency_clk / device.clock_hz + dram, 0.0)
    return _Copy(np.maximum(near, far), l2, dram)
