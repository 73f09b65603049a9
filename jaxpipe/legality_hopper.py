"""Is a schedule of family "hopper" legal for this problem on this target? Reasons as data.

In: schedule, problem, arch. Out: reasons, each with what, got, limit and remedy. Shapes are
checked first; only when they make sense is the geometry computed and checked. Must not know the
IR or the emitter. Limits: PTX ISA (wgmma, setmaxnreg, mbarrier), CUDA driver API (tensor maps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jaxpipe.dtypes import DTYPES
from jaxpipe.geometry_hopper import ATOM_ROWS, SWIZZLE_PERIOD_BYTES, Geometry, Operand, geometry
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch
from jaxpipe.wgmma import CONSUMER_OVERHEAD_REGISTERS, WGMMAS

MAX_BOX = 256  # elements of a tensor-map box along one dimension
MAX_EXTENT = 2**31 - 1  # coordinates are signed 32-bit
MAX_STRIDE_BYTES = 2**40
MAX_ELEMENT_STRIDE = 8
MAX_STAGES = 16
STORE_DTYPES = {"f32": ("float32", "bfloat16", "float16"), "s32": ("int32", "float32")}
BIAS_DTYPES = ("float32", "bfloat16", "float16", "int32")

ShapeRule = Callable[[GpuSchedule, Problem, Arch], Iterator[str]]
GeometryRule = Callable[[Geometry, Arch], Iterator[str]]


def hopper_reasons(schedule: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """Reasons why the Hopper family cannot serve `problem` with `schedule` on `arch`."""
    found = [r for rule in _SHAPE_RULES for r in rule(schedule, problem, arch)]
    if not found:
        g = geometry(problem, schedule)
        found = [r for rule in _GEOMETRY_RULES for r in rule(g, arch)]
    yield from found


# ---------------------------------------------------------------- shapes alone
def _target(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if not (arch.has_tma and arch.has_wgmma):
        yield f"family hopper needs TMA and wgmma, {arch.name} has not both: use family=ampere"


def _dtypes(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if problem.dtype not in WGMMAS:
        yield f"wgmma takes {', '.join(WGMMAS)}, got {problem.dtype}"
        return
    accumulator = WGMMAS[problem.dtype].accumulator
    if problem.out_dtype not in STORE_DTYPES[accumulator]:
        yield (
            f"{accumulator} sums are stored as {' or '.join(STORE_DTYPES[accumulator])}, "
            f"got out_dtype={problem.out_dtype}: use family=ampere"
        )


def _epilogue(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """What the epilogue can read, and that sums of integers are finished as integers."""
    e = problem.epilogue
    if e.bias != "none" and problem.bias_dtype not in BIAS_DTYPES:
        yield (
            f"bias of {problem.bias_dtype}: the Hopper epilogue reads {', '.join(BIAS_DTYPES)}, "
            f"use family=ampere"
        )
    if problem.out_dtype != "int32":
        return
    is_whole = e.bias == "none" or problem.bias_dtype == "int32"
    if e.alpha != 1.0 or e.activation not in ("none", "relu") or not is_whole:
        yield (
            f"int32 results with {e.describe()} (bias of {problem.bias_dtype}): they take an int32 "
            f"bias, relu and a residual only, use family=ampere"
        )


def _roles(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if not 1 <= s.consumers <= 3:
        yield f"consumers={s.consumers}: use 1 to 3 warpgroups"
    if s.ping_pong and s.consumers != 2:
        yield f"ping_pong with consumers={s.consumers}: two warpgroups take turns, use 2"
    if min(s.raster_group, s.persistent_blocks, s.split_k) < 1:
        yield (
            f"raster_group={s.raster_group}, persistent_blocks={s.persistent_blocks}, "
            f"split_k={s.split_k}: each at least 1"
        )


def _stages(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if not 1 <= s.smem_stages <= MAX_STAGES:
        yield f"smem_stages={s.smem_stages}: use 1 to {MAX_STAGES}"
    if s.reg_stages not in (1, 2):
        yield f"reg_stages={s.reg_stages}: use 1 (drain each step) or 2 (one wgmma group in flight)"
    elif s.smem_stages < s.reg_stages:
        yield (
            f"smem_stages={s.smem_stages} with reg_stages={s.reg_stages}: the group in flight "
            f"holds its stage, so the ring would stop; use smem_stages >= {s.reg_stages}"
        )


def _block(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if problem.dtype not in WGMMAS:
        return
    size = DTYPES[problem.dtype].size_bytes
    if s.block_k * size not in (128, 256):
        yield (
            f"block_k={s.block_k} of {problem.dtype} is {s.block_k * size} bytes a row, "
            f"use {128 // size} or {256 // size}"
        )
    names = ("block_n", "block_m") if s.swap_operands else ("block_m", "block_n")
    rows, columns = (getattr(s, name) for name in names)
    groups = 1 if s.ping_pong else max(s.consumers, 1)
    if rows < 1 or rows % (ATOM_ROWS * groups) or rows > MAX_BOX:
        yield (
            f"{names[0]}={rows} over {groups} warpgroups of 64 rows each: use a multiple of "
            f"{ATOM_ROWS * groups} up to {MAX_BOX}"
        )
    step = _column_step(s, problem)
    if columns < 1 or columns % step or columns > 256:
        yield f"{names[1]}={columns} columns of wgmma: use a multiple of {step} up to 256"


def _column_step(s: GpuSchedule, problem: Problem) -> int:
    """What the width of b must be a multiple of: panels of 64 unless swapped and K-major."""
    if not s.swap_operands or (isinstance(problem, Matmul) and problem.lhs.transposed):
        return 64
    return WGMMAS[problem.dtype].b_multiple


def _cluster(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if (s.cluster_m, s.cluster_n) not in ((1, 1), (2, 1), (1, 2)):
        yield f"cluster {s.cluster_m}x{s.cluster_n}: use 1x1, 2x1 or 1x2"


def _swap(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """Refused before a geometry is made: patches of pixels are counted in whole atoms."""
    if s.swap_operands and isinstance(problem, Conv2d):
        yield "swap_operands of a convolution is not built: use swap_operands=0"


# ---------------------------------------------------------------- with the geometry
def _majors(g: Geometry, arch: Arch) -> Iterator[str]:
    for op in (g.a, g.b):
        if not (op.is_k_major or g.wgmma.has_major):
            yield (
                f"{op.role} of {g.problem.dtype} is not contiguous along k, which wgmma needs for "
                f"all but 16-bit operands: use family=ampere or transpose it"
            )


def _copies(g: Geometry, arch: Arch) -> Iterator[str]:
    for op in (g.a, g.b):
        if op.copy == "cp_async" and g.schedule.tma:
            yield (
                f"rows of {op.role} start at multiples of {op.alignment_bytes} bytes, TMA needs "
                f"16: use tma=0 (cp.async producer) or family=ampere"
            )
    if g.copy == "cp_async" and g.cluster > 1:
        yield f"cp.async cannot multicast to a cluster of {g.cluster}: use cluster 1x1"


def _extents(g: Geometry, arch: Arch) -> Iterator[str]:
    p = g.problem
    worst = max(p.m, p.n, p.k, g.total_tiles * g.cluster)
    if worst > MAX_EXTENT:
        yield f"an extent of {worst}: coordinates of TMA are 32-bit, use family=ampere"
    if isinstance(p, Matmul):
        strides = (p.lhs_ld, p.rhs_ld, *p.lhs_batch_strides, *p.rhs_batch_strides)
        worst = max(strides) * DTYPES[p.dtype].size_bytes
        if worst >= MAX_STRIDE_BYTES:
            yield f"a stride of {worst} bytes: tensor maps hold less than {MAX_STRIDE_BYTES}"


def _convolution(g: Geometry, arch: Arch) -> Iterator[str]:
    p = g.problem
    if not isinstance(p, Conv2d):
        return
    assert g.patch is not None
    if g.copy == "cp_async":
        yield (
            f"convolution with {p.in_channels} and {p.out_channels} channels of {p.dtype}: TMA "
            f"needs rows of 16 bytes and tma=1; use family=ampere"
        )
    if max(p.stride) > MAX_ELEMENT_STRIDE:
        yield f"stride {p.stride}: a tensor map steps by at most {MAX_ELEMENT_STRIDE}"
    box = max((g.patch.width - 1) * p.stride[1], (g.patch.height - 1) * p.stride[0]) + 1
    if box > MAX_BOX:
        yield f"a patch spans {box} input pixels, a tensor-map box {MAX_BOX}: use family=ampere"


def _multicast(g: Geometry, arch: Arch) -> Iterator[str]:
    s = g.schedule
    if g.cluster == 1:
        return
    role = "rhs" if s.cluster_m == 2 else "lhs"
    op = g.a if g.a.role == role else g.b
    if _cannot_halve(op, isinstance(g.problem, Conv2d)):
        yield (
            f"each block of a cluster loads half of {op.role}, whose tile of {op.tile} "
            f"({'K' if op.is_k_major else 'MN'}-major) does not halve: use cluster 1x1"
        )


def _cannot_halve(op: Operand, in_patches: bool) -> bool:
    if not op.is_k_major:
        return op.panels % 2 != 0
    return op.tile % (2 * ATOM_ROWS if in_patches and op.role == "lhs" else 16) != 0


def _registers(g: Geometry, arch: Arch) -> Iterator[str]:
    have, need = g.registers.consumer, g.accumulators + CONSUMER_OVERHEAD_REGISTERS
    if need > have:
        yield (
            f"{g.group_rows}x{g.b.tile} results of a warpgroup need {g.accumulators} accumulators "
            f"and about {CONSUMER_OVERHEAD_REGISTERS} more registers a thread, "
            f"{g.schedule.consumers} consumers leave {have}: use a smaller block or more consumers"
        )


def _shared(g: Geometry, arch: Arch) -> Iterator[str]:
    need, limit = g.shared.total_bytes, arch.shared_per_block_bytes
    if need > limit:
        stage = g.a.stage_bytes + g.b.stage_bytes + 16
        most = (limit - need) // stage + g.schedule.smem_stages
        remedy = (
            f"use at most {most} stages or a smaller block" if most > 0 else "use a smaller block"
        )
        yield (
            f"{g.schedule.smem_stages} stages of {stage - 16} bytes, epilogue panels and "
            f"{SWIZZLE_PERIOD_BYTES} bytes of alignment need {need} bytes of shared memory per "
            f"block, {arch.name} allows {limit}: {remedy}"
        )


def _split(g: Geometry, arch: Arch) -> Iterator[str]:
    split, steps = g.schedule.split_k, g.k_tiles
    if split == 1:
        return
    if isinstance(g.problem, Conv2d):
        yield "split_k of a convolution is not built: use split_k=1"
    elif (split - 1) * g.k_tiles_per_split >= steps:
        most = -(-steps // g.k_tiles_per_split) if steps else 1
        yield f"split_k={split} of {steps} k tiles leaves an empty split: use {max(most, 1)}"


_SHAPE_RULES: tuple[ShapeRule, ...] = (
    _target, _dtypes, _epilogue, _roles, _stages, _block, _cluster, _swap,
)  # fmt: skip
_GEOMETRY_RULES: tuple[GeometryRule, ...] = (
    _majors, _copies, _extents, _convolution, _multicast, _registers, _shared, _split,
)  # fmt: skip
