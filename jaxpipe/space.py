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

from jaxpipe.errors import ScheduleError
from jaxpipe.model.occupancy import occupancy
from jaxpipe.model.table import S, ScheduleTable, concatenate, distinct, filled, product_table
from jaxpipe.model.workload import workload
from jaxpipe.problem import DTYPES, Conv2d, Matmul, Problem
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


# Tiles are powers of two and three quarters of them: what fills waves without odd panels.
_AMPERE_KNOBS: dict[str, tuple[Any, ...]] = {
    "block_m": (16, 32, 64, 128, 256),
    "block_n": (32, 64, 96, 128, 192, 256),
    "warps_m": (1, 2, 4),
    "warps_n": (1, 2, 4),
    "row_bytes": (64, 128),
    "smem_stages": (1, 2, 3, 4, 5, 6, 8),
    "reg_stages": (1, 2),
    "raster_group": (8, 1),
    "split_k": (1, 2, 3, 4, 6, 8),
}
_HOPPER_KNOBS: dict[str, tuple[Any, ...]] = {
    "block_m": (64, 128, 192, 256),
    "block_n": (64, 128, 192, 256),
    "row_bytes": (128,),
    "smem_stages": (2, 3, 4, 5, 6, 7, 8),
    "reg_stages": (1, 2),
    "consumers": (1, 2, 3),
    "ping_pong": (False, True),
    "cluster_m": (1, 2),
    "cluster_n": (1, 2),
    "raster_group": (8, 1),
    "split_k": (1, 2, 3, 4, 6, 8),
}
MIN_SPLIT_STEPS = 4  # k tiles that a split must at least have to be worth its second launch


def gpu_space(problem: Problem, device: Device, family: Family | None = None) -> Space[GpuSchedule]:
    """Every aligned schedule of `problem` on `device`, of `family` or of all that the chip has.

    Raises ScheduleError when nothing fits.
    """
    arch = ARCHES[device.arch]
    families = [family] if family else ["ampere", "hopper"] if arch.has_wgmma else ["ampere"]
    tables = [_family_table(problem, arch, name) for name in families]
    full = [table for table in tables if len(table)]
    if not full:
        raise ScheduleError(
            f"no aligned schedule of {problem} fits {device.name} ({', '.join(families)})"
        )
    return Space(problem, concatenate(full))


def _family_table(problem: Problem, arch: Arch, family: str) -> ScheduleTable[GpuSchedule]:
    knobs = dict(_AMPERE_KNOBS if family == "ampere" else _HOPPER_KNOBS)
    raw = _shaped(knobs, problem, family)
    raw = raw.take(_aligned(raw, problem))
    return raw.take(occupancy(raw, workload(problem), arch).blocks_per_sm > 0)


def _shaped(knobs: dict[str, Any], problem: Problem, family: str) -> ScheduleTable[GpuSchedule]:
    """The product of the knobs; row_bytes becomes block_k in elements."""
    size = DTYPES[problem.dtype].size_bytes
    knobs["block_k"] = tuple(bytes_ // size for bytes_ in knobs.pop("row_bytes"))
    table = product_table(GpuSchedule, knobs)
    named = {**table.columns, "family": np.broadcast_to(np.array(family), (len(table),))}
    return filled(GpuSchedule, named)


def _aligned(t: ScheduleTable[GpuSchedule], problem: Problem) -> NDArray[np.bool_]:
    """The rules of ROLLER that choose among legal schedules, and those of the instructions."""
    steps = -(-max(problem.k, 1) // t["block_k"])
    keep = (t["smem_stages"] <= np.maximum(steps, 2)) & (
        (t["split_k"] == 1) | (steps >= MIN_SPLIT_STEPS * t["split_k"])
    )
    if isinstance(problem, Conv2d):
        keep &= t["split_k"] == 1
    keep &= _covers(t["block_m"], problem.m, 16) & _covers(t["block_n"], problem.n, 32)
    return np.asarray(keep & _instructions(t))


def _covers(block: NDArray[np.int64], extent: int, least: int) -> NDArray[np.bool_]:
    """Tiles that are not more than twice the extent (rounded up to the least tile)."""
    return np.asarray(block <= max(least, 2 * extent - 1))


def _instructions(t: ScheduleTable[GpuSchedule]) -> NDArray[np.bool_]:
    ampere = (t["block_m"] % (16 * t["warps_m"]) == 0) & (t["block_n"] % (16 * t["warps_n"]) == 0)
    rows = np.where(t["ping_pong"], 1, t["consumers"]) * 64
    pairs = t["cluster_m"] * t["cluster_n"] <= 2
    turns = ~t["ping_pong"] | (t["consumers"] == 2)
    hopper = (t["block_m"] % rows == 0) & pairs & turns & (t["smem_stages"] >= t["reg_stages"])
    return np.asarray(np.where(t["family"] == "hopper", hopper, ampere))


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
def host_space(problem: Problem, host: HostDevice) -> Space[HostSchedule]:
    """The schedules of csrc/host that differ for `problem`: a few hundred."""
    kernels = host.kernels
    panel, rows = kernels.panel_cols, kernels.tile_rows
    packed = product_table(
        HostSchedule,
        {
            "rows": sorted({rows, max(1, rows - 2), max(1, rows // 2)}),
            "strip": [s for s in (panel, 2 * panel, 4 * panel, 8 * panel, 16 * panel)],
            "block_m": (0, 64, 128, 256),
            "block_k": (0, 256, 512),
            "order": ("panel", "row"),
            "stages": (1, 2),
        },
    )
    size = {"n": max(problem.n, 1), "m": problem.m, "k": problem.k}
    fits = (packed["strip"] < size["n"] + panel) & (packed["block_m"] < max(size["m"], 1))
    fits &= packed["block_k"] < max(size["k"], 1)
    tables = [packed.take(fits)]
    if (
        isinstance(problem, Matmul)
        and problem.m <= kernels.tile_rows
        and not problem.rhs.transposed
    ):
        tables.append(_streaming(panel))
    return Space(problem, distinct(concatenate([t for t in tables if len(t)])))


def _streaming(panel: int) -> ScheduleTable[HostSchedule]:
    knobs = {
        "path": ("stream",),
        "strip": [panel * i for i in (1, 2, 4, 8, 16)],
        "prefetch_rows": (0, 4, 8, 16, 32),
    }
    return product_table(HostSchedule, knobs)
