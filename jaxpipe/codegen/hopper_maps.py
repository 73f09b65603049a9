"""Tensor maps of a Hopper kernel, and the boxes that one stage loads and one panel stores.

In: the nest and its Geometry. Out: TensorMap records for the launch and Box records (where in the
stage, at which coordinates) for the emitter: both come from here so that they agree. Coordinates
are C++ expressions over the variables of the nest, `rank` in the cluster and, for convolutions,
`patch`. Source: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.codegen.hopper_nest import Nest
from jaxpipe.codegen.text import expression
from jaxpipe.dtypes import DTYPES
from jaxpipe.geometry_hopper import ATOM_ROWS, Geometry, Operand
from jaxpipe.ir.affine import Affine
from jaxpipe.ir.nodes import Buffer, Region, Window
from jaxpipe.kernel import TensorMap
from jaxpipe.problem import Conv2d


@dataclass(frozen=True, slots=True)
class Box:
    """One TMA load of a stage: byte offset in the operand's stage, coordinates innermost first.

    offset and coordinates are C++ expressions; multicast: the box goes to every block of the
    cluster, each of which loads its share (`rank` is in the expressions).
    """

    offset: str
    coordinates: tuple[str, ...]
    multicast: bool = False


def shared_by_cluster(g: Geometry, op: Operand) -> bool:
    """True when the blocks of a cluster need the same tile of `op` and load half of it each."""
    s = g.schedule
    return s.cluster_m == 2 if op.role == "rhs" else s.cluster_n == 2


# ---------------------------------------------------------------- maps
def operand_map(g: Geometry, nest: Nest, op: Operand) -> TensorMap:
    """Tensor map of an operand: box rows of 128 bytes, 128-byte swizzle, zeros outside."""
    buffer = nest.param(op.role)
    if buffer.window is not None:
        return _image_map(g, buffer, buffer.window)
    halves = op.is_k_major and shared_by_cluster(g, op)
    rows = op.tile // 2 if halves else op.panel_rows
    return _map(g, buffer, g.wgmma.map_dtype, (op.row_elements, rows))


def result_map(g: Geometry, buffer: Buffer) -> TensorMap:
    """Tensor map of a result or of partial sums: one panel is one box."""
    if g.patch is None:
        return _map(g, buffer, buffer.dtype, (g.panel_columns, g.panel_rows))
    p = g.problem
    assert isinstance(p, Conv2d)
    assert buffer.role is not None
    dims = (p.n, p.out_width, p.out_height, p.batch)
    pitches = (p.n, p.n * p.out_width, p.n * p.out_width * p.out_height)
    box = (g.panel_columns, g.patch.width, g.patch.height, g.patch.images)
    strides = _strides(dims, pitches, DTYPES[buffer.dtype].size_bytes)
    return TensorMap(buffer.role, buffer.dtype, dims, strides, box, (1,) * 4)


def _map(g: Geometry, buffer: Buffer, dtype: str, box: tuple[int, int]) -> TensorMap:
    """A map of the buffer's axes, innermost first; broadcast ones (stride 0) have no dimension."""
    assert buffer.role is not None
    axes = [(n, s) for n, s in zip(buffer.shape, buffer.strides, strict=True) if s > 0][::-1]
    dims = tuple(n for n, _ in axes)
    strides = _strides(dims, tuple(s for _, s in axes[1:]), DTYPES[buffer.dtype].size_bytes)
    whole = (*box, *(1 for _ in axes[2:]))
    sized = _sized(g, buffer)
    dims = tuple(1 if i in dict(sized) else n for i, n in enumerate(dims))
    return TensorMap(buffer.role, dtype, dims, strides, whole, (1,) * len(dims), sized=sized)


def _sized(g: Geometry, buffer: Buffer) -> tuple[tuple[int, str], ...]:
    """Which dimensions of a map, innermost first, a call brings."""
    kept = [a for a, s in zip(buffer.axes, buffer.strides, strict=True) if s > 0][::-1]
    names = {"m": "m" if buffer.rows else "", "b0": "batch0"}
    sizes = ((i, names.get(axis, "")) for i, axis in enumerate(kept))
    return tuple((i, name) for i, name in sizes if name and name in g.problem.dynamic)


