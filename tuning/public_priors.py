"""Analytic predictions for the kernels of the public sets, from data sheets and first principles.

Each function takes knob columns (numpy arrays by name) and a `Chip` and returns log seconds up to
a constant. They were written from the kernels' sources and the chips' data sheets; no constant
was fitted to a measured set. They stand where jaxpipe's own models stand for jaxpipe's own
kernels: a prior for the tuner, right in the bulk and wrong in places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Chip:
    """Rates of one SM (per clock) and its limits; DRAM and L2 in bytes per clock of the chip."""

    sm_count: int
    fma_lanes: int
    shared_bytes_clk: float
    max_threads: int
    max_blocks: int
    shared_bytes: int
    l2_bytes_clk: float
    dram_bytes_clk: float
    tensor_fma_clk: float = 0.0
    registers: int = 65536


CHIPS: dict[str, Chip] = {
    "RTX_3090": Chip(82, 128, 128, 1536, 16, 100 << 10, 82 * 32, 936 / 1.7),
    "RTX_3060_laptop": Chip(30, 128, 128, 1536, 16, 100 << 10, 30 * 32, 336 / 1.43),
    "RTX_2080_Ti": Chip(68, 64, 64, 1024, 16, 64 << 10, 68 * 32, 616 / 1.6),
    "A100": Chip(108, 64, 128, 2048, 32, 164 << 10, 5120, 1555 / 1.41),
    "A4000": Chip(48, 128, 128, 1536, 16, 100 << 10, 48 * 32, 448 / 1.56),
    "W6600": Chip(28, 64, 128, 2048, 16, 64 << 10, 28 * 32, 224 / 2.9),
    "V100": Chip(80, 64, 128, 2048, 32, 96 << 10, 80 * 32, 900 / 1.53, 512),
}


def resident_blocks(chip: Chip, threads: Floats, registers: Floats, shared_bytes: Floats) -> Floats:
    """Blocks of a kernel that one SM holds at a time (at least one: it did run)."""
    warps = np.ceil(threads / 32)
    by_registers = np.floor(chip.registers / (32 * warps * np.minimum(registers, 255)))
    by_threads = np.floor(chip.max_threads / (32 * warps))
    by_shared = np.floor(chip.shared_bytes / np.maximum(shared_bytes + 1024, 1))
    least = np.minimum(np.minimum(by_registers, by_threads), np.minimum(by_shared, chip.max_blocks))
    return np.maximum(least, 1.0)


def waves_clk(chip: Chip, blocks: Floats, resident: Floats, busy: Floats, alone: Floats) -> Floats:
    """Clocks of a grid: `busy` of an SM's shared units a block, `alone` the latency of one block.

    Resident blocks share the units and hide each other's latency; the last wave may be thin.
    """
    full = np.floor(blocks / (chip.sm_count * resident))
    rest = np.ceil((blocks - full * chip.sm_count * resident) / chip.sm_count)
    return full * np.maximum(resident * busy, alone) + (rest > 0) * np.maximum(rest * busy, alone)


def spill_factor(registers: Floats) -> Floats:
    """Registers beyond 255 live in local memory: each costs about a load and a store a use."""
    return 1.0 + np.maximum(registers - 255, 0) / 64


def clblast_gemm(c: Columns, chip: Chip, size: int = 4096) -> Floats:
    """CLBlast Xgemm, float32: KWG = 32, KWI = 2, STRM = STRN = 0, square matrices of `size`."""
    threads = c["MDIMC"] * c["NDIMC"]
    rows, cols = c["MWG"] / c["MDIMC"], c["NWG"] / c["NDIMC"]
    lanes_m = np.minimum(32, c["MDIMC"])
    lanes_n = np.maximum(32 / c["MDIMC"], 1)
    warps = np.maximum(threads / 32, 1)
    # A thread owns `rows` consecutive elements, so lanes are `rows` words apart: bank conflicts.
    conflict_m = np.maximum(1, lanes_m * rows * 32 / 32 / 32)
    conflict_n = np.maximum(1, lanes_n * cols / 32)
    loads_m, loads_n = rows / c["VWM"], cols / c["VWN"]
    words = 128 / chip.shared_bytes_clk
    lsu = (
        32
        * warps
        * words
        * (
            loads_m * np.maximum(conflict_m, c["VWM"] / 4)
            + loads_n * np.maximum(conflict_n, c["VWN"] / 4)
        )
    )
    fma = 32 * warps * rows * cols * 32 / chip.fma_lanes
    issue = 32 * warps * (rows * cols + loads_m + loads_n + 4) / 4
    staged_words = c["SA"] * c["MWG"] * 32 / c["VWM"] + c["SB"] * c["NWG"] * 32 / c["VWN"]
    stage = staged_words / 32 * 2 * words + 40 * (c["SA"] + c["SB"])
    registers = rows * cols + 2 * (rows + cols) + 28
    shared = 4.0 * 32 * (c["SA"] * c["MWG"] + c["SB"] * c["NWG"])
    resident = resident_blocks(chip, threads, registers, shared)
    # What is not staged is fetched by every warp that needs it, through the L1.
    refetch_a = np.where(c["SA"] == 1, 1.0, np.maximum(1.0, warps * lanes_m / c["MDIMC"] / 4))
    refetch_b = np.where(c["SB"] == 1, 1.0, np.maximum(1.0, warps * lanes_n / c["NDIMC"] / 4))
    l2 = 128.0 * (c["MWG"] * refetch_a + c["NWG"] * refetch_b) / (chip.l2_bytes_clk / chip.sm_count)
    busy = np.maximum.reduce([fma, lsu + stage, issue, l2]) + 0.15 * np.minimum(fma, lsu)
    latency = np.where(c["SA"] + c["SB"] > 0, 500.0, 0.0)
    latency = latency + np.where(c["SA"] * c["SB"] == 0, 32 * 35 / 2, 0.0)
    alone = latency + 32 * (30 + rows * cols * np.ceil(warps / 4) * 128 / chip.fma_lanes)
    steps, blocks = size / 32, (size / c["MWG"]) * (size / c["NWG"])
    clk = waves_clk(chip, blocks, resident, steps * busy * spill_factor(registers), steps * alone)
    return np.asarray(np.log(clk))


def filter_15x15(c: Columns, chip: Chip, size: int = 4096) -> Floats:
    """Kernel Tuner's 2-D filter: 15 x 15 taps in constant memory, one channel, float32."""
    taps, halo = 225.0, 14
    threads = c["block_size_x"] * c["block_size_y"]
    warps = np.ceil(threads / 32)
    outputs = c["tile_size_x"] * c["tile_size_y"]
    width = c["block_size_x"] * c["tile_size_x"] + halo
    height = c["block_size_y"] * c["tile_size_y"] + halo
    pitch = width + np.where(
        c["use_padding"] == 1, (32 - width % 32) % 32 + c["block_size_x"] % 32, 0
    )
    rows_a_warp = np.minimum(np.maximum(32 / c["block_size_x"], 1), c["block_size_y"])
    overlap = (rows_a_warp > 1) & (((pitch % 32) < 16) | ((pitch % 32) > 16))
    conflict = 1 + np.where((c["use_shmem"] == 1) & overlap, np.abs((pitch % 32) - 16) / 16, 0)
    lines = np.where(c["use_shmem"] == 1, conflict, rows_a_warp + (32 / 32) * 0.5)
    words = 128 / chip.shared_bytes_clk
    lsu = taps * outputs * warps * words * lines
    lsu = np.where((c["use_shmem"] == 0) & (c["read_only"] == 0), lsu * 1.1, lsu)
    issue = taps * warps * (2 * outputs + 1) / 4
    fma = taps * outputs * warps * 32 / chip.fma_lanes
    fill = np.where(c["use_shmem"] == 1, width * height / 32 * (2 * words + 4 / 4), 0)
    registers = outputs * 2 + 22
    shared = np.where(c["use_shmem"] == 1, 4.0 * pitch * height, 0)
    resident = resident_blocks(chip, threads, registers, shared)
    l2 = (
        np.where(c["use_shmem"] == 1, 1.0, 1.6)
        * 4
        * width
        * height
        / (chip.l2_bytes_clk / chip.sm_count)
    )
    busy = np.maximum.reduce([lsu, issue, fma, l2]) + fill
    alone = np.where(c["use_shmem"] == 1, 600.0, 0) + taps * (
        6 * outputs + np.where(c["use_shmem"] == 1, 24, 34) / 4
    )
    blocks = np.ceil(size / (width - halo)) * np.ceil(size / (height - halo))
    return np.asarray(np.log(waves_clk(chip, blocks, resident, busy, alone)))


