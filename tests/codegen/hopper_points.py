"""Drawn points of the Hopper space: problems with schedules that legality admits.

Every choice of the family is drawn with a weight that makes it frequent: dtypes, majors, tiles,
stages, roles, clusters, split-K, swapped operands, copies without TMA, batches, convolutions,
epilogues. `small` problems have few tiles and steps, for the interpreter; the number of steps is
drawn relative to the stages (fewer, equal, one more, more than twice).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from jaxpipe.dtypes import DTYPES
from jaxpipe.epilogue import Epilogue
from jaxpipe.legality import check
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch

SM_90A = arch("sm_90a")
DTYPE_WEIGHTS = {
    "bfloat16": 6, "float16": 3, "float32": 2, "int8": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
BLOCKS = (
    (64, 64, 1), (64, 128, 1), (64, 256, 1), (128, 64, 2), (128, 128, 2), (128, 192, 2),
    (128, 256, 2), (256, 64, 2), (256, 128, 2), (192, 128, 3), (192, 192, 3), (128, 128, 1),
)  # fmt: skip
PING_PONG_BLOCKS = ((64, 64), (64, 128), (64, 256), (128, 128), (64, 192))


@dataclass(frozen=True, slots=True)
class Point:
    """One drawn problem and schedule."""

    seed: int
    problem: Problem
    schedule: GpuSchedule

    def __str__(self) -> str:
        return f"{self.seed}: {self.problem} | {self.schedule}"


def points(count: int, first_seed: int = 0, *, small: bool = True) -> Iterator[Point]:
    """The first `count` legal points from `first_seed` on; the same seeds give the same points."""
    seed = first_seed
    while count:
        point = draw(seed, small=small)
        if not check(point.schedule, point.problem, SM_90A):
            yield point
            count -= 1
        seed += 1


def draw(seed: int, *, small: bool) -> Point:
    """One point, legal or not."""
    r = random.Random(seed)
    dtype = r.choices(list(DTYPE_WEIGHTS), list(DTYPE_WEIGHTS.values()))[0]
    schedule = _schedule(r, DTYPES[dtype].size_bytes)
    if dtype in ("bfloat16", "float16") and r.random() < 0.15:
        schedule = GpuSchedule.parse("tma=1,split_k=1,swap_operands=0", schedule)
        return Point(seed, _conv(r, dtype, schedule, small=small), schedule)
    return Point(seed, _matmul(r, dtype, schedule, small=small), schedule)


def _schedule(r: random.Random, size: int) -> GpuSchedule:
    block_m, block_n, consumers = r.choice(BLOCKS)
    ping_pong = r.random() < 0.25
    if ping_pong:
        (block_m, block_n), consumers = r.choice(PING_PONG_BLOCKS), 2
    swap = not ping_pong and r.random() < 0.15
    if swap:
        block_n, consumers = r.choice(((64, 1), (128, 2), (128, 1)))
        block_m = r.choice((8, 16, 24, 32, 64, 128))
    reg_stages = r.choice((1, 2, 2, 2))
    cluster = r.choice(((1, 1), (1, 1), (2, 1), (1, 2)))
    tma = r.random() >= 0.12
    return GpuSchedule(
        family="hopper", block_m=block_m, block_n=block_n, consumers=consumers,
        block_k=r.choice((1, 1, 1, 2)) * 128 // size,
        smem_stages=r.choice((reg_stages, 2, 3, 4, 5, 6, 8)), reg_stages=reg_stages,
        ping_pong=ping_pong, swap_operands=swap, tma=tma,
        cluster_m=cluster[0] if tma else 1, cluster_n=cluster[1] if tma else 1,
        split_k=r.choice((2, 3)) if r.random() < 0.12 else 1,
        raster_group=r.choice((1, 2, 8)),
        persistent_blocks=r.choice((1, 2, 3, 132)),
    )  # fmt: skip


def _steps(r: random.Random, schedule: GpuSchedule, *, small: bool) -> int:
    """Steps along k, relative to the ring: fewer, equal, not a multiple, more than twice."""
    s = schedule.smem_stages
    if not small:
        return r.choice((s, 12, 13, 16))
    return r.choice((0, 1, max(1, s - 1), s, s + 1, 2 * s + 1)) if s <= 4 else r.choice((1, 3, s))


def _matmul(r: random.Random, dtype: str, schedule: GpuSchedule, *, small: bool) -> Matmul:
    steps = _steps(r, schedule, small=small) * schedule.split_k
    align = 16 // DTYPES[dtype].size_bytes if schedule.tma else r.choice((1, 2, 4, 8))
    k = max(0, steps * schedule.block_k - r.choice((0, 0, align, 3 * align)))
    m = _extent(r, schedule.block_m, small=small)
    n = _extent(r, schedule.block_n, small=small)
    any_major = dtype in ("bfloat16", "float16")
    lhs = Layout(any_major and r.random() < 0.3)
    rhs = Layout(not any_major or r.random() < 0.5)
    if lhs.transposed and schedule.tma:
        m = -(-m // 8) * 8
    if not rhs.transposed and schedule.tma:
        n = -(-n // 8) * 8
    batch = r.choice(((), (), (), (2,), (3,), (2, 2))) if small else r.choice(((), (4,)))
    if batch and r.random() < 0.3:
        rhs = Layout(rhs.transposed, batch_strides=(0,) * len(batch))
    return Matmul(
        m, n, k, batch, dtype, _out_dtype(r, dtype), lhs, rhs, _epilogue(r, dtype), "tf32"
    )


def _extent(r: random.Random, block: int, *, small: bool) -> int:
    tiles = r.choice((1, 1, 2, 3)) if small else r.choice((4, 6, 8))
    return max(1, tiles * block - r.choice((0, 0, 1, 5, 8, block // 2)))


def _out_dtype(r: random.Random, dtype: str) -> str:
    if dtype == "int8":
        return r.choice(("int32", "int32", "float32"))
    same = "bfloat16" if DTYPES[dtype].size_bytes != 2 else dtype
    return r.choice((same, same, same, "float32"))


def _epilogue(r: random.Random, dtype: str) -> Epilogue:
    if dtype == "int8":
        return Epilogue(bias=r.choice(("none", "column")), activation=r.choice(("none", "relu")))
    return Epilogue(
        alpha=r.choice((1.0, 1.0, 0.5)),
        bias=r.choice(("none", "column", "column", "row")),
        bias_dtype=r.choice(("", "", "float32")),
        activation=r.choice(("none", "none", "relu", "gelu_tanh", "gelu_erf", "silu", "tanh")),
        residual=r.random() < 0.3,
        save_preactivation=r.random() < 0.2,
    )


def _conv(r: random.Random, dtype: str, schedule: GpuSchedule, *, small: bool) -> Conv2d:
    kernel = r.choice(((1, 1), (3, 3), (3, 3), (1, 3), (5, 5)) if small else ((3, 3), (1, 1)))
    size = r.choice((5, 7, 8, 11)) if small else 28
    images = r.choice((1, 2, 3)) if small else 16
    padding = tuple((r.randrange(2), r.randrange(2)) for _ in range(2))
    return Conv2d(
        images, size, size + r.choice((0, 1)), r.choice((8, 32, 64, 72) if small else (64, 128)),
        r.choice((8, 64, 136) if small else (128, 256)), kernel,
        stride=r.choice(((1, 1), (1, 1), (2, 2), (2, 1))), padding=padding,  # type: ignore[arg-type]
        dilation=r.choice(((1, 1), (1, 1), (2, 1))), dtype=dtype,
        out_dtype=r.choice((dtype, dtype, "float32")), epilogue=_epilogue(r, dtype),
    )  # fmt: skip
