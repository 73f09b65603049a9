"""The schedules of a problem on a device: finite, aligned, and nothing in it that cannot be built.

In: a problem and a target. Out: a Space, columns of knobs with `schedule(i)` and `len()`. Aligned
means ROLLER's rules: whole instructions, whole memory transactions, no bank conflicts, little
padding. Complete means that what a kernel needs of shared memory, registers and threads fits. The
published spaces of ALCOP are here too, for comparison. It must not know time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal

import numpy as np
from numpy.typing import NDArray

from jaxpipe import legality
from jaxpipe.dtypes import DTYPES
from jaxpipe.errors import ScheduleError
from jaxpipe.model import host_rule
from jaxpipe.model.occupancy import FRAGMENT_BYTES, occupancy
from jaxpipe.model.table import (
    S,
    ScheduleTable,
    concatenate,
    filled,
    groups_of,
    product_table,
    table_of,
)
from jaxpipe.model.traffic import tiles_of
from jaxpipe.model.workload import workload
from jaxpipe.problem import Matmul, Problem
from jaxpipe.schedule import Family, GpuSchedule, HostSchedule
from jaxpipe.target import ARCHES, Arch, Device, HostDevice

PaperOperator = Literal["dense", "bmm", "conv2d"]


@dataclass(frozen=True, slots=True, eq=False)
class Space(Generic[S]):
    """A finite list of schedules for one problem, as columns; row i is `schedule(i)`."""

    problem: Problem
    table: ScheduleTable[S]

    def __len__(self) -> int:
        return len(self.table)

    def schedule(self, row: int) -> S:
        """The schedule in `row`."""
        return self.table.schedule(row)

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """One array a field."""
        return self.table.columns


# Tiles are powers of two, and three halves of them to fill waves that powers of two leave ragged.
_AMPERE_KNOBS: dict[str, tuple[Any, ...]] = {
    "family": ("ampere",),
    "block_m": (16, 32, 64, 96, 128, 192, 256),
    "block_n": (32, 64, 96, 128, 192, 256),
    "warps_m": (1, 2, 4),
    "warps_n": (1, 2, 4),
    "row_bytes": (64, 128),
    "smem_stages": (1, 2, 3, 4, 5, 6, 8),
    "reg_stages": (1, 2, 4),
    "split_k": (1, 2, 3, 4, 6, 8),
    "raster_group": (8, 1),
}
_HOPPER_KNOBS: dict[str, tuple[Any, ...]] = {
    "family": ("hopper",),
    "block_m": (64, 128, 192, 256),
    "block_n": (64, 128, 192, 256),
    "row_bytes": (128,),
    "smem_stages": (2, 3, 4, 5, 6, 7, 8, 10, 12),
    "reg_stages": (2, 1),
    "consumers": (1, 2, 3),
    "ping_pong": (False, True),
    "cluster_m": (1, 2),
    "cluster_n": (1, 2),
    "split_k": (1, 2, 3, 4, 6, 8),
    "raster_group": (8, 1),
}
# Few rows: the product is computed transposed, so that they lie along wgmma's narrow dimension.
_SWAPPED_KNOBS: dict[str, tuple[Any, ...]] = {
    **_HOPPER_KNOBS,
    "swap_operands": (True,),
    "block_m": (8, 16, 32, 64),
    "block_n": (64, 128, 256),
    "smem_stages": (3, 4, 6, 8, 10, 12, 16),
    "raster_group": (8,),
}
SWAP_ROWS = 64  # results with at most so many rows are also tried with swapped operands
MIN_SPLIT_STEPS = 4  # k tiles that a split must have to be worth its second launch


def gpu_space(problem: Problem, device: Device, family: Family | None = None) -> Space[GpuSchedule]:
    """Every aligned schedule of `problem` on `device`, of `family` or of all that the chip has.

    Nothing in it fails legality.check, nor asks for more shared memory, registers or threads than
    the chip has. Raises ScheduleError when nothing fits.
    """
    if reasons := legality.check_problem(problem):
        raise ScheduleError(f"no schedule of {problem} on {device.name}: " + "; ".join(reasons))
    arch = ARCHES[device.arch]
    families = [family] if family else ["ampere", "hopper"] if arch.has_wgmma else ["ampere"]
    tables = [t for name in families for t in _family_tables(problem, device, arch, name)]
    full = [table for table in tables if len(table)]
    if not full:
        raise ScheduleError(
            f"no aligned schedule of {problem} fits {device.name} ({', '.join(families)})"
        )
    return Space(problem, concatenate(full))


def _family_tables(
    problem: Problem, device: Device, arch: Arch, family: str
) -> list[ScheduleTable[GpuSchedule]]:
    if family == "ampere":
        return [_legal(_shaped(_AMPERE_KNOBS, problem), problem, arch)]
    is_tma = workload(problem).has_tma_operands
    fixed = {"persistent_blocks": (device.sm_count,), "tma": (is_tma,)}
    knobs = [_HOPPER_KNOBS] + ([_SWAPPED_KNOBS] if problem.m <= SWAP_ROWS else [])
    return [_legal(_shaped({**k, **fixed}, problem), problem, arch) for k in knobs]


def _shaped(knobs: Mapping[str, tuple[Any, ...]], problem: Problem) -> ScheduleTable[GpuSchedule]:
    """The product of the knobs, cut to what is aligned; row_bytes becomes block_k in elements."""
    size = DTYPES[problem.dtype].size_bytes
    depths = tuple(row // size for row in knobs["row_bytes"])
    named = {name: values for name, values in knobs.items() if name != "row_bytes"}
    table = product_table(GpuSchedule, {**named, "block_k": depths})
    return table.take(_aligned(table, problem))


def _aligned(t: ScheduleTable[GpuSchedule], problem: Problem) -> NDArray[np.bool_]:
    """ROLLER's rules: whole instructions, little padding, no stage without a k step to fill it."""
    load = workload(problem)
    tiles = tiles_of(t, load)
    total = tiles.steps * tiles.split_k
    # A persistent block's ring spans its tiles; another's ends with its own k.
    filled_by = np.where(t["family"] == "hopper", np.maximum(total, 2), np.maximum(tiles.steps, 1))
    slices = t["block_k"] * load.operand_bytes // FRAGMENT_BYTES
    keep = (t["smem_stages"] <= filled_by) & (t["reg_stages"] <= slices) & _instructions(t)
    keep &= (t["split_k"] == 1) | (total >= MIN_SPLIT_STEPS * t["split_k"])
    keep &= _covers(t["block_m"], problem.m, 16) & _covers(t["block_n"], problem.n, 32)
    return np.asarray(keep)


