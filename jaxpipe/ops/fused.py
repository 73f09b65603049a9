"""A product with its epilogue in one kernel: the primitive and its rules.

Operands (lhs, rhs[, bias][, residual]), parameters spec and fusion; results [y] or
[y, pre-activation]. bias has the shape of rhs's free dimensions, residual the result's. Only
differentiation asks for the pre-activation, and it is all that reverse mode saves beside lhs and
rhs. It must not know kernels.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxpipe.errors import ProblemError
from jaxpipe.ops import automatic, compat, epilogue, partition
from jaxpipe.ops import conv as convolution
from jaxpipe.ops import dot as plain
from jaxpipe.ops.conv_spec import ConvSpec
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.packed_spec import PackedSpec
from jaxpipe.ops.prepared_spec import PreparedSpec
from jaxpipe.ops.specs import Spec


def product(spec: Spec, fusion: Fusion, lhs: Any, rhs: Any, *extras: Any) -> list[Any]:
    """[y] or [y, pre-activation] of arrays; checks the shapes of bias and residual."""
    if fusion.is_identity and not isinstance(spec, PreparedSpec):
        return [bare(spec, lhs, rhs)]
    lhs, rhs, *varied = compat.same_varying(lhs, rhs, *extras)
    bias, residual = fusion.split(tuple(varied))
    out = spec.result_type(jax.typeof(lhs), jax.typeof(rhs))
    check_epilogue(spec, fusion, jax.typeof(lhs), jax.typeof(rhs), out, bias, residual)
    return _bind(lhs, rhs, *varied, spec=spec, fusion=fusion)


def check_epilogue(
    spec: Spec, fusion: Fusion, lhs: Any, rhs: Any, out: Any, bias: Any, residual: Any
) -> None:
    """Raise ProblemError where bias, residual or activation do not fit a result like `out`."""
    what = f"{spec.op} of shapes {lhs.shape} and {rhs.shape}"
    wanted = spec.bias_shape(lhs, rhs)
    if bias is not None and bias.shape != wanted:
        raise ProblemError(
            f"{what}: bias has shape {bias.shape}, it takes {wanted}; reshape or broadcast it"
        )
    if residual is not None and residual.shape != out.shape:
        raise ProblemError(
            f"{what}: residual has shape {residual.shape}, it takes the result's {out.shape}; "
            "broadcast it"
        )
    for name, extra in (("bias", bias), ("residual", residual)):
        if extra is not None and _kind(extra.dtype) > _kind(out.dtype):
            raise ProblemError(
                f"{what}: {name} is {extra.dtype.name}, the result {out.dtype.name} cannot hold "
                "it: convert it, or pass preferred_element_type"
            )
    if not (fusion.is_linear or jnp.issubdtype(out.dtype, jnp.floating)):
        raise ProblemError(
            f"{what}: activation {fusion.activation} of {out.dtype.name} results: activations "
            "take floating-point results; pass preferred_element_type"
        )


def _kind(dtype: Any) -> int:
    """Rank of a dtype among truth values, integers, real and complex numbers."""
    kinds = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    return next(i for i, kind in enumerate(kinds) if jnp.issubdtype(dtype, kind))


def bare(spec: Spec, lhs: Any, rhs: Any) -> Any:
    """The plain product: bilinear, with a primitive of its own."""
    match spec:
        case DotSpec():
            return plain.bind(lhs, rhs, spec)
        case ConvSpec():
            return convolution.bind(lhs, rhs, spec)
        case PreparedSpec():
            return plain.bind(lhs, spec.weight(rhs), spec.dense)


def _bind(*operands: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    operands = tuple(compat.same_varying(*operands))
    marked = automatic.mark(*operands)
    return fused_p.bind(*operands, spec=spec, fusion=fusion, mark=marked)  # type: ignore[no-any-return]


# ------------------------------------------------------------------ type
def _type(*avals: Any, spec: Spec, fusion: Fusion, mark: Any) -> list[Any]:
    out = spec.result_type(*avals[:2])
    return [out, out] if fusion.save else [out]


# ------------------------------------------------------------------ derivatives
def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, spec: Spec, fusion: Fusion, mark: Any
) -> tuple[list[Any], list[Any]]:
    """y' = activation'(z) z' + residual', z' the sum over the operands that have a tangent, the
    residual among them where it is added first; for
    y = z slope(r) it is slope(r) z' + z slope'(r) r'."""
    wants_z = fusion.save or not fusion.is_linear
    outs = _bind(*primals, spec=spec, fusion=replace(fusion, save=wants_z))
    z = outs[-1]
    terms = _preactivation_terms(primals, tangents, spec, fusion, jax.typeof(outs[0]))
    zd = functools.reduce(operator.add, terms) if terms else None
    _, rd = fusion.split(tuple(tangents[2:]))
    _, residual = fusion.split(tuple(primals[2:]))
    yd = _result_tangent(z, zd, residual, rd, fusion)
    zero = compat.zero_tangent(jax.typeof(outs[0]))
    filled = [zero if t is None else t for t in (yd, zd)]
    results = 1 + fusion.save
    return outs[:results], filled[:results]


