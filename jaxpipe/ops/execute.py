"""One call on one device: choose the executor, run the kernel, write the ledger.

In: a spec, a fusion, operands (traced, local to a device), the platform that is lowered for. Out:
the results. EXECUTORS is the table of what can run a Problem; implementation=None tries those of
the platform in order and ends with lax, a named one raises UnsupportedError when it cannot serve.
It must not know derivatives, batching or meshes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax

from jaxpipe.choose import choose
from jaxpipe.errors import JaxpipeError, UnsupportedError
from jaxpipe.kernel import BufferRole
from jaxpipe.ops import coverage, epilogue
from jaxpipe.ops.coverage import Site
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.options import Implementation, Options
from jaxpipe.ops.plan import Abilities, Plan
from jaxpipe.ops.specs import Spec
from jaxpipe.problem import Problem
from jaxpipe.runtime import device, host
from jaxpipe.runtime import execute as runtime
from jaxpipe.schedule import Schedule
from jaxpipe.target import Device

Operands = Mapping[BufferRole, Any]
Devices = Sequence[jax.Device]


@dataclass(frozen=True, slots=True)
class Served:
    """A kernel that is ready: `call` takes the operands by role; schedule and source are for
    people. xla_wins: a record says that XLA is faster."""

    call: Callable[[Operands], tuple[Any, ...]]
    schedule: str
    source: str
    xla_wins: bool = False


@dataclass(frozen=True, slots=True)
class Executor:
    """Something that runs Problems on these platforms, with these abilities.

    serve makes the kernel of a problem under the caller's options; UnsupportedError when it has
    none, with the reason. remedy ends the error of a caller who insists on another platform.
    """

    name: Implementation
    platforms: tuple[str, ...]
    able: Abilities
    serve: Callable[[Problem, Options, Devices], Served]
    remedy: str


def _serve_host(problem: Problem, options: Options, devices: Devices) -> Served:
    if reason := host.unsupported_reason(problem):
        raise UnsupportedError(reason)
    choice = choose(problem, executor="host", explicit=options.schedule)
    call = functools.partial(_call, problem, choice.schedule, "host", "")
    return Served(call, str(choice.schedule), choice.source, choice.xla_wins)


def _serve_cuda(problem: Problem, options: Options, devices: Devices) -> Served:
    """Made for options.target, else the devices that the program is lowered for."""
    return _serve_gpu("cuda", problem, options, device.resolve(devices, options.target))


def _serve_interpret(problem: Problem, options: Options, devices: Devices) -> Served:
    """Made for options.target or JAXPIPE_TARGET; the program's own devices are CPUs."""
    return _serve_gpu("interpret", problem, options, device.resolve((), options.target))


def _serve_gpu(
    executor: Literal["cuda", "interpret"], problem: Problem, options: Options, gpu: Device
) -> Served:
    choice = choose(problem, executor="cuda", device=gpu, explicit=options.schedule)
    call = functools.partial(_call, problem, choice.schedule, executor, gpu.arch)
    return Served(call, str(choice.schedule), choice.source, choice.xla_wins)


def _call(
    problem: Problem,
    schedule: Schedule,
    executor: Literal["host", "cuda", "interpret"],
    arch: str,
    operands: Operands,
) -> tuple[Any, ...]:
    return runtime.run(problem, schedule, operands, executor=executor, arch=arch)


EXECUTORS: dict[str, Executor] = {
    e.name: e
    for e in (
        Executor(
            "host", ("cpu",), Abilities(has_patches=True), _serve_host,
            "compile it for the CPU, or use implementation='cuda' on a GPU",
        ),
        Executor(
            "cuda", ("cuda",), Abilities(has_tf32=True), _serve_cuda,
            "compile it for a GPU (pip install 'jaxpipe[cuda13]', or export for platform cuda)",
        ),
        Executor(
            "interpret", ("cpu",), Abilities(has_tf32=True), _serve_interpret,
            "compile it for the CPU",
        ),
    )
}  # fmt: skip
# What implementation=None tries, by platform; lax serves the rest.
PREFERENCE: dict[str, tuple[Implementation, ...]] = {"cpu": ("host",), "cuda": ("cuda",)}


