"""The straight list of passes from a problem to nests that a code generator can print.

In: problem, schedule, target. Out: one `Lowered` a launch, with the nest after every named stage
and the verdicts on its buffers. Conditions here depend on the schedule and the target only.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.dtypes import DTYPES
from jaxpipe.ir.nodes import Buffer, CopyMode, Func
from jaxpipe.ir.verify import Stage, verify
from jaxpipe.ir.visit import buffers
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule, row_vector
from jaxpipe.target import Arch
from jaxpipe.transform.build import build
from jaxpipe.transform.cache_read import cache_read
from jaxpipe.transform.counters import counters
from jaxpipe.transform.detect import Verdict, verdicts
from jaxpipe.transform.fuse import fuse_epilogue, fuse_producers
from jaxpipe.transform.linearise import linearise
from jaxpipe.transform.lower_sync import lower_sync
from jaxpipe.transform.pipeline import pipeline
from jaxpipe.transform.simplify import partition, simplified, unroll
from jaxpipe.transform.split_k import split_k
from jaxpipe.transform.tile import Split, tile

K_BYTES = 32  # one tensor-core instruction takes 32 bytes of k, whatever the dtype
REDUCE_WARPS = 8
WARP_LANES = 32
CP_ASYNC_BYTES = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class Lowered:
    """One launch: the nest after every stage, in order, and what was decided about its buffers."""

    stages: tuple[tuple[str, Func], ...]
    verdicts: tuple[Verdict, ...] = ()

    @property
    def func(self) -> Func:
        """The nest to print."""
        return self.stages[-1][1]


class Trace:
    """Collects named stages; each is verified when it is added."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, Func]] = []

    def add(self, name: str, stage: Stage, func: Func) -> Func:
        """Verify `func` as `stage`, keep it as `name` and hand it back."""
        self.stages.append((name, verify(func, stage)))
        return func


def launches(problem: Problem, schedule: GpuSchedule) -> tuple[Func, ...]:
    """The untiled nests: one, or partial products and their sum when k is split."""
    nest = build(problem)
    if schedule.split_k == 1:
        return (nest,)
    steps = -(-problem.k // schedule.block_k)
    per_split = -(-steps // schedule.split_k)
    return split_k(nest, schedule.split_k, per_split * schedule.block_k)


def lower_ampere(problem: Problem, schedule: GpuSchedule, arch: Arch) -> tuple[Lowered, ...]:
    """Every launch of `problem` for a target with scope-wide synchronisation."""
    main, *rest = launches(problem, schedule)
    return (lower_product(main, schedule, arch), *(lower_reduce(f) for f in rest))


def lower_product(nest: Func, schedule: GpuSchedule, arch: Arch) -> Lowered:
    """The recipe of a tensor-core kernel."""
    trace = Trace()
    func = trace.add("nest", "built", nest)
    func = trace.add("cache_read", "built", cache_reads(func, schedule))
    func = tile(func, Split("m", schedule.block_m, "m0", "grid"))
    func = tile(func, Split("n", schedule.block_n, "n0", "grid"))
    func = tile_window(func)
    func = tile(func, Split("k", schedule.block_k, "ko", "serial"))
    func = tile(func, Split("m", schedule.warp_m, "wm", "warp", registers_only=True))
    func = tile(func, Split("n", schedule.warp_n, "wn", "warp", registers_only=True))
    func = tile(func, Split("k", k_step(func), "ki", "serial", registers_only=True))
    func = trace.add("tiled", "tiled", linearise(func))
    found = verdicts(func, requests(schedule), arch)
    func = trace.add("pipelined", "pipelined", pipeline(func, found))
    func = fuse_epilogue(fuse_producers(func))  # after pipelining: the copies stay pure
    func = trace.add("fused", "pipelined", func)
    func = simplified(unroll(func, frozenset({"ki"})))  # register arrays need constant indices
    func = lower_sync(func)  # counts groups on straight code, so after unrolling
    func = simplified(partition(func))
    func = trace.add("lowered", "lowered", counters(func))
    return Lowered(tuple(trace.stages), found)


def lower_reduce(nest: Func) -> Lowered:
    """The recipe of the kernel that sums partials: a warp a row, a vector a lane."""
    trace = Trace()
    func = trace.add("nest", "built", nest)
    out = buffers(func)["out"]
    width = WARP_LANES * row_vector(out.size("n"), DTYPES[out.dtype].size_bytes)
    func = tile(func, Split("m", REDUCE_WARPS, "m0", "grid"))
    func = tile(func, Split("n", width, "n0", "grid"))
    func = tile(func, Split("m", 1, "wm", "warp", registers_only=True))
    func = trace.add("tiled", "tiled", func)
    func = trace.add("lowered", "lowered", simplified(fuse_epilogue(func)))
    return Lowered(tuple(trace.stages))


# ---------------------------------------------------------------------- pieces of the recipe
def cache_reads(func: Func, schedule: GpuSchedule) -> Func:
    """Both operands through shared memory, then through registers as fragments."""
    for role in ("lhs", "rhs"):
        func = cache_read(
            func, role, f"{role}_shared", "shared", mode=copy_mode(buffers(func)[role]),
            swizzle=schedule.swizzle,
        )  # fmt: skip
    for role, axes in (("lhs", ("m", "k")), ("rhs", ("k", "n"))):
        known = buffers(func)
        source = f"{role}_tf32" if f"{role}_tf32" in known else f"{role}_shared"
        func = cache_read(
            func, source, f"{role}_reg", "register", _fragment_axes(known[role], axes)
        )
    return func


def _fragment_axes(operand: Buffer, axes: tuple[str, str]) -> tuple[str, ...]:
    window = tuple(a for a in operand.axes if a in ("kh", "kw"))
    return (*window, *axes)


def copy_mode(operand: Buffer) -> CopyMode:
    """cp.async where rows are aligned to at least 4 bytes, else through registers."""
    return "async" if operand.align_bytes in CP_ASYNC_BYTES else "staged"


def tile_window(func: Func) -> Func:
    """Loops over the filter positions of a convolution."""
    for axis in ("kh", "kw"):
        if axis in buffers(func)["lhs"].axes:
            func = tile(func, Split(axis, 1, axis, "serial"))
    return func


def k_step(func: Func) -> int:
    """Elements of k that one tensor-core instruction takes."""
    return K_BYTES // DTYPES[buffers(func)["lhs"].dtype].size_bytes


def requests(schedule: GpuSchedule) -> dict[str, int]:
    """Stages that the schedule asks of each buffer."""
    return {
        "lhs_shared": schedule.smem_stages,
        "rhs_shared": schedule.smem_stages,
        "lhs_reg": schedule.reg_stages,
        "rhs_reg": schedule.reg_stages,
    }
