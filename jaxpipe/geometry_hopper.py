"""Where everything of a Hopper block lies: wgmma shapes, operand tiles, shared memory, registers.

In: a problem and a schedule of family "hopper". Out: plain numbers that legality, the pass
`specialize` and the emitter share, so that what is checked is what is emitted. It must not know
the IR or CUDA text.

wgmma computes D[a][b] += A[a][k] * B[b][k]: `a` comes in rows of 64 a warpgroup, `b` in columns of
8 to 256. Without `swap_operands` a is m and b is n; with it a is n and b is m.
Sources: PTX ISA, wgmma.mma_async and its shared-memory layouts; CUDA driver API, tensor maps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from jaxpipe import dynamic
from jaxpipe.dtypes import DTYPES
from jaxpipe.problem import Conv2d, Problem, as_matmul
from jaxpipe.schedule import GpuSchedule
from jaxpipe.wgmma import REGISTER_SPLITS, WGMMAS, Copy, RegisterSplit, Wgmma

ROW_BYTES = 128  # a shared row: the widest swizzle, 8 chunks of 16 bytes
ATOM_ROWS = 64  # rows of one wgmma
PANEL_BUFFERS = 2  # epilogue panels of a warpgroup: one is stored while the next is written
SWIZZLE_PERIOD_BYTES = 1024  # every tile starts on a multiple of it, so descriptors need no offset

Role = Literal["lhs", "rhs"]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand as wgmma sees it: `tile` rows along its extent, each `block_k` terms of k.

    Shared image of one stage. K-major: one panel per 128 bytes of k, each `tile` rows of 128
    bytes. MN-major: one panel per 128 bytes of the extent, each `block_k` rows. alignment_bytes:
    the largest power of two (at most 16) that divides every row's address.
    """

    role: Role
    extent: int
    tile: int
    block_k: int
    size_bytes: int
    is_k_major: bool
    alignment_bytes: int
    copy: Copy

    @property
    def row_elements(self) -> int:
        """Elements of one shared row."""
        return ROW_BYTES // self.size_bytes

    @property
    def panels(self) -> int:
        """Panels of one stage."""
        along = self.block_k if self.is_k_major else self.tile
        return along // self.row_elements

    @property
    def panel_rows(self) -> int:
        """Rows of one panel."""
        return self.tile if self.is_k_major else self.block_k

    @property
    def panel_bytes(self) -> int:
        """Bytes of one panel: a multiple of the swizzle's period."""
        return self.panel_rows * ROW_BYTES

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of this operand."""
        return self.panels * self.panel_bytes

    @property
    def atom_bytes(self) -> int:
        """Bytes between the starts of neighbouring 64-row atoms of the tile."""
        panel = self.panel_bytes * ATOM_ROWS // self.row_elements
        return ATOM_ROWS * ROW_BYTES if self.is_k_major else panel


@dataclass(frozen=True, slots=True)
class Patch:
    """64 output pixels of a convolution that one tensor-map box covers: width, height, images."""

    width: int
    height: int
    images: int

    def counts(self, conv: Conv2d) -> tuple[int, int, int]:
        """Patches across the result: along width, height and images."""
        return (
            -(-conv.out_width // self.width),
            -(-conv.out_height // self.height),
            -(-conv.batch // self.images),
        )

    def waste(self, conv: Conv2d) -> float:
        """Computed rows over wanted rows; 1.0 is none."""
        return math.prod(self.counts(conv)) * ATOM_ROWS / max(conv.m, 1)


def patch_of(conv: Conv2d) -> Patch:
    """The patch that wastes the fewest rows; of equals the widest, then the tallest."""
    powers = [1 << i for i in range(7)]
    patches = [
        Patch(w, h, ATOM_ROWS // (w * h)) for w in powers for h in powers if w * h <= ATOM_ROWS
    ]
    return min(patches, key=lambda p: (p.waste(conv), -p.width, -p.height))


@dataclass(frozen=True, slots=True)
class SharedMap:
    """Byte offsets from the 1024-aligned start of a block's shared memory, and its size.

    a, b: the rings (stage s at `a + s * a_stage`). panels: epilogue staging, `panel_bytes` each,
    PANEL_BUFFERS a warpgroup. full, empty: mbarriers of the ring, 8 bytes a stage; turn: the two
    of ping-pong. total_bytes includes the slack that aligning the start may cost, at most 1008
    bytes of 1024; one: a number of the epilogue's in the rest of it.
    """

    a: int
    b: int
    panels: int
    panel_bytes: int
    full: int
    empty: int
    turn: int
    one: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """A problem under a Hopper schedule, in wgmma's terms."""

    problem: Problem
    schedule: GpuSchedule
    wgmma: Wgmma
    a: Operand
    b: Operand
    patch: Patch | None

    # ------------------------------------------------------------------ work of a warpgroup
    @property
    def group_rows(self) -> int:
        """Rows of a that one consumer warpgroup accumulates."""
        s = self.schedule
        return self.a.tile if s.ping_pong else self.a.tile // s.consumers

    @property
    def atoms(self) -> int:
        """wgmma atoms of 64 rows of one consumer warpgroup."""
        return self.group_rows // ATOM_ROWS

    @property
    def accumulators(self) -> int:
        """Accumulator registers of one consumer thread."""
        return self.atoms * self.b.tile // 2

    @property
    def k_instructions(self) -> int:
        """wgmma along k in one stage."""
        return self.schedule.block_k // self.wgmma.k

    @property
    def copy(self) -> Copy:
        """How the producer works: cp_async when any operand needs it."""
        return "cp_async" if "cp_async" in (self.a.copy, self.b.copy) else "tma"

    @property
    def registers(self) -> RegisterSplit:
        """Registers of producer and consumer threads."""
        return REGISTER_SPLITS[self.schedule.consumers, self.copy]

    # ------------------------------------------------------------------ tiles
    @property
    def cluster(self) -> int:
        """Blocks of one cluster."""
        return self.schedule.cluster_m * self.schedule.cluster_n

    @property
    def tiles_m(self) -> int:
        """Tiles along m of one block, not counting clusters."""
        if self.patch is None:
            return -(-self.problem.m // self.schedule.block_m)
        assert isinstance(self.problem, Conv2d)
        atoms = math.prod(self.patch.counts(self.problem))
        return -(-atoms // (self.schedule.block_m // ATOM_ROWS))

    @property
    def tiles_n(self) -> int:
        """Tiles along n."""
        return -(-self.problem.n // self.schedule.block_n)

    @property
    def cluster_tiles_m(self) -> int:
        """Tiles of a whole cluster along m."""
        return -(-self.tiles_m // self.schedule.cluster_m)

    @property
    def cluster_tiles_n(self) -> int:
        """Tiles of a whole cluster along n."""
        return -(-self.tiles_n // self.schedule.cluster_n)

    @property
    def is_ragged_m(self) -> bool:
        """True when some block of some cluster reaches past the last row of the result."""
        return self.problem.m % (self.schedule.block_m * self.schedule.cluster_m) != 0

    @property
    def is_ragged_n(self) -> bool:
        """True when some block of some cluster reaches past the last column."""
        return self.problem.n % (self.schedule.block_n * self.schedule.cluster_n) != 0

    @property
    def rows(self) -> str:
        """The rows of the result as C++: a number, or the parameter that a call brings."""
        return dynamic.ROWS if dynamic.has_rows(self.problem) else str(self.problem.m)

    @property
    def total_tiles(self) -> int:
        """Cluster tiles of the launch: along n, m, batch and splits of k."""
        plane = self.cluster_tiles_m * self.cluster_tiles_n
        return plane * self.problem.batch_size * self.schedule.split_k

    @property
    def blocks(self) -> int:
        """Blocks of the persistent grid."""
        clusters = max(self.schedule.persistent_blocks // self.cluster, 1)
        return min(self.total_tiles, clusters) * self.cluster

    # ------------------------------------------------------------------ k
    @property
    def channel_tiles(self) -> int:
        """Tiles along the innermost part of k: all of k, or the input channels."""
        p = self.problem
        inner = p.in_channels if isinstance(p, Conv2d) else p.k
        return -(-inner // self.schedule.block_k)

    @property
    def k_tiles(self) -> int:
        """Tiles along k, over filter rows and columns too."""
        p = self.problem
        taps = p.kernel[0] * p.kernel[1] if isinstance(p, Conv2d) else 1
        return taps * self.channel_tiles

    @property
    def k_tiles_per_split(self) -> int:
        """Tiles along k of every split but possibly the last."""
        return -(-self.k_tiles // self.schedule.split_k)

    # ------------------------------------------------------------------ results
    @property
    def stores_partials(self) -> bool:
        """True when the kernel leaves float32 (int32) partial sums to a second launch."""
        return self.schedule.split_k > 1

    @property
    def store_dtype(self) -> str:
        """dtype of what this kernel stores: the result's, or the accumulator's under split-K."""
        return self.problem.accumulator if self.stores_partials else self.problem.out_dtype

    @property
    def panel_columns(self) -> int:
        """Result columns (n) of one 128-byte panel row."""
        return ROW_BYTES // DTYPES[self.store_dtype].size_bytes

    @property
    def panel_parts(self) -> int:
        """128-byte wide boxes of one panel: a swapped atom has 64 columns whatever their size."""
        return ATOM_ROWS // self.panel_columns if self.schedule.swap_operands else 1

    @property
    def panel_rows(self) -> int:
        """Result rows (m) of one panel."""
        return self.b.tile if self.schedule.swap_operands else ATOM_ROWS

    @property
    def has_tma_store(self) -> bool:
        """True when the result's rows are multiples of 16 bytes, so that TMA can store them."""
        rows = self.problem.m * self.problem.batch_size * self.schedule.split_k
        return rows == 1 or self.problem.n * DTYPES[self.store_dtype].size_bytes % 16 == 0

    @property
    def shared(self) -> SharedMap:
        """The shared memory of one block."""
        s = self.schedule
        b = s.smem_stages * self.a.stage_bytes
        panels = b + s.smem_stages * self.b.stage_bytes
        panel_bytes = self.panel_parts * self.panel_rows * ROW_BYTES
        full = panels + s.consumers * PANEL_BUFFERS * panel_bytes
        empty = full + 8 * s.smem_stages
        turn = empty + 8 * s.smem_stages
        end = turn + (16 if s.ping_pong else 0)
        total = end + SWIZZLE_PERIOD_BYTES
        return SharedMap(0, b, panels, panel_bytes, full, empty, turn, end, total)


def geometry(problem: Problem, schedule: GpuSchedule) -> Geometry:
    """The geometry of `problem` under `schedule`; its dtype must be in WGMMAS.

    A pointwise convolution is the product that its nest is (transform/build.py): no patches.
    """
    if isinstance(problem, Conv2d) and problem.is_pointwise:
        problem = as_matmul(problem)
    lhs = _operand("lhs", problem, schedule)
    rhs = _operand("rhs", problem, schedule)
    a, b = (rhs, lhs) if schedule.swap_operands else (lhs, rhs)
    patch = patch_of(problem) if isinstance(problem, Conv2d) else None
    return Geometry(problem, schedule, WGMMAS[problem.dtype], a, b, patch)


def _operand(role: Role, problem: Problem, schedule: GpuSchedule) -> Operand:
    extent, tile = {
        "lhs": (problem.m, schedule.block_m),
        "rhs": (problem.n, schedule.block_n),
    }[role]
    size = DTYPES[problem.dtype].size_bytes
    alignment = operand_alignment(problem, role)
    return Operand(
        role, extent, tile, schedule.block_k, size, is_k_major(problem, role), alignment,
        _copy(problem, role, schedule),
    )  # fmt: skip


def is_k_major(problem: Problem, role: Role) -> bool:
    """True when the operand is contiguous along k. A convolution's filter (HWIO) is not."""
    if isinstance(problem, Conv2d):
        return role == "lhs"
    return not problem.lhs.transposed if role == "lhs" else problem.rhs.transposed


def operand_alignment(problem: Problem, role: Role) -> int:
    """Bytes, at most 16, that divide the address of every stored row of the operand.

    A row pitch or batch stride that is never used (one row, one batch entry, broadcast) does not
    count. XLA aligns the base of every buffer to 16 bytes or more.
    """
    size = DTYPES[problem.dtype].size_bytes
    return math.gcd(16, *(stride * size for stride in _used_strides(problem, role)))


def _used_strides(problem: Problem, role: Role) -> list[int]:
    if isinstance(problem, Conv2d):
        return [problem.in_channels if role == "lhs" else problem.out_channels]
    if role == "lhs":
        ld, strides, free = problem.lhs_ld, problem.lhs_batch_strides, problem.m
    else:
        ld, strides, free = problem.rhs_ld, problem.rhs_batch_strides, problem.n
    rows = free if is_k_major(problem, role) else problem.k
    used = [s for size, s in zip(problem.batch, strides, strict=True) if size > 1 and s > 0]
    return used + ([ld] if rows > 1 else [])


def _copy(problem: Problem, role: Role, schedule: GpuSchedule) -> Copy:
    """TMA where it can address the operand; `tma=False` forces cp.async where both could go."""
    if operand_alignment(problem, role) % 16:
        return "cp_async"
    both = operand_alignment(problem, "lhs") == operand_alignment(problem, "rhs") == 16
    return "cp_async" if both and not schedule.tma else "tma"