def run(
    *operands: Any, spec: Spec, fusion: Fusion, platform: str, devices: Devices = ()
) -> list[Any]:
    """[y] or [y, pre-activation] of `spec` with `fusion` on one device of `platform`.

    devices: those that the program is lowered for, where JAX tells them.
    """
    named = spec.options.implementation
    if named not in (None, "xla"):
        return _run_named(named, platform, spec, fusion, operands, devices)
    reason = "asked for" if named else f"no kernels for platform {platform}"
    for name in () if named else PREFERENCE.get(platform, ()):
        try:
            return _run_kernel(EXECUTORS[name], spec, fusion, operands, devices)
        except JaxpipeError as error:
            reason = str(error)
    return run_reference(*operands, spec=spec, fusion=fusion, reason=reason)


def _run_named(
    name: str,
    platform: str,
    spec: Spec,
    fusion: Fusion,
    operands: tuple[Any, ...],
    devices: Devices,
) -> list[Any]:
    """By the executor that the caller insists on; UnsupportedError says why it cannot."""
    executor = EXECUTORS[name]
    call = spec.describe(*(jax.typeof(x) for x in operands[:2]))
    if platform not in executor.platforms:
        raise UnsupportedError(
            f"implementation={name!r} for {call}: this program is compiled for {platform}, "
            f"{name} runs on {', '.join(executor.platforms)}: {executor.remedy}; "
            "implementation=None picks what applies"
        )
    try:
        return _run_kernel(executor, spec, fusion, operands, devices)
    except JaxpipeError as error:
        raise UnsupportedError(
            f"implementation={name!r} for {call}: {error}; implementation=None picks what applies"
        ) from error


def _run_kernel(
    executor: Executor,
    spec: Spec,
    fusion: Fusion,
    operands: tuple[Any, ...],
    devices: Devices,
) -> list[Any]:
    """Plan, serve, call; a JaxpipeError of any of them is why this executor does not."""
    lhs, rhs, *extras = operands
    bias, residual = fusion.split(tuple(extras))
    types = jax.typeof(lhs), jax.typeof(rhs)
    plan = spec.plan(fusion, *types, bias, executor.able)
    served = executor.serve(plan.problem, spec.options, devices)
    _require_faster(served, spec)
    out = spec.result_type(*types)
    coverage.record(Site(spec.op, str(plan.problem), executor.name, served.schedule, served.source))
    with jax.named_scope(f"jaxpipe.{executor.name}[{plan.problem}]"):
        results = served.call(_prepare(plan, lhs, rhs, bias, residual))
        return [y.reshape(out.shape).astype(plan.dtypes.final) for y in results]


def _require_faster(served: Served, spec: Spec) -> None:
    """implementation=None leaves to XLA what a record says XLA does faster."""
    if served.xla_wins and spec.options.implementation is None:
        raise UnsupportedError(f"XLA was measured to be faster than schedule {served.schedule}")


def _prepare(plan: Plan, lhs: Any, rhs: Any, bias: Any, residual: Any) -> dict[BufferRole, Any]:
    """Operands by role, as the kernel wants them; conversions here are XLA's and can fuse."""
    operands: dict[BufferRole, Any] = {
        "lhs": plan.lhs(lhs.astype(plan.dtypes.operand)),
        "rhs": plan.rhs(rhs.astype(plan.dtypes.operand)),
    }
    if bias is not None:
        operands["bias"] = bias.reshape(-1)
    if residual is not None:
        operands["residual"] = residual.astype(plan.dtypes.result)
    return operands


def run_reference(*operands: Any, spec: Spec, fusion: Fusion, reason: str) -> list[Any]:
    """The same in lax, counted with the reason why."""
    lhs, rhs, *extras = operands
    types = jax.typeof(lhs), jax.typeof(rhs)
    coverage.record(Site(spec.op, spec.describe(*types), "xla", reason=reason))
    if fusion.is_identity:
        return [spec.reference(lhs, rhs)]
    dtype = spec.result_type(*types).dtype
    bias, residual = fusion.split(tuple(extras))
    return epilogue.apply(spec.reference(lhs, rhs, wide=True), bias, residual, fusion, dtype)
