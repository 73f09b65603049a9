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
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, get_abstract_mesh
from jax.sharding import PartitionSpec as P

from jaxpipe.ops import compat, epilogue, execute
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.specs import Spec
from jaxpipe.runtime import device
from jaxpipe.version import VERSION

Axes = tuple[str, ...]
AxesOf = dict[str, Axes]  # letter -> mesh axes that split it


# ------------------------------------------------------------------ the kernel primitive
def _kernel_types(*avals: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    out = spec.result_type(*avals[:2])
    return [out, out] if fusion.save else [out]


def _placed_types(*avals: Any, platform: str, spec: Spec, fusion: Fusion) -> list[Any]:
    return _kernel_types(*avals, spec=spec, fusion=fusion)


def _lower_kernel(platform: str) -> Callable[..., Any]:
    def rule(ctx: Any, *values: Any, spec: Spec, fusion: Fusion) -> Any:
        place = execute.Place(platform, device.devices_of(ctx))
        fun = functools.partial(execute.run, spec=spec, fusion=fusion, place=place)
        return compat.lower_as(fun, many=True)(ctx, *values)

    return rule


kernel_p = compat.primitive("jaxpipe_kernel", _kernel_types, many=True)
for _platform in ("cpu", "cuda"):
    compat.set_lowering(kernel_p, _lower_kernel(_platform), _platform)
compat.set_lowering(kernel_p, _lower_kernel("other"))


def _lower_placed(ctx: Any, *values: Any, platform: str, **words: Any) -> Any:
    return _lower_kernel(platform)(ctx, *values, **words)


# The same for a platform by name, in the branches of a program for several.
placed_p = compat.primitive("jaxpipe_placed_kernel", _placed_types, many=True)
compat.set_lowering(placed_p, _lower_placed)


def local(*operands: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    """Route 1: the kernel on what this device holds."""
    spec = replace(spec, out_sharding=None)
    return kernel_p.bind(*operands, spec=spec, fusion=fusion)  # type: ignore[no-any-return]


def _local_then_sum(*operands: Any, spec: Spec, fusion: Fusion, axes: Axes) -> list[Any]:
    """The kernel, then one psum over the axes that split contracted dimensions.

    Partial sums cross devices in the result's dtype, as XLA's do. A nonlinear epilogue comes
    after the sum.
    """
    if not axes:
        return local(*compat.same_varying(*operands), spec=spec, fusion=fusion)
    lhs, rhs, *extras = operands
    (partial,) = local(*compat.same_varying(lhs, rhs), spec=spec, fusion=Fusion())
    # The sum no longer varies over `axes`, nor must what is added to it.
    acc, *extras = compat.same_varying(lax.psum(partial, axes), *extras)
    if fusion.is_identity:
        return [acc]
    bias, residual = fusion.split(tuple(extras))
    wide = acc.astype(epilogue.accumulator(acc.dtype))
    return epilogue.apply(wide, bias, residual, fusion, acc.dtype)


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
    in_specs = tuple(_partition_spec(letters, axes) for letters in factors.operands(fusion))
    out_specs = [_partition_spec(factors.out, axes)] * (1 + fusion.save)
    body = functools.partial(
        _local_then_sum, spec=spec, fusion=fusion, axes=_reduced_axes(factors, axes)
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
        found[letter] = found.get(letter) or _flat(axis)
    for letter, axis in zip(factors.out, out, strict=True):
        found[letter] = _flat(axis)
    for letter in factors.whole:
        found[letter] = ()
    used = {axis for letter in factors.out for axis in found[letter]}
    for letter in factors.reduced:
        found[letter] = tuple(a for a in found[letter] if a not in used)
        used |= set(found[letter])
    return found


def _flat(axis: Any) -> Axes:
    if axis is None or axis is P.UNCONSTRAINED:
        return ()
    return tuple(axis) if isinstance(axis, tuple) else (axis,)


def _partition_spec(letters: Sequence[str], axes: AxesOf) -> Any:
    return P(*[axes.get(letter) or None for letter in letters])


def _reduced_axes(factors: Factors, axes: AxesOf) -> Axes:
    return tuple(axis for letter in factors.reduced for axis in axes[letter])


# ------------------------------------------------------------------ automatic meshes
Static = tuple[Spec, Fusion, Any]


def automatic(*operands: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    """Route 3: the partitioner decides the shardings and calls back for the local program."""
    static = (spec, fusion, get_abstract_mesh())
    # Everything static goes into the program's text: with
    # jax_remove_custom_partitioning_ptr_from_cache_key, what is not there is not in the key, and
    # another product's executable would be served.
    with set_xla_metadata(jaxpipe=f"{VERSION} {spec!r} {spec.options!r} {fusion!r}"):
        return _partitioned()(static, *operands)  # type: ignore[no-any-return]


@functools.cache
def _partitioned() -> Any:
    def whole(static: Static, *operands: Any) -> list[Any]:
        return local(*operands, spec=static[0], fusion=static[1])

    # The callables below take the static argument first, then what custom_partitioning gives.
    wrapped = custom_partitioning(whole, static_argnums=(0,))
    wrapped.def_partition(
        _partition, infer_sharding_from_operands=_infer, sharding_rule=_sharding_rule
    )
    return wrapped


def _sharding_rule(static: Static, mesh: Any, values: Any, results: Any) -> Any:
    """Shardy's rule from the letters; it takes the place of propagation code."""
    spec, fusion, _ = static
    factors = spec.factors(values[0].rank, values[1].rank)
    ins = ", ".join(" ".join(letters) for letters in factors.operands(fusion))
    outs = ", ".join([" ".join(factors.out)] * len(results))
    kinds = {"reduction_factors": factors.reduced, "need_replication_factors": factors.whole}
    return f"{ins} -> {outs}", {name: letters for name, letters in kinds.items() if letters}


def _infer(static: Static, mesh: Any, operands: Any, result: Any) -> Any:
    """GSPMD only (jax_use_shardy_partitioner=False); without it 0.10 aborts the process."""
    return _partition(static, mesh, operands, result)[2]


def _partition(static: Static, mesh: Any, operands: Any, result: Any) -> Any:
    """(mesh, local program, result shardings, operand shardings) for the operands' shardings."""
    spec, fusion, abstract = static
    mesh = _concrete_mesh(mesh, abstract, operands[0])
    factors = spec.factors(len(operands[0].shape), len(operands[1].shape))
    axes = _automatic_axes(factors, [_named_spec(x, mesh) for x in operands[:2]])
    sharding = {
        letters: NamedSharding(mesh, _partition_spec(letters, axes))
        for letters in {factors.out, *factors.operands(fusion)}
    }
    pads = _uneven(factors, axes, mesh, operands)

    def program(*shards: Any) -> list[Any]:
        # jit may be compiling under jax.set_mesh(explicit): a mesh in here would put sharding
        # operations into the psum's reducer, which XLA refuses.
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            lhs, rhs, *extras = shards
            for pad in pads:
                lhs, rhs = pad(lhs, rhs)
            reduced = _reduced_axes(factors, axes)
            return _local_then_sum(lhs, rhs, *extras, spec=spec, fusion=fusion, axes=reduced)

    outs = [sharding[factors.out]] * (1 + fusion.save)
    return mesh, program, outs, tuple(sharding[s] for s in factors.operands(fusion))


def _automatic_axes(factors: Factors, specs: Sequence[Sequence[Any]]) -> AxesOf:
    """First come, first served: an axis that two factors want goes to the earlier one."""
    wanted: AxesOf = {}
    for letter, axis in zip((*factors.lhs, *factors.rhs), (*specs[0], *specs[1]), strict=True):
        wanted[letter] = wanted.get(letter) or _flat(axis)
    used: set[str] = set()
    found: AxesOf = dict.fromkeys(factors.whole, ())
    for letter in (*factors.out, *factors.reduced):
        if letter not in found:
            found[letter] = tuple(a for a in wanted[letter] if a not in used)
            used |= set(found[letter])
    return found


def _uneven(
    factors: Factors, axes: AxesOf, mesh: Any, operands: Any
) -> list[Callable[[Any, Any], tuple[Any, Any]]]:
    """Masks for contracted dimensions that do not divide: padding is undefined there, and would
    be summed."""
    lhs = operands[0]
    pads: list[Callable[[Any, Any], tuple[Any, Any]]] = []
    for letter in factors.reduced:
        i, j = factors.lhs.index(letter), factors.rhs.index(letter)
        size = lhs.shape[i]
        if size % math.prod(mesh.shape[a] for a in axes[letter]):
            pads.append(functools.partial(_zero_tails, dims=(i, j), size=size, axes=axes[letter]))
    return pads


def _zero_tails(
    lhs: Any, rhs: Any, *, dims: tuple[int, int], size: int, axes: Axes
) -> tuple[Any, Any]:
    """Zero what lies beyond element `size` of the whole dimension, in both operands."""
    shards = []
    for x, dim in zip((lhs, rhs), dims, strict=True):
        start = lax.axis_index(axes) * x.shape[dim]
        inside = lax.broadcasted_iota(np.int32, x.shape, dim) + start < size
        shards.append(jnp.where(inside, x, jnp.zeros((), x.dtype)))
    return shards[0], shards[1]


# ------------------------------------------------------------------ unnamed shardings
def _concrete_mesh(mesh: Any, abstract: Any, operand: Any) -> Any:
    """`mesh`, or when it is empty the one that the context named.

    Constraints by PartitionSpec under jax.set_mesh reach the callback without a mesh.
    """
    if not mesh.empty:
        return mesh
    devices = np.array(list(operand.sharding.devices_indices_map(operand.shape)), dtype=object)
    if abstract.size == devices.size:
        return Mesh(devices.reshape(abstract.axis_sizes), abstract.axis_names)
    return Mesh(devices, ("devices",))


def _named_spec(operand: Any, mesh: Any) -> tuple[Any, ...]:
    """The operand's partition spec; for an unnamed sharding the equivalent named one."""
    ndim = len(operand.shape)
    sharding = operand.sharding
    if isinstance(sharding, NamedSharding):
        spec: tuple[Any, ...] = tuple(sharding.spec)
        return spec + (None,) * (ndim - len(spec))
    for spec in _candidate_specs(operand, mesh):
        if NamedSharding(mesh, P(*spec)).is_equivalent_to(sharding, ndim):
            return spec
    return (None,) * ndim


def _candidate_specs(operand: Any, mesh: Any) -> Any:
    """Specs whose shard counts are the operand's; few."""
    local_shape = operand.sharding.shard_shape(operand.shape)
    orders = [
        order
        for n in range(len(mesh.axis_names) + 1)
        for order in itertools.permutations(mesh.axis_names, n)
    ]
    per_dim = [
        [
            o
            for o in orders
            if math.prod(mesh.shape[a] for a in o) == (-(-size // part) if part else 1)
        ]
        for size, part in zip(operand.shape, local_shape, strict=True)
    ]
    for choice in itertools.product(*per_dim):
        axes = [axis for order in choice for axis in order]
        if len(axes) == len(set(axes)):
            yield tuple(order or None for order in choice)


# ------------------------------------------------------------------ the mark
class _Mark(tuple[Any, ...]):
    """Holds a jaxpr so that JAX finds a custom_partitioning in our parameters, prints as a word.

    JAX tells a lowering rule the devices only when it finds such a primitive in the program or
    in jaxprs among the parameters of its equations.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "auto"

    __str__ = __repr__


@functools.cache
def _mark() -> _Mark:
    one = jax.ShapeDtypeStruct((1, 1), np.float32)
    static = (DotSpec((((1,), (0,)), ((), ()))), Fusion(), AbstractMesh((), ()))
    with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
        return _Mark((jax.make_jaxpr(functools.partial(_partitioned(), static))(one, one),))


def mark(*operands: Any) -> _Mark | None:
    """The `mark` parameter of a call: None where every mesh in sight is explicit or manual."""
    meshes = [get_abstract_mesh(), *(compat.mesh_of(jax.typeof(x)) for x in operands)]
    known = [mesh for mesh in meshes if not mesh.empty]
    if known and all(m.are_all_axes_explicit or m.are_all_axes_manual for m in known):
        return None
    return _mark()