def _preactivation_terms(
    primals: Sequence[Any], tangents: Sequence[Any], spec: Spec, fusion: Fusion, out: Any
) -> list[Any]:
    lhs, rhs = primals[:2]
    lhs_t, rhs_t = tangents[:2]
    bias_t, residual_t = fusion.split(tuple(tangents[2:]))
    terms = []
    if not compat.is_zero(lhs_t):
        terms.append(_scaled(bare(spec, lhs_t, rhs), fusion))
    if not compat.is_zero(rhs_t):
        terms.append(_scaled(bare(spec, lhs, rhs_t), fusion))
    if bias_t is not None and not compat.is_zero(bias_t):
        terms.append(_broadcast_bias(bias_t, out))
    if fusion.residual_first and not compat.is_zero(residual_t):
        terms.append(residual_t.astype(out.dtype))
    return terms


def _scaled(x: Any, fusion: Fusion) -> Any:
    return x if fusion.alpha == 1.0 else x * jnp.asarray(fusion.alpha, x.dtype)


def _broadcast_bias(bias: Any, out: Any) -> Any:
    """bias along the trailing dimensions of a result of type `out`."""
    mesh = compat.mesh_of(out)
    sharding = None
    if AxisType.Explicit in mesh.axis_types:
        sharding = NamedSharding(mesh, PartitionSpec(*compat.spec_of(out)))
    dims = tuple(range(out.ndim - bias.ndim, out.ndim))
    return lax.broadcast_in_dim(bias.astype(out.dtype), out.shape, dims, out_sharding=sharding)


def _result_tangent(z: Any, zd: Any, residual: Any, rd: Any, fusion: Fusion) -> Any:
    """None when nothing reaches y."""
    terms = []
    has_rd = rd is not None and not compat.is_zero(rd)
    if fusion.derivative != "none":
        slope = functools.partial(epilogue.derivative, residual, activation=fusion.derivative)
        terms += [] if zd is None else [slope(zd)]
        terms += [slope(z * rd.astype(z.dtype), order=2)] if has_rd else []
        return functools.reduce(operator.add, terms) if terms else None
    if zd is not None:
        linear = fusion.is_linear
        terms.append(zd if linear else epilogue.derivative(z, zd, fusion.activation))
    if has_rd and not fusion.residual_first:
        terms.append(rd.astype(z.dtype))
    return functools.reduce(operator.add, terms) if terms else None


def _transpose(
    cotangents: Sequence[Any], *operands: Any, spec: Spec, fusion: Fusion, mark: Any
) -> list[Any]:
    """Without an activation, y = z + residual and z = alpha * lhs rhs + bias are linear."""
    assert fusion.is_linear, f"{fusion!r} is not linear, only its tangent is"
    known = [g for g in cotangents if not compat.is_zero(g)]
    g_z = functools.reduce(operator.add, known) if known else None
    g_y = None if compat.is_zero(cotangents[0]) else cotangents[0]
    lhs, rhs, *extras = operands
    bias, residual = fusion.split(tuple(extras))
    outs = [None, None]
    if g_z is not None:
        outs = _product_cotangents(_scaled(g_z, fusion), lhs, rhs, spec)
    for operand, g in ((bias, g_z), (residual, g_y)):
        if operand is not None:
            linear = g is not None and compat.is_linear_operand(operand)
            outs.append(_summed_to(g, operand.aval) if linear else None)
    return outs


def _product_cotangents(g: Any, lhs: Any, rhs: Any, spec: Spec) -> list[Any]:
    if isinstance(spec, PreparedSpec):
        return _prepared_cotangents(g, lhs, rhs, spec)
    module: Any = plain if isinstance(spec, DotSpec) else convolution
    if compat.is_linear_operand(lhs):
        return [module.transpose_lhs(g, lhs, rhs, spec=spec, mark=None), None]
    if compat.is_linear_operand(rhs):
        return [None, module.transpose_rhs(g, lhs, rhs, spec=spec, mark=None)]
    return [None, None]


