"""Text of a Hopper kernel that does not depend on the roles: constants, tile order, frame.

In: a Geometry and the parameters. Out: CUDA C++ text. What producer and consumers do comes from
hopper_roles.py, the epilogue from hopper_epilogue.py.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from jaxpipe import dynamic
from jaxpipe.codegen.hopper_nest import Nest
from jaxpipe.geometry_hopper import Geometry
from jaxpipe.kernel import Param
from jaxpipe.problem import Conv2d

ELEMENT_TYPES = {
    "float32": "float",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "int32": "int",
    "int8": "signed char",
    "float8_e4m3fn": "unsigned char",
    "float8_e5m2": "unsigned char",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel parameter: its C++ declaration and what the launch passes."""

    declaration: str
    param: Param


def indent(text: str, levels: int = 1) -> str:
    """`text` shifted by `levels` of two spaces; empty lines stay empty."""
    return textwrap.indent(text, "  " * levels)


def constants(g: Geometry, text: str) -> str:
    """Sizes, tiles and shared-memory offsets that `text` uses, as named constants."""
    used = set(re.findall(r"\bk[A-Z]\w*", text))
    lines = []
    for kind, row in _constant_rows(g):
        values = [f"{name} = {value}" for name, value in row.items() if name in used]
        lines += [f"constexpr {kind} {', '.join(values)};"] if values else []
    return "\n".join(lines) + "\n"


def _constant_rows(g: Geometry) -> list[tuple[str, dict[str, int]]]:
    s, shared = g.schedule, g.shared
    return [
        ("int", {"kStages": s.smem_stages, "kCluster": g.cluster}),
        ("int", {"kTilesM": g.cluster_tiles_m, "kTilesN": g.cluster_tiles_n}),
        ("int", {"kTiles": g.total_tiles, "kRasterGroup": s.raster_group}),
        ("int", {"kSplits": s.split_k}),
        ("int", _patch_constants(g)),
        ("int", {"kAtoms": g.atoms, "kGroupRows": g.group_rows, "kColumns": g.b.tile}),
        ("int", {"kKInstructions": g.k_instructions, "kPanelColumns": g.panel_columns}),
        ("unsigned", {"kAStage": g.a.stage_bytes, "kBStage": g.b.stage_bytes}),
        ("unsigned", {"kA": shared.a, "kB": shared.b}),
        ("unsigned", {"kPanels": shared.panels, "kPanelBytes": shared.panel_bytes}),
        ("unsigned", {"kFull": shared.full, "kEmpty": shared.empty, "kTurn": shared.turn}),
        ("unsigned", {"kOne": shared.one} if is_gated(g) else {}),
    ]


def _patch_constants(g: Geometry) -> dict[str, int]:
    p = g.problem
    if g.patch is None:
        return {}
    assert isinstance(p, Conv2d)
    across, down, _ = g.patch.counts(p)
    return {
        "kPatchWidth": g.patch.width,
        "kPatchHeight": g.patch.height,
        "kPatchesAcross": across,
        "kPatchesDown": down,
        "kOutWidth": p.out_width,
        "kOutHeight": p.out_height,
        "kImages": p.batch,
    }


# ---------------------------------------------------------------- tiles
def tile_order(g: Geometry, nest: Nest) -> str:
    """`Tile` and `tile_at(index, rank)`: the walk over the grid loops, the same for every role."""
    s = g.schedule
    m = f"m * {s.cluster_m} + rank" if s.cluster_m > 1 else "m"
    n = f"n * {s.cluster_n} + rank" if s.cluster_n > 1 else "n"
    fields = "".join(f", {name}" for name, _ in nest.outer)
    has_rows = dynamic.has_rows(g.problem)
    tiles_m, parameter = ("tiles_m", ", int tiles_m") if has_rows else ("kTilesM", "")
    return f"""\
// What one block computes at a time: the grid variables of the nest.
struct Tile {{
  int m0, n0{fields};
}};

// Tile `index`: groups of kRasterGroup tile rows, column after column inside a group, so that
// blocks that run together share operand tiles in L2.
__device__ __forceinline__ Tile tile_at(int index, int rank{parameter}) {{
  const int plane = index % ({tiles_m} * kTilesN);
  const int group = plane / (kRasterGroup * kTilesN), inner = plane % (kRasterGroup * kTilesN);
  const int rows = min(kRasterGroup, {tiles_m} - group * kRasterGroup);
  const int m = group * kRasterGroup + inner % rows, n = inner / rows;
  Tile tile;
  tile.m0 = {m};
  tile.n0 = {n};
{indent(_outer(nest, tiles_m))}  return tile;
}}
"""


def _outer(nest: Nest, tiles_m: str) -> str:
    """Digits of the index above the plane, the last grid variable fastest."""
    lines, below = [], ""
    for position, (name, extent) in enumerate(reversed(nest.outer)):
        is_last = position + 1 == len(nest.outer)
        lines.append(f"tile.{name} = outer{below}{'' if is_last else f' % {extent}'};\n")
        below += f" / {extent}"
    head = f"const int outer = index / ({tiles_m} * kTilesN);\n" if lines else ""
    return head + "".join(lines)


