"""Convolutions as a primitive of our own: public functions, type, derivatives, vmap, lowering.

Derivatives and batching are lax's own: its rule is traced, and the convolutions in it are bound to
ours again. So every gradient is right, and those that kernels serve are kernels. It must not know
kernels, executors or epilogues.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxpipe.ops import automatic, compat, options, partition
from jaxpipe.ops.conv_spec import ConvSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.options import Options


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> jax.Array:
    """A drop-in for `jax.lax.conv_general_dilated`: same arguments, shapes, dtypes and errors.

    Kernels serve one group, one or two spatial dimensions, NHWC images ("NHWC", any filter order,
    "NHWC") with strides, dilated filters and any non-negative padding. The rest goes to XLA and is
    counted in `jaxpipe.coverage()`. Flax takes it as `conv_general_dilated=`.
    """
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    convolve = functools.partial(
        lax.conv_general_dilated,
        window_strides=window_strides,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )
    return bind(lhs, rhs, spec_of(convolve, lhs, rhs, options.current()))


def spec_of(convolve: Callable[..., Any], lhs: Any, rhs: Any, chosen: Options) -> ConvSpec:
    """The spec of the lax convolution that `convolve(lhs, rhs)` makes; lax checks and canonises."""
    lhs, rhs = compat.same_varying(lhs, rhs)
    closed = jax.make_jaxpr(convolve)(jax.typeof(lhs), jax.typeof(rhs))
    (params,) = (e.params for e in closed.eqns if e.primitive is compat.conv_general_dilated_p)
    return ConvSpec.of(params, chosen)


def bind(lhs: Any, rhs: Any, spec: ConvSpec) -> Any:
    """The convolution of arrays by `spec`; a replicated operand is made as varying as the other."""
    lhs, rhs = compat.same_varying(lhs, rhs)
    return conv_p.bind(lhs, rhs, spec=spec, mark=automatic.mark(lhs, rhs))


# ------------------------------------------------------------------ type
def _type(lhs: Any, rhs: Any, *, spec: ConvSpec, mark: Any) -> Any:
    return spec.result_type(lhs, rhs)


# ------------------------------------------------------------------ lax's rules, our convolutions
def _through_lax(fun: Callable[..., Any], *operands: Any, spec: ConvSpec) -> Any:
    """`fun(*operands)`, a function of lax convolutions, with each bound to ours."""
    closed = jax.make_jaxpr(fun)(*(jax.typeof(x) for x in operands))
    env = dict(zip(closed.jaxpr.invars, operands, strict=True))
    env |= dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, compat.Literal) else env[atom]

    for eqn in closed.jaxpr.eqns:
        ins = [read(atom) for atom in eqn.invars]
        if eqn.primitive is compat.conv_general_dilated_p:
            outs: Any = bind(ins[0], ins[1], ConvSpec.of(eqn.params, spec.options))
        else:
            outs = compat.rebind(eqn, ins)
        env |= zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True)
    (out,) = (read(atom) for atom in closed.jaxpr.outvars)
    return out


# ------------------------------------------------------------------ derivatives
def transpose_lhs(g: Any, x: Any, y: Any, *, spec: ConvSpec, mark: Any) -> Any:
    """The cotangent of the image x; its aval is all that is used of it."""

    def cotangent(g: Any, y: Any) -> Any:
        (out,) = jax.linear_transpose(lambda x: spec.reference(x, y), x.aval)(g)
        return out

    return _through_lax(cotangent, *compat.same_varying(g, y), spec=spec)


def transpose_rhs(g: Any, x: Any, y: Any, *, spec: ConvSpec, mark: Any) -> Any:
    """The cotangent of the filter y; its aval is all that is used of it."""

    def cotangent(g: Any, x: Any) -> Any:
        (out,) = jax.linear_transpose(lambda y: spec.reference(x, y), y.aval)(g)
        return out

    return _through_lax(cotangent, *compat.same_varying(g, x), spec=spec)


# ------------------------------------------------------------------ vmap
def _batch(
    axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, spec: ConvSpec, mark: Any
) -> tuple[Any, Any]:
    if dims[0] is None and dims[1] is None:
        return bind(args[0], args[1], spec), None
    mapped = jax.vmap(spec.reference, tuple(dims))
    return _through_lax(mapped, *args, spec=spec), 0


# ------------------------------------------------------------------ lowering
def _lower(ctx: Any, lhs: Any, rhs: Any, *, spec: ConvSpec, mark: Any) -> Any:
    return partition.lower(ctx, lhs, rhs, spec=spec, fusion=Fusion(), mark=mark)


conv_p = compat.primitive("jaxpipe_conv", _type)
compat.set_bilinear(conv_p, transpose_lhs, transpose_rhs)
compat.set_batching(conv_p, _batch)
compat.set_lowering(conv_p, _lower)
