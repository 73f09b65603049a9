"""Problems whose sizes a call brings, as GPU kernels have them: rows of lhs and batch entries.

In: a dynamic problem. Out: the bounds that a nest is built with, the sizes that a launch reads off
the call's buffers, how its grid follows from them, and why a schedule cannot serve. A kernel knows
its rows by the parameter ROWS; batch entries are more blocks, and where a fixed grid walks over
tiles the parameter ENTRIES. It must not know nests or text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from jaxpipe.kernel import BufferRole, Size, SizeOf, Tiles
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import GpuSchedule

ROWS = "problem_m"
ENTRIES = "problem_batch"
BATCH_ROWS = "batch_rows"  # rows of lhs and results before those of the batch entry
# Odd, so that no tile divides it and every guard of a tail stays; far from the end of 32 bits.
LIMIT = 2**30 - 1
TILE_FACTORS = 2 * 3 * 5 * 7 * 11 * 13  # tiles have 16 to 256 rows, a multiple of 16
SERVED = ("m", "batch0")


def bounded(problem: Problem) -> Problem:
    """The problem with the largest value of every dynamic size."""
    match problem:
        case Matmul(dynamic=()) | Conv2d(dynamic=()):
            return problem
        case Matmul(m=m, batch=batch):
            batch = (LIMIT, *batch[1:]) if "batch0" in problem.dynamic else batch
            return replace(problem, m=LIMIT if "m" in problem.dynamic else m, batch=batch)
        case Conv2d():
            return replace(problem, batch=_indivisible(LIMIT // _pixels(problem)))


def _indivisible(most: int) -> int:
    """The largest number up to `most` without a factor that tiles have: pixels times it are whole
    tiles only where the pixels are."""
    return next(n for n in range(most, 0, -1) if math.gcd(n, TILE_FACTORS) == 1)


def has_rows(problem: Problem) -> bool:
    """True when the rows of the product are a parameter of the kernel."""
    return "m" in problem.dynamic or (isinstance(problem, Conv2d) and bool(problem.dynamic))


def sizes(problem: Problem) -> tuple[Size, ...]:
    """What a call brings, each read off one buffer once those before it are known."""
    if isinstance(problem, Conv2d):
        return (Size("batch", "out", LIMIT // _pixels(problem)),) if problem.dynamic else ()
    both = problem.dynamic == SERVED
    roles: dict[str, BufferRole] = {"batch0": "rhs" if both else "out", "m": "out"}
    return tuple(Size(name, roles[name], LIMIT) for name in roles if name in problem.dynamic)


def grid(problem: Problem, block_m: int) -> tuple[Tiles, ...]:
    """How many blocks each size brings."""
    scale = _pixels(problem) if isinstance(problem, Conv2d) else 1
    along = {"m": block_m, "batch": block_m, "batch0": 1}
    return tuple(Tiles(s.name, scale, along[s.name]) for s in sizes(problem))


def parameters(problem: Problem) -> tuple[SizeOf, ...]:
    """The last parameters of a kernel: its rows, if a call brings them."""
    if not has_rows(problem):
        return ()
    if isinstance(problem, Conv2d):
        return (SizeOf("batch", _pixels(problem)),)
    return (SizeOf("m"),)


def walked(problem: Problem, tile_m: int, tiles: int) -> tuple[Size, ...]:
    """`sizes` for a grid that walks over tiles by a 32-bit index: `tiles` of them for `tile_m` rows
    of one batch entry."""
    most = LIMIT // tiles
    along = {"m": (most - 1) * tile_m, "batch": (most - 1) * tile_m, "batch0": most}
    return tuple(replace(s, limit=min(s.limit, along[s.name])) for s in sizes(problem))


def sizes_of(problem: Problem, role: BufferRole) -> tuple[str, ...]:
    """The sizes that a buffer's bytes are times."""
    if isinstance(problem, Conv2d):
        return problem.dynamic if role not in ("rhs", "bias") else ()
    m, batch = "m" in problem.dynamic, "batch0" in problem.dynamic
    match role:
        case "lhs":
            batch = batch and problem.lhs_batch_strides[0] != 0
        case "rhs":
            m, batch = False, batch and problem.rhs_batch_strides[0] != 0
        case "bias":
            m, batch = m and problem.epilogue.bias == "row", False
    return tuple(name for name, held in (("m", m), ("batch0", batch)) if held)


def _pixels(problem: Conv2d) -> int:
    return max(1, problem.out_height * problem.out_width)


# ---------------------------------------------------------------------- legality
def problem_reasons(problem: Problem) -> Iterator[str]:
    """Why no GPU kernel can leave these sizes to the call."""
    if isinstance(problem, Conv2d):
        return
    if others := [name for name in problem.dynamic if name not in SERVED]:
        yield (
            f"symbolic {', '.join(others)}: on GPUs the rows of lhs and the outermost batch "
            "dimension may be symbolic; export with concrete dimensions to carry a kernel"
        )
    if "m" in problem.dynamic and problem.lhs.transposed:
        yield "symbolic m of a transposed lhs: its rows have no known alignment, store it [m][k]"
    if problem.dynamic == SERVED and problem.rhs_batch_strides[0] == 0:
        yield "symbolic m and batch with one rhs for all: fold the batch into the rows"


def schedule_reasons(schedule: GpuSchedule, problem: Problem) -> Iterator[str]:
    """Why a kernel of `schedule` cannot leave sizes to the call."""
    if not problem.dynamic:
        return
    if schedule.split_k != 1:
        yield f"split_k={schedule.split_k} of a symbolic size: its workspace has none, use 1"
    if schedule.family != "hopper":
        return
    if isinstance(problem, Conv2d):
        yield "symbolic images by wgmma: its patches count images, use family=ampere"
    elif has_rows(problem) and problem.batch:
        yield "symbolic m of a batch by wgmma: tensor maps have fixed strides, use family=ampere"
