"""Is this schedule legal for this problem on this target? Reasons as data.

In: schedule, problem, arch. Out: a tuple of reasons, empty when legal; `require` raises with all
of them. Each reason says what, got, limit and remedy. It must not know the IR or the emitters;
the emitters rely on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args, get_type_hints

from jaxpipe.errors import ScheduleError
from jaxpipe.legality_hopper import hopper_reasons
from jaxpipe.problem import DTYPES, Conv2d, Problem
from jaxpipe.schedule import GpuSchedule, HostSchedule
from jaxpipe.target import Arch


def check(schedule: GpuSchedule, problem: Problem, arch: Arch) -> tuple[str, ...]:
    """Reasons why `schedule` cannot serve `problem` on `arch`; empty when it can."""
    rules = _RULES[schedule.family]
    return tuple(reason for rule in rules for reason in rule(schedule, problem, arch))


def require(schedule: GpuSchedule, problem: Problem, arch: Arch) -> None:
    """Raise ScheduleError with every reason of `check`, if any."""
    if reasons := check(schedule, problem, arch):
        raise ScheduleError(
            f"schedule {schedule} is illegal for {problem} on {arch.name}: " + "; ".join(reasons)
        )


Rule = Callable[[GpuSchedule, Problem, Arch], Iterator[str]]


def _ampere_shape(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    """Tiles are made of whole instructions: 16 x 8 results, 32 bytes of k."""
    size = DTYPES[problem.dtype].size_bytes
    if s.warps_m < 1 or s.warps_n < 1:
        yield f"warps {s.warps_m}x{s.warps_n}: at least one each way"
        return
    if s.block_m % (16 * s.warps_m):
        yield f"block_m={s.block_m} over {s.warps_m} warps: use a multiple of {16 * s.warps_m}"
    if s.block_n % (16 * s.warps_n):
        yield f"block_n={s.block_n} over {s.warps_n} warps: use a multiple of {16 * s.warps_n}"
    if s.block_k * size not in (32, 64, 128, 256):
        yield (
            f"block_k={s.block_k} of {problem.dtype} is {s.block_k * size} bytes a row: "
            f"use {', '.join(str(b // size) for b in (32, 64, 128, 256))}"
        )


def _ampere_pipeline(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if not 1 <= s.smem_stages <= 8:
        yield f"smem_stages={s.smem_stages}: use 1 to 8"
    if s.reg_stages not in (1, 2):
        yield f"reg_stages={s.reg_stages}: use 1 or 2"


def _threads(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if s.threads > arch.max_threads_per_block:
        yield f"{s.threads} threads a block: {arch.name} allows {arch.max_threads_per_block}"


def _shared(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    per_stage = s.stage_bytes(problem)
    need, limit = s.smem_stages * per_stage, arch.shared_per_block_bytes
    if need > limit:
        most = limit // per_stage
        remedy = f"use at most {most} stages or a smaller block" if most else "use a smaller block"
        yield (
            f"{s.smem_stages} stages need {need} bytes of shared memory per block, "
            f"{arch.name} allows {limit}: {remedy}"
        )


def _split(s: GpuSchedule, problem: Problem, arch: Arch) -> Iterator[str]:
    if s.split_k < 1:
        yield f"split_k={s.split_k}: at least 1"
    steps = -(-problem.k // s.block_k)
    if s.split_k > max(steps, 1):
        yield f"split_k={s.split_k} of {steps} k tiles: use at most {max(steps, 1)}"
    if s.split_k > 1 and isinstance(problem, Conv2d):
        yield "split_k of a convolution is not built: use split_k=1"


_RULES: dict[str, tuple[Rule, ...]] = {
    "ampere": (_ampere_shape, _ampere_pipeline, _threads, _shared, _split),
    "hopper": (hopper_reasons,),
}


def check_host(schedule: HostSchedule) -> tuple[str, ...]:
    """Reasons why csrc/host cannot run `schedule`; empty when it can (then for every problem)."""
    return tuple(_host_words(schedule)) + tuple(_host_numbers(schedule))


def require_host(schedule: HostSchedule) -> None:
    """Raise ScheduleError with every reason of `check_host`, if any."""
    if reasons := check_host(schedule):
        raise ScheduleError(f"host schedule {schedule} is illegal: " + "; ".join(reasons))


def _host_words(s: HostSchedule) -> Iterator[str]:
    hints = get_type_hints(HostSchedule)
    for name in ("path", "order", "pack", "isa"):
        value, words = getattr(s, name), get_args(hints[name])
        if value not in words:
            yield f"{name}={value!r}: use one of {', '.join(words)}"


def _host_numbers(s: HostSchedule) -> Iterator[str]:
    for name in ("rows", "strip", "block_m", "block_k", "prefetch_rows", "threads"):
        value = getattr(s, name)
        if not isinstance(value, int) or value < 0:
            yield f"{name}={value!r}: use a whole number >= 0 (0 lets the kernels decide)"
    if s.stages not in (1, 2):
        yield f"stages={s.stages}: use 1 (no prefetch) or 2"