def _prepared_cotangents(g: Any, lhs: Any, rhs: Any, spec: Spec) -> list[Any]:
    """Through what is done to rhs before the product, too."""
    if compat.is_linear_operand(lhs):
        of_lhs = jax.linear_transpose(lambda x: bare(spec, x, rhs), lhs.aval)
        return [of_lhs(g)[0], None]
    if compat.is_linear_operand(rhs):
        of_rhs = jax.linear_transpose(lambda w: bare(spec, lhs, w), rhs.aval)
        return [None, of_rhs(g)[0]]
    return [None, None]


def _summed_to(g: Any, aval: Any) -> Any:
    """The cotangent of what was broadcast along leading dimensions."""
    lead = tuple(range(g.ndim - aval.ndim))
    wide = g.astype(epilogue.accumulator(g.dtype))
    return (wide.sum(lead) if lead else g).astype(aval.dtype)


# ------------------------------------------------------------------ vmap
def _batch(
    axis_data: Any,
    args: Sequence[Any],
    dims: Sequence[Any],
    *,
    spec: Spec,
    fusion: Fusion,
    mark: Any,
) -> tuple[list[Any], list[Any]]:
    """One kernel still, unless the mapped dimension is one that a kernel's bias cannot follow."""
    if all(dim is None for dim in dims):
        outs = _bind(*args, spec=spec, fusion=fusion)
        return outs, [None] * len(outs)
    bias_dim, residual_dim = fusion.split(tuple(dims[2:]))
    products = dims[0] is not None or dims[1] is not None
    products = products and not (isinstance(spec, PackedSpec) and dims[1] is not None)
    follows = bias_dim is None or (dims[0] is None and dims[1] is not None)
    if isinstance(spec, ConvSpec) or not (products and follows):
        return _batch_unfused(args, dims, spec, fusion)
    lhs, rhs, *extras = args
    bias, residual = fusion.split(tuple(extras))
    mapped, out = spec.mapped((lhs.ndim, rhs.ndim), (dims[0], dims[1]), compat.axis_spec(axis_data))
    size = axis_data.size
    operands = [lhs, rhs]
    if bias is not None:
        operands.append(_map_bias(bias, bias_dim, mapped, (lhs, rhs), dims, out, size))
    if residual is not None:
        operands.append(_at(residual, residual_dim, out, size))
    outs = _bind(*operands, spec=mapped, fusion=fusion)
    return outs, [out] * len(outs)


def _map_bias(
    bias: Any, dim: Any, spec: Spec, operands: Sequence[Any], dims: Sequence[Any],
    out: int, size: int,
) -> Any:  # fmt: skip
    """When rhs alone is mapped, the new dimension is one of the bias too."""
    if dims[0] is not None:
        return bias
    lead = spec.result_type(*(jax.typeof(x) for x in operands)).ndim - bias.ndim - (dim is None)
    return _at(bias, dim, out - lead, size)


def _at(x: Any, dim: Any, out: int, size: int) -> Any:
    """x with its mapped dimension at `out`, broadcast when it has none."""
    if dim is not None:
        return jnp.moveaxis(x, dim, out)
    shape = (*x.shape[:out], size, *x.shape[out:])
    return jnp.broadcast_to(jnp.expand_dims(x, out), shape)


def _batch_unfused(
    args: Sequence[Any], dims: Sequence[Any], spec: Spec, fusion: Fusion
) -> tuple[list[Any], list[Any]]:
    """The plain product, which is batched as one, then the epilogue in JAX."""
    unfused = functools.partial(_unfused, spec=spec, fusion=fusion)
    outs = jax.vmap(unfused, tuple(dims))(*args)
    return outs, [0] * len(outs)


def _unfused(*operands: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    lhs, rhs, *extras = operands
    bias, residual = fusion.split(tuple(extras))
    acc = bare(spec, lhs, rhs)
    wide = acc.astype(epilogue.accumulator(acc.dtype))
    return epilogue.apply(wide, bias, residual, fusion, acc.dtype)


# ------------------------------------------------------------------ lowering
def _lower(ctx: Any, *values: Any, spec: Spec, fusion: Fusion, mark: Any) -> Any:
    return partition.lower(ctx, *values, spec=spec, fusion=fusion, mark=mark)


fused_p = compat.primitive("jaxpipe_fused", _type, many=True)
compat.set_jvp(fused_p, _jvp)
compat.set_transpose(fused_p, _transpose)
compat.set_batching(fused_p, _batch)
compat.set_lowering(fused_p, _lower)
