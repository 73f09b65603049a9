"""The straight list of passes for targets with TMA and wgmma: the same pipelining, two roles.

In: problem, schedule of family "hopper", target. Out: one `Lowered` a launch. The product reads
shared memory, so there is one level of stages; what `reg_stages` was for registers is here the
number of wgmma groups in flight.
"""

from __future__ import annotations

from jaxpipe.ir.nodes import Func
from jaxpipe.ir.visit import buffers
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch
from jaxpipe.transform.cache_read import cache_read
from jaxpipe.transform.detect import verdicts
from jaxpipe.transform.fuse import fuse_epilogue
from jaxpipe.transform.linearise import linearise
from jaxpipe.transform.pipeline import pipeline
from jaxpipe.transform.recipe import Lowered, Trace, launches, lower_reduce, tile_window
from jaxpipe.transform.specialize import absorb_rounding, specialize
from jaxpipe.transform.tile import Split, tile


def lower_hopper(problem: Problem, schedule: GpuSchedule, arch: Arch) -> tuple[Lowered, ...]:
    """Every launch of `problem` for a target with a barrier for each buffer."""
    main, *rest = launches(problem, schedule)
    return (lower_product(main, schedule, arch), *(lower_reduce(f) for f in rest))


def lower_product(nest: Func, schedule: GpuSchedule, arch: Arch) -> Lowered:
    """The recipe of a warp-specialised kernel."""
    trace = Trace()
    func = trace.add("nest", "built", nest)
    func = absorb_rounding(cache_reads(func))  # the copy rounds, so it must not be a computation
    func = trace.add("cache_read", "built", func)
    func = tile(func, Split("m", schedule.block_m, "m0", "grid"))
    func = tile(func, Split("n", schedule.block_n, "n0", "grid"))
    func = tile_window(func)
    func = tile(func, Split("k", schedule.block_k, "ko", "serial"))
    func = trace.add("tiled", "tiled", linearise(func))
    asked = {"lhs_shared": schedule.smem_stages, "rhs_shared": schedule.smem_stages}
    found = verdicts(func, asked, arch)
    func = trace.add("pipelined", "pipelined", pipeline(func, found))
    func = trace.add("fused", "pipelined", fuse_epilogue(func))
    func = specialize(func, schedule.smem_stages, schedule.reg_stages - 1)
    func = trace.add("specialized", "pipelined", func)
    return Lowered(tuple(trace.stages), found)


def cache_reads(func: Func) -> Func:
    """Both operands through swizzled shared memory, in the order that they have in global."""
    for role in ("lhs", "rhs"):
        if role in buffers(func):
            func = cache_read(func, role, f"{role}_shared", "shared", mode="async", swizzle=True)
    return func