def patch_position(g: Geometry) -> str:
    """`Patch` and `patch_at(index)`: where 64 output pixels of a convolution lie."""
    if g.patch is None:
        return ""
    return """\
// 64 output pixels: kPatchWidth x kPatchHeight of some neighbouring images.
struct Patch {
  int x, y, image;
};

__device__ __forceinline__ Patch patch_at(int index) {
  Patch patch;
  patch.x = index % kPatchesAcross * kPatchWidth;
  patch.y = index / kPatchesAcross % kPatchesDown * kPatchHeight;
  patch.image =
      index / (kPatchesAcross * kPatchesDown) * (64 / (kPatchWidth * kPatchHeight));
  return patch;
}
"""


# ---------------------------------------------------------------- frame
def frame(
    g: Geometry, name: str, arguments: tuple[Argument, ...], producer: str, consumer: str
) -> str:
    """The kernel: shared memory, barriers, roles, and the end of a cluster's life together."""
    cluster = f"__cluster_dims__({g.cluster}, 1, 1) " if g.cluster > 1 else ""
    parameters = ",\n    ".join(a.declaration for a in arguments)
    rank = "(int)cluster_ctarank()" if g.cluster > 1 else "0"
    maps = [a.declaration.split()[-1] for a in arguments if "TensorMap" in a.declaration]
    meet = "barrier_cluster_sync();" if g.cluster > 1 else "__syncthreads();"
    roles = producer + consumer
    ring = "  const unsigned full = shared + kFull, empty = shared + kEmpty;\n" if g.k_tiles else ""
    end = _cluster_end() if g.cluster > 1 else ""
    return f"""\
extern "C" __global__ void {cluster}__launch_bounds__({g.schedule.threads}, 1) {name}(
    {parameters}) {{
  // ---- shared memory: rings, epilogue panels, barriers
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = ((unsigned)__cvta_generic_to_shared(dynamic_shared) + 1023u) & ~1023u;
{ring}{_call_tiles(g)}  const int warp = uniform_warp(), warpgroup = warp / 4;
  const int rank = {rank}, cluster = blockIdx.x / kCluster, clusters = gridDim.x / kCluster;

  // ---- barriers: full[s] counts what fills slot s, empty[s] the warps that read it
  if (warp == 0 && elect_sync()) {{
{indent(_prefetches(maps), 2)}{indent(_barriers(g), 2)}    fence_mbarrier_init();
  }}
  {meet}

{roles}{end}}}
"""


def _call_tiles(g: Geometry) -> str:
    """The tiles of a call that brings sizes."""
    if not g.problem.dynamic:
        return ""
    height, lines, tiles_m = g.schedule.block_m * g.schedule.cluster_m, "", "kTilesM"
    if dynamic.has_rows(g.problem):
        lines = f"  const int tiles_m = ({dynamic.ROWS} + {height - 1}) / {height};\n"
        tiles_m = "tiles_m"
    batch = str(g.problem.batch_size)
    if "batch0" in g.problem.dynamic:
        batch = f"{g.problem.batch_size // dynamic.LIMIT} * {dynamic.ENTRIES}"
    return lines + f"  const int tiles = {tiles_m} * kTilesN * {batch};\n"


def _prefetches(maps: list[str]) -> str:
    return "".join(f"prefetch_tensormap(&{name});\n" for name in maps)


def _barriers(g: Geometry) -> str:
    if g.k_tiles == 0:
        return ""
    one = "st_shared(shared + kOne, bits_of(1.0f));  // read again for every panel\n"
    return (one if is_gated(g) else "") + _ring_barriers(g)


def is_gated(g: Geometry) -> bool:
    """True when results wait for their panel: ptxas would otherwise finish those of all panels
    before the first is stored, with more of them under way than there are registers. A factor of
    one that is read from shared memory after the barrier in front of a panel holds them back.
    Sums of nothing (K = 0) are constants, and their kernels have no barrier after the start."""
    cheap = g.problem.epilogue.activation in ("none", "relu")
    return not (cheap or g.stores_partials or g.k_tiles == 0)


def _ring_barriers(g: Geometry) -> str:
    warps = 4 * (1 if g.schedule.ping_pong else g.schedule.consumers)
    text = f"""\
for (int s = 0; s < kStages; ++s) {{
  mbarrier_init(full + 8 * s, {full_arrivals(g)});
  mbarrier_init(empty + 8 * s, {warps * g.cluster});
}}
"""
    if g.schedule.ping_pong:
        text += "for (int i = 0; i < 2; ++i) mbarrier_init(shared + kTurn + 8 * i, 4);\n"
    return text


def full_arrivals(g: Geometry) -> int:
    """Arrivals that fill a slot: the TMA thread, and every copying thread."""
    copies = [g.a.copy, g.b.copy]
    return ("tma" in copies) + 128 * ("cp_async" in copies)


def _cluster_end() -> str:
    return """
  // ---- no block may leave while another can still write to it or arrive on its barriers
  __syncwarp();
  barrier_cluster_sync();
"""
