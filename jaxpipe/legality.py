"""Is this schedule legal for this problem on this target? Reasons as data.

In: schedule, problem, arch. Out: a tuple of reasons, empty when legal; `require` raises with all
of them. Each reason says what, got, limit and remedy. It must not know the IR or the emitters;
the emitters rely on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args, get_type_hints

from jaxpipe.dynamic import problem_reasons, schedule_reasons
from jaxpipe.errors import ScheduleError
from jaxpipe.legality_ampere import ampere_reasons, ampere_warnings
from jaxpipe.legality_hopper import hopper_reasons
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule, HostSchedule
from jaxpipe.target import Arch

TF32_BITS, FLOAT32_BITS = 10, 23  # of the mantissa, as stored


def check(schedule: GpuSchedule, problem: Problem, arch: Arch) -> tuple[str, ...]:
    """Reasons why `schedule` cannot serve `problem` on `arch`; empty when it can."""
    found = _RULES[schedule.family](schedule, problem, arch)
    return (*check_problem(problem), *schedule_reasons(schedule, problem), *found)


def check_problem(problem: Problem) -> tuple[str, ...]:
    """Reasons why no schedule of any GPU family can serve `problem`; empty when one may."""
    if left := tuple(problem_reasons(problem)):
        return left
    if problem.dtype == "float32" and problem.precision == "float32":
        return (
            f"tensor cores multiply float32 as TF32 ({TF32_BITS} of {FLOAT32_BITS} mantissa "
            "bits), precision=float32 forbids it: use precision='tf32' or XLA",
        )
    return ()


def warnings(schedule: GpuSchedule, problem: Problem, arch: Arch) -> tuple[str, ...]:
    """What a legal schedule may suffer from: registers that spill. Empty when nothing is known."""
    if schedule.family != "ampere":
        return ()
    return tuple(ampere_warnings(schedule, problem, arch))


def require(schedule: GpuSchedule, problem: Problem, arch: Arch) -> None:
    """Raise ScheduleError with every reason of `check`, if any."""
    if reasons := check(schedule, problem, arch):
        raise ScheduleError(
            f"schedule {schedule} is illegal for {problem} on {arch.name}: " + "; ".join(reasons)
        )


Rule = Callable[[GpuSchedule, Problem, Arch], Iterator[str]]


_RULES: dict[str, Rule] = {"ampere": ampere_reasons, "hopper": hopper_reasons}


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