def _covers(block: NDArray[np.int64], extent: int, least: int) -> NDArray[np.bool_]:
    """Tiles of less than twice the extent (or the least tile): others are mostly padding."""
    return np.asarray(block <= max(least, 2 * extent - 1))


def _instructions(t: ScheduleTable[GpuSchedule]) -> NDArray[np.bool_]:
    """Tiles that are made of whole instructions; cuts the product before the rules are asked."""
    ampere = (t["block_m"] % (16 * t["warps_m"]) == 0) & (t["block_n"] % (16 * t["warps_n"]) == 0)
    ampere &= t["warps_m"] * t["warps_n"] <= 8
    rows = np.where(t["swap_operands"], t["block_n"], t["block_m"])
    groups = np.where(t["ping_pong"], 1, t["consumers"])
    hopper = (rows % (64 * groups) == 0) & (t["cluster_m"] * t["cluster_n"] <= 2)
    hopper &= (t["smem_stages"] >= t["reg_stages"]) & (~t["ping_pong"] | (t["consumers"] == 2))
    return np.asarray(np.where(t["family"] == "hopper", hopper, ampere))


def _legal(
    table: ScheduleTable[GpuSchedule], problem: Problem, arch: Arch
) -> ScheduleTable[GpuSchedule]:
    """The rows that fit the chip and pass legality.check.

    The rules are asked once for all rows that differ only in what they do not depend on: the
    raster group, and which count of splits (split_k == 1 or not, that they do).
    """
    table = table.take(occupancy(table, workload(problem), arch).blocks_per_sm > 0)
    if not len(table):
        return table
    columns = {**table.columns, "split_k": np.minimum(table["split_k"], 2)}
    first, group = groups_of([column for n, column in columns.items() if n != "raster_group"])
    legal = [not legality.check(table.schedule(int(row)), problem, arch) for row in first]
    return table.take(np.array(legal)[group] & _splits_evenly(table, problem))


