"""What one block needs of an SM, and how many an SM holds at once (ALCOP's scheduling policy).

In: a table of GPU schedules, a workload, an Arch. Out: shared bytes, registers, threads, blocks an
SM, and which of them limits. Registers are an estimate: accumulators, operand fragments and a
constant for addresses; ptxas has the last word. It must not know time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxpipe.geometry_hopper import ATOM_ROWS, PANEL_BUFFERS, ROW_BYTES, SWIZZLE_PERIOD_BYTES
from jaxpipe.model.table import Ints, ScheduleTable
from jaxpipe.model.traffic import tiles_of
from jaxpipe.model.workload import Workload
from jaxpipe.schedule import GpuSchedule, staging_layout
from jaxpipe.target import Arch
from jaxpipe.wgmma import CONSUMER_OVERHEAD_REGISTERS, REGISTER_SPLITS

FRAGMENT_BYTES = 32  # one mma.sync takes 32 bytes of k from each operand row
ADDRESS_REGISTERS = (
    46  # indices, pointers, loop state: 40 to 50 in ptxas' reports (research/cuda.md)
)
REGISTER_STEP = 8  # registers of a thread are handed out by eights
TMA_REGISTERS = np.array([0, *(REGISTER_SPLITS[c, "tma"].consumer for c in (1, 2, 3))])
CP_ASYNC_REGISTERS = np.array([0, *(REGISTER_SPLITS[c, "cp_async"].consumer for c in (1, 2, 3))])
LIMITS = ("shared memory", "registers", "threads", "block slots")


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """Columns of one length: a block's needs, and blocks_per_sm (0: it does not fit)."""

    shared_bytes: Ints
    registers: Ints
    threads: Ints
    blocks_per_sm: Ints
    limit: Ints

    def limit_name(self, row: int) -> str:
        """What keeps more blocks off the SM: one of LIMITS."""
        return LIMITS[int(self.limit[row])]


def occupancy(table: ScheduleTable[GpuSchedule], load: Workload, arch: Arch) -> Occupancy:
    """Occupancy of every schedule in `table`.

    A "hopper" block is persistent and takes all registers of its SM: setmaxnreg moves them from the
    producer to the consumers.
    """
    threads = threads_of(table)
    shared = shared_bytes_of(table, load)
    registers = registers_of(table, load)
    is_hopper = table["family"] == "hopper"
    consumers = np.clip(table["consumers"], 0, 3)
    most = np.where(table["tma"], TMA_REGISTERS[consumers], CP_ASYNC_REGISTERS[consumers])
    by_limit = np.stack(
        [
            arch.shared_per_sm_bytes // (shared + arch.shared_reserved_per_block_bytes),
            np.where(is_hopper, 1, arch.registers_per_sm // (_handed_out(registers) * threads)),
            arch.max_threads_per_sm // threads,
            np.full(len(table), arch.max_blocks_per_sm),
        ]
    )
    fits = (
        (shared <= arch.shared_per_block_bytes)
        & (registers <= np.where(is_hopper, most, arch.max_registers_per_thread))
        & (threads <= arch.max_threads_per_block)
    )
    blocks = np.where(fits, by_limit.min(axis=0), 0)
    return Occupancy(shared, registers, threads, blocks, by_limit.argmin(axis=0))


def threads_of(table: ScheduleTable[GpuSchedule]) -> Ints:
    """Threads of a block: 32 a warp, or 128 for each consumer and the producer."""
    ampere = 32 * table["warps_m"] * table["warps_n"]
    hopper = 128 * (table["consumers"] + 1)
    return np.where(table["family"] == "hopper", hopper, ampere)


def shared_bytes_of(table: ScheduleTable[GpuSchedule], load: Workload) -> Ints:
    """Shared bytes of a block, as the emitters ask for them.

    "ampere": the ring, of at most one stage a k step, or the staging of results in its place.
    "hopper": the ring, epilogue panels (64 rows of 128 bytes, or 64 swapped columns), two mbarriers
    a stage, alignment.
    """
    tile = (table["block_m"] + table["block_n"]) * table["block_k"] * load.operand_bytes
    granted = np.clip(table["smem_stages"], 1, np.maximum(1, tiles_of(table, load).steps))
    ampere = np.maximum(granted * tile, _staging_bytes(table, load))
    store = np.where(table["split_k"] > 1, load.partial_bytes, load.result_bytes)
    panel = np.where(table["swap_operands"], table["block_m"] * store, ROW_BYTES)
    panels = table["consumers"] * PANEL_BUFFERS * ATOM_ROWS * panel
    extra = panels + 16 * table["smem_stages"] + 16 * table["ping_pong"] + SWIZZLE_PERIOD_BYTES
    hopper = table["smem_stages"] * tile + extra
    return np.asarray(np.where(table["family"] == "hopper", hopper, ampere))


def _staging_bytes(table: ScheduleTable[GpuSchedule], load: Workload) -> Ints:
    """16 padded rows of 4-byte results for each warp."""
    warp_n = table["block_n"] // table["warps_n"]
    widths, row = np.unique(warp_n, return_inverse=True)
    whole, partial = (
        np.array([staging_layout(int(width), vector)[2] for width in widths])[row]
        for vector in (load.store_vector, load.partial_vector)
    )
    pitch = np.where(table["split_k"] > 1, partial, whole)
    return np.asarray(4 * 16 * pitch * table["warps_m"] * table["warps_n"])


def registers_of(table: ScheduleTable[GpuSchedule], load: Workload) -> Ints:
    """Registers of a thread that holds accumulators: theirs, the fragments', the addresses'.

    "ampere": warp_m * warp_n / 32 accumulators and reg_stages fragments of 32 bytes a row.
    "hopper": operands stay in shared memory; a consumer accumulates its share of the block, or all
    of it with ping_pong.
    """
    warp_m = table["block_m"] // table["warps_m"]
    warp_n = table["block_n"] // table["warps_n"]
    fragments = table["reg_stages"] * (warp_m + warp_n) * FRAGMENT_BYTES // 128
    ampere = warp_m * warp_n // 32 + fragments + ADDRESS_REGISTERS
    share = np.where(table["ping_pong"], 1, table["consumers"])
    results = table["block_m"] * table["block_n"] // share
    hopper = results // 128 + CONSUMER_OVERHEAD_REGISTERS
    return np.where(table["family"] == "hopper", hopper, ampere)


def _handed_out(registers: Ints) -> Ints:
    return -(-registers // REGISTER_STEP) * REGISTER_STEP
