"""Where a product runs when there are several devices: four routes, chosen while lowering.

In: the lowering context, spec, fusion, operands. Out: the results, computed shard by shard by the
kernel primitive, with one psum where a contracted dimension is split.

1. one device, or everything manual (inside shard_map): the kernel itself.
2. an explicit mesh: shardings stand in the types, so a shard_map around the kernel.
3. automatic axes over several devices: custom_partitioning, created here and nowhere earlier.
4. what none of these can say (partly manual or mixed meshes, unreduced results, exporting an
   automatically partitioned program): lax, counted.

It must not know kernels or derivatives. Source of the traps: each comment names what fails without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType, NamedSharding

from jaxpipe.ops import compat, execute
from jaxpipe.ops.automatic import automatic
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.shard import (
    AxesOf,
    flat,
    local,
    local_then_sum,
    partition_spec,
    placed_p,
    reduced_axes,
)
from jaxpipe.ops.specs import Spec


# ------------------------------------------------------------------ choosing
def lower(ctx: Any, *values: Any, spec: Spec, fusion: Fusion, mark: Any) -> Any:
    """The lowering of our outer primitives on every platform."""
    route = _route(ctx, spec)
    fun = functools.partial(route, spec=spec, fusion=fusion)
    return compat.lower_as(fun, many=True)(ctx, *values)


def _route(ctx: Any, spec: Spec) -> Callable[..., list[Any]]:
    route, platforms = _route_of_one(ctx, spec), compat.platforms(ctx)
    if len(platforms) <= 1:
        return route
    if route is not local or any(compat.mesh_of(aval).axis_types for aval in ctx.avals_in):
        return _reference("a program over a mesh for several platforms at once: export one each")
    return functools.partial(by_platform, platforms=platforms)


def by_platform(
    *operands: Any, spec: Spec, fusion: Fusion, platforms: tuple[str, ...]
) -> list[Any]:
    """One branch a platform, each with its own kernel; who runs the program takes one of them."""
    spec = replace(spec, out_sharding=None)
    branches = {
        name: functools.partial(placed_p.bind, platform=name, spec=spec, fusion=fusion)
        for name in platforms
    }
    return lax.platform_dependent(*operands, **branches)  # type: ignore[no-any-return]


def _route_of_one(ctx: Any, spec: Spec) -> Callable[..., list[Any]]:
    meshes = [compat.mesh_of(aval) for aval in ctx.avals_in]
    kinds = {kind for mesh in meshes for kind in mesh.axis_types}
    if _is_unreduced(ctx, spec):
        return _reference("an unreduced result")
    if kinds == {AxisType.Manual}:
        return local
    if kinds == {AxisType.Explicit}:
        return explicit
    if len(kinds) > 1:
        return _reference("a mesh whose axes are of mixed kinds, or a partly manual shard_map")
    if (compat.device_count(ctx) or 1) == 1:
        return local
    if compat.is_exporting(ctx):
        return _reference("an export over several automatic devices: use explicit axes")
    return automatic


def _is_unreduced(ctx: Any, spec: Spec) -> bool:
    specs = [aval.sharding.spec for aval in (*ctx.avals_in, *ctx.avals_out)]
    if spec.out_sharding is not None:
        specs.append(spec.out_sharding.spec)
    return any(getattr(s, "unreduced", None) for s in specs)


def _reference(reason: str) -> Callable[..., list[Any]]:
    return functools.partial(execute.run_reference, reason=reason)


# ------------------------------------------------------------------ explicit meshes
def explicit(*operands: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    """Route 2: shardings are in the types, so this is one shard_map and no callback."""
    types = [jax.typeof(x) for x in operands]
    mesh = next(compat.mesh_of(t) for t in types if not compat.mesh_of(t).empty)
    factors = spec.factors(types[0].ndim, types[1].ndim)
    out = compat.spec_of(spec.result_type(*types[:2]))
    axes = _explicit_axes(factors, compat.spec_of(types[0]), compat.spec_of(types[1]), out)
    in_specs = tuple(partition_spec(letters, axes) for letters in factors.operands(fusion))
    out_specs = [partition_spec(factors.out, axes)] * (1 + fusion.save)
    body = functools.partial(
        local_then_sum, spec=spec, fusion=fusion, axes=reduced_axes(factors, axes)
    )
    places = (NamedSharding(mesh, s) for s in in_specs)
    placed = [jax.reshard(x, p) for x, p in zip(operands, places, strict=True)]
    mapped = jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    return mapped(*placed)  # type: ignore[no-any-return]


def _explicit_axes(
    factors: Factors, lhs: Sequence[Any], rhs: Sequence[Any], out: Sequence[Any]
) -> AxesOf:
    """Result letters as the result's type says; reduced ones keep what is left of the operands'."""
    found: AxesOf = {}
    for letter, axis in zip((*factors.lhs, *factors.rhs), (*lhs, *rhs), strict=True):
        found[letter] = found.get(letter) or flat(axis)
    for letter, axis in zip(factors.out, out, strict=True):
        found[letter] = flat(axis)
    for letter in factors.whole:
        found[letter] = ()
    used = {axis for letter in factors.out for axis in found[letter]}
    for letter in factors.reduced:
        found[letter] = tuple(a for a in found[letter] if a not in used)
        used |= set(found[letter])
    return found