def _image_map(g: Geometry, buffer: Buffer, window: Window) -> TensorMap:
    """Input pixels: channels, width, height, images; a box is the patch, seen with the stride."""
    p = g.problem
    assert isinstance(p, Conv2d)
    assert g.patch is not None
    dims = (p.in_channels, p.width, p.height, p.batch)
    strides = _strides(dims, buffer.strides[2::-1], DTYPES[buffer.dtype].size_bytes)
    step_y, step_x = window.stride
    box = (
        g.a.row_elements,
        (g.patch.width - 1) * step_x + 1,
        (g.patch.height - 1) * step_y + 1,
        g.patch.images,
    )
    return TensorMap("lhs", g.wgmma.map_dtype, dims, strides, box, (1, step_x, step_y, 1))


def _strides(dims: tuple[int, ...], pitches: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Strides in bytes; that of a dimension of one entry is never used and made legal."""
    return tuple(
        -(-pitch * size // 16) * 16 if dim == 1 else pitch * size
        for dim, pitch in zip(dims[1:], pitches, strict=True)
    )


# ---------------------------------------------------------------- boxes
def operand_boxes(g: Geometry, nest: Nest, op: Operand) -> tuple[Box, ...]:
    """The TMA loads of one stage of `op`."""
    region = nest.copy_of(op.role).src
    multicast = shared_by_cluster(g, op)
    if nest.param(op.role).window is not None:
        return _patch_boxes(op, nest.starts(region)["k"], multicast)
    return _k_major_boxes(nest, op, region, multicast) if op.is_k_major else _mn_major_boxes(
        nest, op, region, multicast
    )  # fmt: skip


def _coordinates(nest: Nest, region: Region) -> list[Affine]:
    """Starts, innermost first, without broadcast axes."""
    buffer = nest.buffers[region.buffer]
    kept = [s for s, stride in zip(region.starts, buffer.strides, strict=True) if stride > 0]
    return kept[::-1]


def _k_major_boxes(nest: Nest, op: Operand, region: Region, multicast: bool) -> tuple[Box, ...]:
    k, row, *batch = _coordinates(nest, region)
    half = f" + rank * {op.tile // 2}" if multicast else ""
    share = f" + rank * {op.panel_bytes // 2}u" if multicast else ""
    return tuple(
        Box(
            f"{panel * op.panel_bytes}u{share}",
            (
                expression(k + panel * op.row_elements),
                expression(row) + half,
                *map(expression, batch),
            ),
            multicast,
        )
        for panel in range(op.panels)
    )


def _mn_major_boxes(nest: Nest, op: Operand, region: Region, multicast: bool) -> tuple[Box, ...]:
    column, *others = _coordinates(nest, region)
    count = op.panels // 2 if multicast else op.panels
    share = f" + rank * {count * op.panel_bytes}u" if multicast else ""
    half = f" + rank * {count * op.row_elements}" if multicast else ""
    return tuple(
        Box(
            f"{panel * op.panel_bytes}u{share}",
            (expression(column + panel * op.row_elements) + half, *map(expression, others)),
            multicast,
        )
        for panel in range(count)
    )


def patches_loaded(g: Geometry) -> int:
    """Patches of a block's image tile that its own producer loads."""
    return g.a.tile // ATOM_ROWS // (2 if shared_by_cluster(g, g.a) else 1)


def _patch_boxes(op: Operand, channel: Affine, multicast: bool) -> tuple[Box, ...]:
    """One box a patch; `patch[i]`, `dx` and `dy` are the producer's."""
    patches = op.tile // ATOM_ROWS
    count = patches // 2 if multicast else patches
    return tuple(
        Box(
            (f"({i} + rank * {count}) * 8192u" if multicast else f"{i * 8192}u")
            + (f" + {panel * op.panel_bytes}u" if panel else ""),
            (
                expression(channel + panel * op.row_elements),
                f"patch[{i}].x + dx",
                f"patch[{i}].y + dy",
                f"patch[{i}].image",
            ),
            multicast,
        )
        for i in range(count)
        for panel in range(op.panels)
    )


def store_coordinates(nest: Nest, region: Region, column: str, row: str) -> tuple[str, ...]:
    """Coordinates of a panel in a result: column and row are C++, the rest the region's."""
    _, _, *batch = _coordinates(nest, region)
    return (column, row, *map(expression, batch))
