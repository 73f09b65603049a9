"""Traffic: panels of a wave, whole sectors, compulsory bytes."""

import numpy as np
import pytest

from jaxpipe.model.table import table_of
from jaxpipe.model.traffic import (
    Tiles,
    dram_step_bytes,
    operand_step_bytes,
    panels,
    sector_overhead,
    tiles_of,
)
from jaxpipe.model.workload import workload
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.schedule import GpuSchedule

LARGE = Matmul(8192, 8192, 4096)
SCHEDULE = GpuSchedule(block_m=128, block_n=256, block_k=64, smem_stages=3, raster_group=8)
L2 = 40 << 20


def tiles(problem: Problem, schedule: GpuSchedule = SCHEDULE) -> Tiles:
    return tiles_of(table_of([schedule]), workload(problem))


@pytest.mark.parametrize(("group", "mib"), [(1, 69), (4, 72), (8, 42), (16, 34), (32, 42)])
def test_a_wave_touches_what_walking_over_its_tiles_counts(group: int, mib: int) -> None:
    grid = tiles(LARGE, GpuSchedule(block_m=128, block_n=256, block_k=64, raster_group=group))
    rows, columns = panels(grid, np.array([132]))
    touched = (rows * 128 + columns * 256) * LARGE.k * 2 / 2**20
    assert touched[0] == pytest.approx(mib, rel=0.12)  # research/cuda.md 5.1, counted by walking


def test_batches_have_panels_of_their_own() -> None:
    problem = Matmul(256, 512, 64, batch=(4,))
    one, four = (panels(tiles(problem), np.array([blocks]))[0][0] for blocks in (4, 16))
    assert four == 4 * one


@pytest.mark.parametrize(
    ("row_bytes", "align", "overhead"),
    [(64, 32, 1.0), (64, 16, 1.25), (128, 32, 1.0), (40, 32, 1.6)],
)
def test_rows_move_in_whole_sectors(row_bytes: int, align: int, overhead: float) -> None:
    assert sector_overhead(np.array([row_bytes]), align)[0] == pytest.approx(overhead)


def test_a_step_asks_for_both_tiles() -> None:
    lhs, rhs = operand_step_bytes(tiles(LARGE), workload(LARGE))
    assert (lhs[0], rhs[0]) == (128 * 64 * 2, 256 * 64 * 2)


def test_operands_that_fit_l2_come_from_memory_once() -> None:
    problem = Matmul(1024, 1024, 1024)
    grid, load = tiles(problem), workload(problem)
    once = dram_step_bytes(grid, load, np.array([32]), L2) * grid.blocks * grid.steps
    assert once[0] == pytest.approx(2 * 1024 * 1024 * 2)


def test_operands_that_fit_a_warm_l2_come_from_memory_never() -> None:
    problem = Matmul(1024, 1024, 1024)
    load = workload(problem, is_warm=True)
    assert dram_step_bytes(tiles(problem), load, np.array([32]), L2)[0] == 0.0


def test_operands_that_outgrow_l2_come_wave_by_wave() -> None:
    grid, load = tiles(LARGE), workload(LARGE)
    small, large = (dram_step_bytes(grid, load, np.array([132]), size)[0] for size in (L2, 1 << 40))
    assert small > 2 * large


def test_a_stride_of_zero_is_one_entry() -> None:
    shared = Matmul(128, 128, 64, (8,), rhs=Layout(batch_strides=(0,)))
    assert workload(shared).rhs_bytes == 128 * 64 * 2


@pytest.mark.parametrize("family", ["ampere", "hopper"])
def test_a_convolution_walks_its_taps_and_ends_each_with_the_channels(family: str) -> None:
    conv = Conv2d(2, 16, 16, 48, 64, (3, 3), padding=((1, 1), (1, 1)))
    grid = tiles(conv, GpuSchedule(family, 128, 64, 32))
    assert grid.steps[0] == 9 * 2
    assert grid.tiles_m[0] == 4


def test_a_convolutions_image_is_read_once_not_its_patches() -> None:
    conv = Conv2d(8, 56, 56, 64, 64, (3, 3), padding=((1, 1), (1, 1)))
    load = workload(conv)
    assert load.lhs_bytes == 8 * 56 * 56 * 64 * 2
    assert load.lhs_revisits == pytest.approx(9.0)