def _splits_evenly(t: ScheduleTable[GpuSchedule], problem: Problem) -> NDArray[np.bool_]:
    """Rows whose last split has something to do: the rule on split_k that depends on its value."""
    k_tiles = tiles_of(t, workload(problem)).steps  # of one split
    whole = -(-problem.k // t["block_k"])
    return np.asarray((t["split_k"] == 1) | ((t["split_k"] - 1) * k_tiles < whole))


# ------------------------------------------------------------------ ALCOP's published spaces
_PAPER_KNOBS: dict[str, dict[str, tuple[int, ...]]] = {
    "dense": {"warp_rows": (1, 2, 4), "warp_cols": (1, 2), "chunk": (2, 4)},
    "bmm": {"warp_rows": (1, 2, 4), "warp_cols": (1, 2, 4), "chunk": (1, 2, 4, 8)},
    "conv2d": {"warp_rows": (1, 2), "warp_cols": (1, 2, 4), "chunk": (1, 2, 4)},
}


def paper_space(problem: Problem, operator: PaperOperator) -> Space[GpuSchedule]:
    """The space of ALCOP's published artifact, unpruned: 1620, 4860 or 2430 schedules.

    block_row_warps, block_col_warps, warp_row_tiles, warp_col_tiles and chunk (all times 16) with
    2 to 6 shared-memory stages and 1, 2 or 4 register stages. Not all of them fit a device.
    """
    if operator not in _PAPER_KNOBS:
        raise ScheduleError(f"no published space {operator!r}: use {', '.join(_PAPER_KNOBS)}")
    knobs = _PAPER_KNOBS[operator]
    raw = product_table(
        GpuSchedule,
        {
            "smem_stages": (2, 3, 4, 5, 6),
            "reg_stages": (1, 2, 4),
            "warps_m": (1, 2, 4),
            "warps_n": (1, 2, 4),
            "block_m": knobs["warp_rows"],
            "block_n": knobs["warp_cols"],
            "block_k": knobs["chunk"],
        },
    )
    columns = dict(raw.columns)
    columns["block_m"] = 16 * raw["block_m"] * raw["warps_m"]
    columns["block_n"] = 16 * raw["block_n"] * raw["warps_n"]
    columns["block_k"] = 16 * raw["block_k"]
    return Space(problem, filled(GpuSchedule, columns))


# ------------------------------------------------------------------ the host
_HOST_KNOBS: dict[str, tuple[Any, ...]] = {
    "strip": (1, 2, 4, 8),  # in panels
    "block_m": (0, 128),
    "block_k": (0, 512),
    "order": ("panel", "row"),
    "pack": ("item", "shared"),
    "stages": (2, 1),
    "copy_lhs": (False, True),
}
_STREAM_KNOBS: dict[str, tuple[Any, ...]] = {
    "path": ("stream",),
    "strip": (1, 2, 4, 8, 16, 32),
    "prefetch_rows": (8, 0, 4, 16, 32),
    "copy_lhs": (False, True),
}


def host_space(problem: Problem, host: HostDevice) -> Space[HostSchedule]:
    """The schedules of csrc/host that differ for `problem`: a few hundred, the rule's among them.

    Blocks of rows that are not smaller than m say the same as 0, and k is only cut in two or more.
    """
    kernels = host.kernels
    heights = {kernels.tile_rows, host_rule.tile_rows(host), kernels.tile_rows // 2}
    rows = tuple(sorted(heights, reverse=True))
    packed = _host_table({"rows": rows, **_HOST_KNOBS}, kernels.panel_cols)
    panels = -(-max(problem.n, 1) // kernels.panel_cols)
    keep = packed["strip"] <= kernels.panel_cols * panels
    keep &= (packed["block_m"] < max(problem.m, 1)) & (2 * packed["block_k"] < max(problem.k, 1))
    keep &= (packed["rows"] == kernels.tile_rows) | (packed["rows"] < problem.m)
    keep &= (packed["order"] == "panel") | (packed["strip"] > kernels.panel_cols)
    tables = [packed.take(keep)]
    if problem.m <= kernels.tile_rows and not _is_rhs_transposed(problem):
        streamed = _host_table(_STREAM_KNOBS, kernels.panel_cols)
        tables.append(streamed.take(streamed["strip"] <= kernels.panel_cols * panels))
    return Space(problem, _with(concatenate(tables), host_rule.rule(problem, host)))


def _with(table: ScheduleTable[HostSchedule], wanted: HostSchedule) -> ScheduleTable[HostSchedule]:
    """`table`, with a last row for `wanted` where it has none."""
    fields = wanted.to_json()
    same = np.logical_and.reduce([table[name] == value for name, value in fields.items()])
    return table if same.any() else concatenate([table, table_of([wanted])])


def _host_table(knobs: Mapping[str, Any], panel_cols: int) -> ScheduleTable[HostSchedule]:
    table = product_table(HostSchedule, knobs)
    return filled(HostSchedule, {**table.columns, "strip": table["strip"] * panel_cols})


def _is_rhs_transposed(problem: Problem) -> bool:
    return isinstance(problem, Matmul) and problem.rhs.transposed
