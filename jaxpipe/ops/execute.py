"""One call on one device: choose the executor, run the kernel, write the ledger.

In: a spec, a fusion, operands (traced, local to a device), and what is lowered for. Out: the
results. implementation=None tries the executors of the platform in order and ends with lax, a
named one raises UnsupportedError when it cannot serve. TuningError passes in both cases: who asks
for JAXPIPE_ON_MISS=error or tune wants to hear of a miss. It must not know derivatives, batching or
meshes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jaxpipe.errors import JaxpipeError, TuningError, UnsupportedError
from jaxpipe.kernel import BufferRole
from jaxpipe.ops import coverage, epilogue
from jaxpipe.ops.coverage import Site
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.executors import EXECUTORS, PREFERENCE, Devices, Executor, Served
from jaxpipe.ops.plan import Plan
from jaxpipe.ops.specs import Spec


@dataclass(frozen=True, slots=True)
class Place:
    """What is lowered for: a platform, and its devices where they are known."""

    platform: str
    devices: Devices = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """The executor of one call, how it is called, and its row in the ledger."""

    site: Site
    plan: Plan
    served: Served


def run(*operands: Any, spec: Spec, fusion: Fusion, place: Place) -> list[Any]:
    """[y] or [y, pre-activation] of `spec` with `fusion` on one device of `place`."""
    types = [jax.typeof(x) for x in operands]
    try:
        selected = select(types, spec, fusion, place)
    except UnsupportedError as error:
        if spec.options.implementation not in (None, "xla"):
            raise
        return run_reference(*operands, spec=spec, fusion=fusion, reason=str(error))
    coverage.record(selected.site)
    return _run_kernel(selected, spec, fusion, operands)


def preview(types: Sequence[Any], spec: Spec, fusion: Fusion, place: Place) -> Site:
    """The ledger's row of a call with operands of these types, without making it."""
    try:
        return select(types, spec, fusion, place).site
    except UnsupportedError as error:
        return Site(spec.op, spec.describe(*types[:2]), "xla", reason=str(error))


def select(types: Sequence[Any], spec: Spec, fusion: Fusion, place: Place) -> Selection:
    """The named executor, else the first of the platform that serves; UnsupportedError says why
    none does."""
    named = spec.options.implementation
    if named == "xla":
        raise UnsupportedError("asked for")
    if named is not None:
        return _select_named(named, types, spec, fusion, place)
    reason = f"no kernels for platform {place.platform}"
    for name in PREFERENCE.get(place.platform, ()):
        try:
            return _select(EXECUTORS[name], types, spec, fusion, place)
        except TuningError:
            raise
        except JaxpipeError as error:
            reason = str(error)
    raise UnsupportedError(reason)


def _select_named(
    name: str, types: Sequence[Any], spec: Spec, fusion: Fusion, place: Place
) -> Selection:
    executor = EXECUTORS[name]
    call = spec.describe(*types[:2])
    if place.platform not in executor.platforms:
        raise UnsupportedError(
            f"implementation={name!r} for {call}: this program is compiled for {place.platform}, "
            f"{name} runs on {', '.join(executor.platforms)}: {executor.remedy}; "
            "implementation=None picks what applies"
        )
    try:
        return _select(executor, types, spec, fusion, place)
    except TuningError:
        raise
    except JaxpipeError as error:
        raise UnsupportedError(
            f"implementation={name!r} for {call}: {error}; implementation=None picks what applies"
        ) from error


def _select(
    executor: Executor, types: Sequence[Any], spec: Spec, fusion: Fusion, place: Place
) -> Selection:
    """Plan and serve; a JaxpipeError of either is why this executor does not."""
    bias, _ = fusion.split(tuple(types[2:]))
    plan = spec.plan(fusion, types[0], types[1], bias, executor.able(spec.options, place.devices))
    serve = executor.serve_packed if plan.is_packed else executor.serve
    assert serve is not None, executor
    served = serve(plan.problem, spec.options, place.devices)
    _require_faster(served, spec)
    site = Site(spec.op, str(plan.problem), executor.name, served.schedule, served.source)
    return Selection(site, plan, served)


def _run_kernel(
    selected: Selection, spec: Spec, fusion: Fusion, operands: tuple[Any, ...]
) -> list[Any]:
    lhs, rhs, *extras = operands
    bias, residual = fusion.split(tuple(extras))
    plan, site = selected.plan, selected.site
    shape = spec.result_type(jax.typeof(lhs), jax.typeof(rhs)).shape
    with jax.named_scope(f"jaxpipe.{site.implementation}[{site.problem}][{site.schedule}]"):
        operands_by_role = _prepare(plan, lhs, rhs, bias, residual)
        results = selected.served.call(operands_by_role, plan.shape)
        return [y.reshape(shape).astype(plan.dtypes.final) for y in results]


def _require_faster(served: Served, spec: Spec) -> None:
    """implementation=None leaves to XLA what a record says XLA does faster."""
    if served.xla_wins and spec.options.implementation is None:
        raise UnsupportedError(f"XLA was measured to be faster than schedule {served.schedule}")


def _prepare(plan: Plan, lhs: Any, rhs: Any, bias: Any, residual: Any) -> dict[BufferRole, Any]:
    """Operands by role, as the kernel wants them; conversions here are XLA's and can fuse."""
    operands: dict[BufferRole, Any] = {
        "lhs": plan.lhs(lhs.astype(plan.dtypes.operand)),
        "rhs": plan.rhs(rhs if plan.is_rhs_rounded else rhs.astype(plan.dtypes.operand)),
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
