"""Tensor maps of a Hopper kernel, and the boxes that one stage loads and one panel stores.

In: a Geometry. Out: TensorMap records for the launch and Box records (where in the stage, at which
coordinates) for the emitter: both come from here so that they agree. Coordinates are C++
expressions over `k0`, `m0`, `n0`, `batch0`, `batch1` and, for convolutions, the position of a
patch. Source: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.geometry_hopper import ATOM_ROWS, Geometry, Operand
from jaxpipe.kernel import BufferRole, TensorMap
from jaxpipe.problem import DTYPES, Conv2d, Matmul


@dataclass(frozen=True, slots=True)
class Box:
    """One TMA load of a stage: byte offset in the operand's stage, coordinates innermost first.

    offset and coordinates are C++ expressions; multicast: the box goes to every block of the
    cluster, each of which loads its share (`rank` is in the expressions).
    """

    offset: str
    coordinates: tuple[str, ...]
    multicast: bool = False


# ---------------------------------------------------------------- operands
def operand_map(g: Geometry, op: Operand) -> TensorMap:
    """Tensor map of an operand: box rows of 128 bytes, 128-byte swizzle, zeros outside."""
    if isinstance(g.problem, Conv2d):
        return _image_map(g, g.problem) if op.role == "lhs" else _filter_map(g, g.problem)
    p = g.problem
    ld, strides = (
        (p.lhs_ld, p.lhs_batch_strides) if op.role == "lhs" else (p.rhs_ld, p.rhs_batch_strides)
    )
    inner, outer = (p.k, op.extent) if op.is_k_major else (op.extent, p.k)
    batch = [(n, s) for n, s in zip(p.batch, strides, strict=True) if s > 0][::-1]
    dims = (inner, outer, *(n for n, _ in batch))
    pitches = (ld, *(s for _, s in batch))
    box = (op.row_elements, _box_rows(g, op), *(1 for _ in batch))
    return _map(op.role, g.wgmma.map_dtype, dims, pitches, box, op.size_bytes)


def _box_rows(g: Geometry, op: Operand) -> int:
    if op.is_k_major and shared_by_cluster(g, op):
        return op.tile // 2
    return op.panel_rows


def _image_map(g: Geometry, p: Conv2d) -> TensorMap:
    """Input pixels: channels, width, height, images; a box is the patch, seen with the stride."""
    assert g.patch is not None
    size = DTYPES[p.dtype].size_bytes
    dims = (p.in_channels, p.width, p.height, p.batch)
    pitches = (p.in_channels, p.in_channels * p.width, p.in_channels * p.width * p.height)
    box = (
        g.a.row_elements,
        (g.patch.width - 1) * p.stride[1] + 1,
        (g.patch.height - 1) * p.stride[0] + 1,
        g.patch.images,
    )
    steps = (1, p.stride[1], p.stride[0], 1)
    return _map("lhs", g.wgmma.map_dtype, dims, pitches, box, size, steps)


def _filter_map(g: Geometry, p: Conv2d) -> TensorMap:
    """Filter HWIO: output channels, input channels, taps."""
    size = DTYPES[p.dtype].size_bytes
    dims = (p.out_channels, p.in_channels, p.kernel[0] * p.kernel[1])
    pitches = (p.out_channels, p.out_channels * p.in_channels)
    box = (g.b.row_elements, g.b.panel_rows, 1)
    return _map("rhs", g.wgmma.map_dtype, dims, pitches, box, size)


def _map(
    role: BufferRole,
    dtype: str,
    dims: tuple[int, ...],
    pitches: tuple[int, ...],
    box: tuple[int, ...],
    size: int,
    steps: tuple[int, ...] = (),
) -> TensorMap:
    """A map from pitches in elements; the pitch of a dimension of one entry is made legal."""
    strides = tuple(
        -(-pitch * size // 16) * 16 if dim == 1 else pitch * size
        for dim, pitch in zip(dims[1:], pitches, strict=True)
    )
    return TensorMap(role, dtype, dims, strides, box, steps or (1,) * len(dims))


def shared_by_cluster(g: Geometry, op: Operand) -> bool:
    """True when the blocks of a cluster need the same tile of `op` and load half of it each."""
    s = g.schedule
    return s.cluster_m == 2 if op.role == "rhs" else s.cluster_n == 2


def operand_boxes(g: Geometry, op: Operand) -> tuple[Box, ...]:
    """The TMA loads of one stage of `op`."""
    multicast = shared_by_cluster(g, op)
    if g.patch is not None and op.role == "lhs":
        return _patch_boxes(g, op, multicast)
    return _k_major_boxes(g, op, multicast) if op.is_k_major else _mn_major_boxes(g, op, multicast)


def _k_major_boxes(g: Geometry, op: Operand, multicast: bool) -> tuple[Box, ...]:
    origin = _origin(op)
    rows = f"{origin} + rank * {op.tile // 2}" if multicast else origin
    share = f" + rank * {op.panel_bytes // 2}u" if multicast else ""
    return tuple(
        Box(
            f"{panel * op.panel_bytes}u{share}",
            (_plus("k0", panel * op.row_elements), rows, *_batch(g, op)),
            multicast,
        )
        for panel in range(op.panels)
    )


def _mn_major_boxes(g: Geometry, op: Operand, multicast: bool) -> tuple[Box, ...]:
    count = op.panels // 2 if multicast else op.panels
    share = f" + rank * {count * op.panel_bytes}u" if multicast else ""
    shift = f" + rank * {count * op.row_elements}" if multicast else ""
    return tuple(
        Box(
            f"{panel * op.panel_bytes}u{share}",
            (_plus(_origin(op), panel * op.row_elements) + shift, *_k(g), *_batch(g, op)),
            multicast,
        )
        for panel in range(count)
    )


def _patch_boxes(g: Geometry, op: Operand, multicast: bool) -> tuple[Box, ...]:
    """One box a patch; `patch_*(i)` of the block's i-th patch are the emitter's."""
    patches = op.tile // ATOM_ROWS
    count = patches // 2 if multicast else patches
    own = f" + rank * {count}" if multicast else ""
    return tuple(
        Box(
            f"({i}{own}) * {ATOM_ROWS * 128}u + {panel * op.panel_bytes}u",
            (
                _plus("c0", panel * op.row_elements),
                f"patch[{i}].x + dx",
                f"patch[{i}].y + dy",
                f"patch[{i}].image",
            ),
            multicast,
        )
        for i in range(count)
        for panel in range(op.panels)
    )  # fmt: skip


def _origin(op: Operand) -> str:
    return {"lhs": "m0", "rhs": "n0"}[op.role]


def _k(g: Geometry) -> tuple[str, ...]:
    return ("c0", "tap") if isinstance(g.problem, Conv2d) else ("k0",)


def _batch(g: Geometry, op: Operand) -> tuple[str, ...]:
    """Coordinates of the batch dimensions that the operand has (a broadcast one has none)."""
    if not isinstance(g.problem, Matmul):
        return ()
    p = g.problem
    strides = p.lhs_batch_strides if op.role == "lhs" else p.rhs_batch_strides
    return tuple(f"batch{i}" for i, s in enumerate(strides) if s > 0)[::-1]


def _plus(name: str, offset: int) -> str:
    return f"{name} + {offset}" if offset else name


# ---------------------------------------------------------------- results
def result_map(g: Geometry, role: BufferRole) -> TensorMap:
    """Tensor map of a result (or of partial sums): one panel is one box."""
    p, s = g.problem, g.schedule
    size = DTYPES[g.store_dtype].size_bytes
    if isinstance(p, Conv2d):
        assert g.patch is not None
        dims = (p.n, p.out_width, p.out_height, p.batch)
        pitches = (p.n, p.n * p.out_width, p.n * p.out_width * p.out_height)
        box = (g.panel_columns, g.patch.width, g.patch.height, g.patch.images)
        return _map(role, g.store_dtype, dims, pitches, box, size)
    planes = p.batch_size * s.split_k
    outer = (planes,) if planes > 1 else ()
    return _map(
        role, g.store_dtype, (p.n, p.m, *outer), (p.n, *(p.n * p.m for _ in outer)),
        (g.panel_columns, g.panel_rows, *(1 for _ in outer)), size,
    )  # fmt: skip
