"""Products on automatic meshes: custom_partitioning calls back with the shardings.

In: operands, spec, fusion while lowering for several devices. Out: the results, computed shard by
shard. Each comment names what fails without. It must not know kernels or derivatives.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import AbstractMesh, Mesh, NamedSharding, get_abstract_mesh
from jax.sharding import PartitionSpec as P

from jaxpipe.ops import compat
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.shard import (
    Axes,
    AxesOf,
    flat,
    local,
    local_then_sum,
    partition_spec,
    reduced_axes,
)
from jaxpipe.ops.specs import Spec
from jaxpipe.version import VERSION

Static = tuple[Spec, Fusion, Any]


def automatic(*operands: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    """The partitioner decides the shardings and calls back for the local program."""
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
        letters: NamedSharding(mesh, partition_spec(letters, axes))
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
            reduced = reduced_axes(factors, axes)
            return local_then_sum(lhs, rhs, *extras, spec=spec, fusion=fusion, axes=reduced)

    outs = [sharding[factors.out]] * (1 + fusion.save)
    return mesh, program, outs, tuple(sharding[s] for s in factors.operands(fusion))


def _automatic_axes(factors: Factors, specs: Sequence[Sequence[Any]]) -> AxesOf:
    """First come, first served: an axis that two factors want goes to the earlier one."""
    wanted: AxesOf = {}
    for letter, axis in zip((*factors.lhs, *factors.rhs), (*specs[0], *specs[1]), strict=True):
        wanted[letter] = wanted.get(letter) or flat(axis)
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
