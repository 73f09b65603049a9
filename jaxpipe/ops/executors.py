"""The table of what can run a Problem: EXECUTORS, one row an implementation that is not XLA.

In: a Problem, the caller's options, the devices that are compiled for. Out: a `Served`: a function
of operands, with the schedule and where it is from. Any JaxpipeError of a row's `serve` is the
reason why it does not. It must not know specs, lowering contexts or the ledger.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxpipe.choose import choose
from jaxpipe.compiler import compile_kernel
from jaxpipe.errors import TuningError, UnsupportedError
from jaxpipe.kernel import BufferRole, CompiledKernel
from jaxpipe.model import host_rule
from jaxpipe.ops.options import Implementation, Options
from jaxpipe.ops.plan import FLOAT8, Abilities
from jaxpipe.problem import Problem
from jaxpipe.records import Record
from jaxpipe.runtime import device, host, launch, targets
from jaxpipe.schedule import GpuSchedule, HostSchedule
from jaxpipe.target import host_device

Operands = Mapping[BufferRole, Any]
Shape = tuple[Any, ...]
Devices = tuple[Any, ...]
ROLES: tuple[BufferRole, ...] = ("lhs", "rhs", "bias", "residual")


@dataclass(frozen=True, slots=True)
class Served:
    """A kernel that is ready: `call` takes the operands by role and the result's shape; schedule
    and source are for people. xla_wins: a record says that XLA is faster."""

    call: Callable[[Operands, Shape], tuple[Any, ...]]
    schedule: str
    source: str
    xla_wins: bool = False


Serve = Callable[[Problem, Options, Devices], Served]


@dataclass(frozen=True, slots=True)
class Executor:
    """Something that runs Problems on these platforms.

    able and serve say what its kernels can, and make the kernel of a problem, under the caller's
    options and for the program's devices; serve_packed makes the one that reads packed weights.
    remedy ends the error of a caller who insists on another platform.
    """

    name: Implementation
    platforms: tuple[str, ...]
    able: Callable[[Options, Devices], Abilities]
    serve: Serve
    remedy: str
    serve_packed: Serve | None = None


def _serve_host(problem: Problem, options: Options, devices: Devices) -> Served:
    if reason := host.unsupported_reason(problem):
        raise UnsupportedError(reason)
    choice = choose(problem, executor="host", **_wishes(options))
    assert isinstance(choice.schedule, HostSchedule)
    call = functools.partial(_call_host, problem, choice.schedule)
    return Served(call, str(choice.schedule), choice.source, choice.xla_wins)


def _serve_packed(problem: Problem, options: Options, devices: Devices) -> Served:
    """By rule, unless the caller fixes the schedule: records are of weights that are packed in the
    call."""
    if isinstance(options.schedule, HostSchedule):
        schedule, source = options.schedule, "explicit"
    else:
        schedule, source = host_rule.packed_rule(problem, host_device()), "rule"
    call = functools.partial(_call_host, problem, schedule, is_packed=True)
    return Served(call, f"{schedule} on packed weights", source)


def _call_host(
    problem: Problem,
    schedule: HostSchedule,
    operands: Operands,
    shape: Shape,
    is_packed: bool = False,
) -> tuple[Any, ...]:
    lhs, rhs, bias, residual = (operands.get(role) for role in ROLES)
    return host.call(problem, schedule, lhs, rhs, bias, residual, is_packed, shape)


def _able_gpu(options: Options, devices: Devices) -> Abilities:
    row = device.resolve(devices, options.target)
    return Abilities(has_tf32=True, has_fp8=set(FLOAT8) <= dict(row.tensor_flops_hz).keys())


def _able_host(options: Options, devices: Devices) -> Abilities:
    return Abilities(has_patches=True, has_packed=True, has_rounding=True)


def _serve_gpu(
    executor: launch.Executor, problem: Problem, options: Options, devices: Devices
) -> Served:
    """Compiled here, for the GPU that options, the program's devices or JAXPIPE_TARGET name."""
    if not targets.is_registered(launch.TARGETS[executor]):
        raise UnsupportedError(f"this build of jaxpipe has no handler {launch.TARGETS[executor]}")
    gpu = device.resolve(devices, options.target)
    choice = choose(problem, executor="cuda", device=gpu, **_wishes(options))
    assert isinstance(choice.schedule, GpuSchedule)
    compiled = compile_kernel(problem, choice.schedule, gpu)
    call = functools.partial(_call_gpu, compiled, executor)
    return Served(call, str(choice.schedule), choice.source, choice.xla_wins)


def _call_gpu(
    compiled: CompiledKernel, executor: launch.Executor, operands: Operands, shape: Shape
) -> tuple[Any, ...]:
    return launch.call(compiled, operands, executor=executor, shape=shape)


def _wishes(options: Options) -> dict[str, Any]:
    """What the caller's options mean to `choose`."""
    records = None if options.tuned is None else options.tuned.table
    return {"explicit": options.schedule, "records": records, "tune": tune_now}


def tune_now(problem: Problem, executor: Any, target: Any) -> Record:
    """`jaxpipe.tune.on_miss.tune`, loaded on the first miss under JAXPIPE_ON_MISS=tune.

    The tuner lies above this file and needs Optuna, which products do not. Raises TuningError
    where it is not installed.
    """
    try:
        tuner = importlib.import_module("jaxpipe.tune.on_miss")
    except ImportError as error:
        raise TuningError(
            f"JAXPIPE_ON_MISS=tune, but the tuner needs {error.name}: pip install 'jaxpipe[tune]', "
            "or let the model choose with JAXPIPE_ON_MISS=model"
        ) from error
    record: Record = tuner.tune(problem, executor, target)
    return record


EXECUTORS: dict[str, Executor] = {
    e.name: e
    for e in (
        Executor(
            "host", ("cpu",), _able_host, _serve_host,
            "compile it for the CPU, or use implementation='cuda' on a GPU", _serve_packed,
        ),
        Executor(
            "cuda", ("cuda",), _able_gpu, functools.partial(_serve_gpu, "cuda"),
            "compile it for a GPU (pip install 'jaxpipe[cuda13]', or export for platform cuda)",
        ),
        Executor(
            "interpret", ("cpu",), _able_gpu, functools.partial(_serve_gpu, "interpret"),
            "compile it for the CPU",
        ),
    )
}  # fmt: skip
# What implementation=None tries, by platform; lax serves the rest.
PREFERENCE: dict[str, tuple[Implementation, ...]] = {"cpu": ("host",), "cuda": ("cuda",)}
