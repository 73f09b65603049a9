"""dot_general as a primitive of our own: public function, type, derivatives, vmap, lowering.

The primitive keeps lax's general dimension numbers, so every rule is lax's algebra and one product
stays one product under vmap and in gradients. Transposes and strides are folded while lowering.
It must not know kernels, executors or epilogues.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, get_abstract_mesh

from jaxpipe.ops import automatic, compat, options, partition
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.fold import DimensionNumbers, free_dims


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> jax.Array:
    """A drop-in for `jax.lax.dot_general`: same arguments, shapes, dtypes and errors.

    dimension_numbers is ((lhs contracting, rhs contracting), (lhs batch, rhs batch)); the result
    is [batch..., lhs free..., rhs free...]. float16 and bfloat16 are summed in float32, int8 in
    int32, and only the final store rounds. What no kernel serves goes to XLA and is counted in
    `jaxpipe.coverage()`. Use it wherever a library takes a `dot_general`.
    """
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    spec = DotSpec(
        plain_dimension_numbers(dimension_numbers),
        canonical_precision(precision),
        None if preferred_element_type is None else canonical_dtype(preferred_element_type),
        canonical_sharding(out_sharding),
        options.current(),
    )
    return bind(lhs, rhs, spec)


def bind(lhs: Any, rhs: Any, spec: DotSpec) -> Any:
    """The product of arrays by `spec`; replicated operands are made as varying as the other."""
    lhs, rhs = compat.same_varying(lhs, rhs)
    return dot_p.bind(lhs, rhs, spec=spec, mark=automatic.mark(lhs, rhs))


# ------------------------------------------------------------------ canonical arguments
def plain_dimension_numbers(given: Any) -> DimensionNumbers:
    """Tuples of plain ints; wrong ones are lax's to refuse."""
    (lc, rc), (lb, rb) = (tuple(tuple(map(operator.index, dims)) for dims in g) for g in given)
    return (lc, rc), (lb, rb)


def canonical_precision(given: Any) -> Any:
    """lax's own canonical form, with jax.default_matmul_precision applied."""
    return _canonical_precision(
        tuple(given) if isinstance(given, list) else given,
        jax.config.jax_default_matmul_precision,
    )


@functools.lru_cache(maxsize=64)
def _canonical_precision(given: Any, default: Any) -> Any:
    """Read from an equation that lax makes, so that every spelling means what it means there."""
    del default  # part of the key
    one = jax.ShapeDtypeStruct((), np.float32)
    traced = jax.make_jaxpr(
        lambda a, b: lax.dot_general(a, b, (((), ()), ((), ())), precision=given)
    )(one, one)
    return traced.eqns[0].params["precision"]


def canonical_dtype(given: Any) -> Any:
    """A dtype as JAX will use it: 64-bit types only with x64 enabled."""
    return np.dtype(jax.dtypes.canonicalize_dtype(given))


def canonical_sharding(given: Any) -> Any:
    """A NamedSharding over the current mesh when a bare PartitionSpec is given."""
    if isinstance(given, PartitionSpec):
        return NamedSharding(get_abstract_mesh(), given)
    return given


# ------------------------------------------------------------------ type
def _type(lhs: Any, rhs: Any, *, spec: DotSpec, mark: Any) -> Any:
    return spec.result_type(lhs, rhs)


# ------------------------------------------------------------------ derivatives
def transpose_lhs(g: Any, x: Any, y: Any, *, spec: DotSpec, mark: Any) -> Any:
    """g[b, m, n] y[b, k, n] -> [b, m, k], permuted to x."""
    (xc, yc), (xb, yb) = spec.dimension_numbers
    x_free, y_free = _frees(x.aval, y, spec.dimension_numbers)
    batch, n_dims = _positions(len(xb), len(x_free), len(y_free))
    order = (*xb, *x_free, *(xc[i] for i in np.argsort(yc)))
    return _cotangent(g, y, ((n_dims, y_free), (batch, yb)), order, x.aval, spec)


def transpose_rhs(g: Any, x: Any, y: Any, *, spec: DotSpec, mark: Any) -> Any:
    """x[b, m, k] g[b, m, n] -> [b, k, n], permuted to y: no transpose for a plain product."""
    (xc, yc), (xb, yb) = spec.dimension_numbers
    x_free, y_free = _frees(x, y.aval, spec.dimension_numbers)
    batch, m_dims = _positions(len(xb), 0, len(x_free))
    order = (*yb, *(yc[i] for i in np.argsort(xc)), *y_free)
    return _cotangent(x, g, ((x_free, m_dims), (xb, batch)), order, y.aval, spec)


def _frees(x: Any, y: Any, dn: DimensionNumbers) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (xc, yc), (xb, yb) = dn
    return free_dims(x.ndim, xc, xb), free_dims(y.ndim, yc, yb)


def _positions(batch: int, skipped: int, wanted: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Batch dimensions of a result, and `wanted` dimensions after `skipped` free ones."""
    start = batch + skipped
    return tuple(range(batch)), tuple(range(start, start + wanted))


def _cotangent(
    lhs: Any, rhs: Any, dn: DimensionNumbers, order: tuple[int, ...], aval: Any, spec: DotSpec
) -> Any:
    """The product by `dn`, whose dimension i is dimension order[i] of `aval`, as `aval`."""
    product = DotSpec(
        dn, spec.precision, spec.preferred_element_type, _sharding_like(aval, order), spec.options
    )
    out = bind(lhs, rhs, product)
    inverse = tuple(int(i) for i in np.argsort(order))
    if inverse != tuple(range(len(order))):
        out = lax.transpose(out, inverse)
    return out.astype(aval.dtype)


def _sharding_like(aval: Any, order: tuple[int, ...]) -> Any:
    """On explicit meshes a gradient is sharded as its primal; contracting is ambiguous else."""
    mesh = compat.mesh_of(aval)
    if AxisType.Explicit not in mesh.axis_types:
        return None
    parts = compat.spec_of(aval)
    return NamedSharding(mesh, PartitionSpec(*(parts[i] for i in order)))


# ------------------------------------------------------------------ vmap
def _batch(
    axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, spec: DotSpec, mark: Any
) -> tuple[Any, Any]:
    if dims[0] is None and dims[1] is None:
        return bind(args[0], args[1], spec), None
    lhs, rhs = args
    mapped, out = spec.mapped((lhs.ndim, rhs.ndim), (dims[0], dims[1]), compat.axis_spec(axis_data))
    return bind(lhs, rhs, mapped), out


# ------------------------------------------------------------------ lowering
def _lower(ctx: Any, lhs: Any, rhs: Any, *, spec: DotSpec, mark: Any) -> Any:
    return partition.lower(ctx, lhs, rhs, spec=spec, fusion=Fusion(), mark=mark)


dot_p = compat.primitive("jaxpipe_dot", _type)
compat.set_bilinear(dot_p, transpose_lhs, transpose_rhs)
compat.set_batching(dot_p, _batch)
compat.set_lowering(dot_p, _lower)

_einsum = compat.einsum_with(dot_general)


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> jax.Array:
    """`jnp.einsum` with every product on `jaxpipe.dot_general`; same arguments and results."""
    return _einsum(
        subscripts, *operands, optimize=optimize, precision=precision,
        preferred_element_type=preferred_element_type, out_sharding=out_sharding,
    )  # fmt: skip
