"""One problem, one schedule, one executor: the call that ops, tuner and benchmarks share.

In: operands by role. Out: results. It must not know how a schedule is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import jax

from jaxpipe.compiler import compile_kernel
from jaxpipe.errors import UnsupportedError
from jaxpipe.kernel import BufferRole
from jaxpipe.problem import Problem
from jaxpipe.runtime import device, host, launch
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule


def run(
    problem: Problem,
    schedule: Schedule,
    operands: Mapping[BufferRole, jax.Array],
    *,
    executor: Literal["host", "cuda", "interpret"],
    arch: str = "",
) -> tuple[jax.Array, ...]:
    """`(y,)` or `(y, preactivation)` of `problem` by `schedule`; traceable.

    arch: what a GPU kernel is made for; "" is the one kind of GPU that this process sees, or
    JAXPIPE_TARGET. Raises UnsupportedError when the schedule is not of the executor's kind, and
    whatever the compiler raises.
    """
    if executor == "host":
        if not isinstance(schedule, HostSchedule):
            raise UnsupportedError(f"executor 'host' takes a HostSchedule, got {schedule}")
        bias, residual = operands.get("bias"), operands.get("residual")
        return host.call(problem, schedule, operands["lhs"], operands["rhs"], bias, residual)
    if not isinstance(schedule, GpuSchedule):
        raise UnsupportedError(f"executor {executor!r} takes a GpuSchedule, got {schedule}")
    compiled = compile_kernel(problem, schedule, arch or device.resolve(()).arch)
    return launch.call(compiled, operands, executor=executor)