def tvm_wmma_dense(c: Columns, chip: Chip, m: int = 65536, n: int = 1024, k: int = 1024) -> Floats:
    """TVM's dense_tensorcore template: fp16 WMMA, both operands staged, no double buffering."""
    wmma_n = 256 / c["wmma_m"]
    warps = c["block_row_warps"] * c["block_col_warps"]
    frags_m, frags_n = c["warp_row_tiles"], c["warp_col_tiles"]
    tile_m = c["block_row_warps"] * frags_m * c["wmma_m"]
    tile_n = c["block_col_warps"] * frags_n * wmma_n
    depth = 16.0 * c["chunk"]
    mma = warps * frags_m * frags_n * 4096 * c["chunk"] / chip.tensor_fma_clk
    # Eight rows of 16 bytes per phase: without an offset, rows of a power of two fall on one bank.
    pitch = 2 * (depth + c["offset"])
    ways = 8 / np.minimum(8, 128 / np.gcd(pitch.astype(int), 128))
    fragment_bytes = 2 * 2 * 16 * (frags_m * c["wmma_m"] + frags_n * wmma_n)
    lsu = warps * c["chunk"] * fragment_bytes * ways / chip.shared_bytes_clk
    copies = (tile_m + tile_n) * depth / c["vec"]
    copy = copies / 32 * np.maximum(2.0, 4 * c["vec"] * 32 / chip.shared_bytes_clk)
    l2 = 2 * (tile_m + tile_n) * depth / (chip.l2_bytes_clk / chip.sm_count)
    stores = 4 * tile_m * tile_n
    registers = 8 * frags_m * frags_n + 16 * (frags_m + frags_n) + 40
    shared = np.maximum(
        2 * (tile_m + tile_n) * (depth + c["offset"]), 4 * tile_m * (tile_n + c["offsetCS"])
    )
    resident = resident_blocks(chip, 32.0 * warps, registers, shared)
    steps = k / depth
    busy = (
        steps * (np.maximum(mma, lsu) + np.maximum(copy, l2) * 0.7)
        + 3 * stores / chip.shared_bytes_clk
    )
    in_turn = copies / (32 * warps)
    alone = steps * (550 + 12 * in_turn + np.maximum(mma, lsu) + 60) + 1000
    blocks = np.ceil(m / tile_m) * np.ceil(n / tile_n)
    dram = 2 * (m * k * np.maximum(1, n / tile_n / 8) + m * n) / chip.dram_bytes_clk
    clk = waves_clk(chip, blocks, resident, busy * spill_factor(registers), alone)
    return np.asarray(np.log(np.maximum(clk, dram)))


