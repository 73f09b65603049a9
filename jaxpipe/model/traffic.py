"""Bytes that a kernel's blocks ask of L2 and of device memory (DeLTA's traffic, for products).

In: tile geometry and a workload. Out: bytes a k step. A wave's blocks share operand panels: L2
serves every block's tiles, device memory only the distinct panels, and only once in the whole
kernel when the operands stay in L2. It must not know time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxpipe.geometry_hopper import ATOM_ROWS
from jaxpipe.model.table import Floats, Ints, ScheduleTable
from jaxpipe.model.workload import Workload
from jaxpipe.schedule import GpuSchedule

SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """The tile grid of every schedule: columns of one length.

    steps is main-loop iterations of one block; blocks counts result tiles times batch times splits.
    """

    block_m: Ints
    block_n: Ints
    block_k: Ints
    tiles_m: Ints
    tiles_n: Ints
    steps: Ints
    split_k: Ints
    blocks: Ints
    raster_group: Ints


def tiles_of(table: ScheduleTable[GpuSchedule], load: Workload) -> Tiles:
    """The tile grid that each schedule lays over the result."""
    block_m, block_n, block_k = table["block_m"], table["block_n"], table["block_k"]
    tiles_m, tiles_n = -(-load.m // block_m), -(-load.n // block_n)
    if load.atoms:
        patched = -(-load.atoms // np.maximum(1, block_m // ATOM_ROWS))
        tiles_m = np.where(table["family"] == "hopper", patched, tiles_m)
    split = table["split_k"]
    k_tiles = load.taps * -(-(load.k // load.taps) // block_k)
    steps = -(-k_tiles // split)
    blocks = load.batch * tiles_m * tiles_n * split
    group = np.clip(table["raster_group"], 1, tiles_m)
    return Tiles(block_m, block_n, block_k, tiles_m, tiles_n, steps, split, blocks, group)


def panels(tiles: Tiles, resident: Ints) -> tuple[Floats, Floats]:
    """Distinct row panels and column panels that `resident` consecutive blocks touch.

    Blocks walk raster_group tile rows before the next column; a batch entry (or a k split) starts
    its own panels.
    """
    grid = tiles.tiles_m * tiles.tiles_n
    grids = np.maximum(1.0, resident / grid)
    here = np.minimum(resident, grid)
    band = tiles.raster_group * tiles.tiles_n
    bands = -(-here // band)
    rows = np.minimum(tiles.tiles_m, bands * tiles.raster_group)
    columns = np.where(bands > 1, tiles.tiles_n, -(-here // tiles.raster_group))
    rows = np.minimum(rows, here)
    return grids * rows, grids * np.minimum(columns, tiles.tiles_n)


def operand_step_bytes(tiles: Tiles, load: Workload) -> tuple[Floats, Floats]:
    """Bytes of lhs and of rhs that one block asks of L2 in one k step, in whole sectors."""
    size = load.operand_bytes
    lhs = tiles.block_m * tiles.block_k * size
    rhs = tiles.block_n * tiles.block_k * size
    lhs_row = (tiles.block_k if load.lhs_k_contiguous else tiles.block_m) * size
    rhs_row = (tiles.block_k if load.rhs_k_contiguous else tiles.block_n) * size
    return (
        lhs * sector_overhead(lhs_row, load.lhs_align_bytes),
        rhs * sector_overhead(rhs_row, load.rhs_align_bytes),
    )


def dram_step_bytes(tiles: Tiles, load: Workload, resident: Ints, l2_kept_bytes: float) -> Floats:
    """Bytes of device memory behind one block's k step, averaged over the kernel.

    Compulsory: each operand byte once, none of those that a warm L2 holds. Where the operands
    outgrow L2, each wave fetches its distinct panels anew; between the two the share that outgrows
    decides.
    """
    lhs, rhs = operand_step_bytes(tiles, load)
    rows, columns = panels(tiles, resident)
    anew = (rows * lhs / load.lhs_revisits + columns * rhs) / np.maximum(resident, 1)
    footprint = load.lhs_bytes + load.rhs_bytes
    outgrown = float(np.clip(footprint / l2_kept_bytes - 1.0, 0.0, 1.0))
    fetched = footprint * outgrown if load.is_warm else footprint
    once = fetched / np.maximum(tiles.blocks * tiles.steps, 1)
    moved: Floats = np.minimum(once + outgrown * np.maximum(anew - once, 0.0), lhs + rhs)
    return moved


def sector_overhead(row_bytes: Ints, align_bytes: int) -> Floats:
    """Bytes moved over bytes asked, for rows that start at multiples of `align_bytes`.

    A row moves in whole 32-byte sectors; one that starts inside a sector touches one more, with
    probability 1 - align / 32 over all starts.
    """
    whole = -(-row_bytes // SECTOR_BYTES)
    extra = max(0.0, 1.0 - align_bytes / SECTOR_BYTES)
    return (whole + extra) * SECTOR_BYTES / row_bytes