def tvm_simt_product(
    threads: Floats,
    inner: Floats,
    tile_m: Floats,
    tile_n: Floats,
    depth: Floats,
    shape: tuple[int, ...],
) -> Floats:
    """TVM's float32 dense and batch templates on a V100, `inner` results a thread."""
    chip = CHIPS["V100"]
    batch, m, n, k = shape
    warps = np.ceil(threads / 32)
    side = np.sqrt(inner)
    fma = depth * warps * inner * 32 / chip.fma_lanes
    lsu = depth * warps * 2 * side
    stage = (
        4
        * (tile_m + tile_n)
        * depth
        * (1 / chip.shared_bytes_clk + chip.sm_count / chip.l2_bytes_clk)
    )
    registers = inner + 2 * side + 32
    shared = 4 * (tile_m + tile_n) * depth
    resident = resident_blocks(chip, threads, registers, shared)
    busy = np.maximum(fma, lsu) + stage + 40
    alone = 600 + depth * (30 + inner * np.ceil(warps / 4) * 2)
    steps = np.ceil(k / depth)
    blocks = batch * np.ceil(m / tile_m) * np.ceil(n / tile_n)
    clk = waves_clk(chip, blocks, resident, steps * busy * spill_factor(registers), steps * alone)
    return np.asarray(np.log(clk))
