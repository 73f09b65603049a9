"""The public products: `dot` and `conv`, their arguments made into specs and fusions.

Shapes are as in `jnp.dot` and NHWC; everything else is as `fused.product` has it. Quantised
operands come with scales. It must not know derivatives or kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpipe.errors import ProblemError
from jaxpipe.ops import compat, constants, epilogue, fused, options, packing, scales
from jaxpipe.ops import conv as convolution
from jaxpipe.ops import dot as plain
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.options import Implementation
from jaxpipe.ops.packed_spec import PackedSpec
from jaxpipe.ops.packing import Packed
from jaxpipe.ops.rounded_spec import ROUNDED, RoundedSpec


def dot(
    x: Any,
    w: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    residual_first: bool = False,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
    dtype: Any = None,
    implementation: Implementation | None = None,
) -> jax.Array:
    """`activation(x @ w + bias) + residual` in one kernel; with residual_first
    `activation(x @ w + bias + residual)`, as residual networks have it.

    x is [..., k]; w is [k, n], [..., k, n] or [k], contracted as in `jnp.dot`: the result is
    [*x.shape[:-1], *w.shape[:-2], n]. A matrix w may come as `prepack(w)`. bias has w's shape
    without k, residual the result's shape.
    activation is None, "relu", "gelu" (same as "gelu_tanh"), "gelu_erf", "silu" or "tanh".
    x and w are promoted as in jnp, or converted to dtype, as Flax layers are told it: a float32 w
    is then rounded to 16 bits by the CPU's kernels, without a copy. The result has their
    dtype unless preferred_element_type says otherwise. Sums, bias, activation and residual are
    float32 for narrower types; the one rounding is the final store.

    lhs_scale and rhs_scale are for quantised operands (8-bit floats, int8), as in
    `jax.lax.scaled_dot`: x is lhs_scale times what its elements say. A scale is one number, or
    lhs_scale[..., 1] (one a row of x) and rhs_scale[1, n] (one a column of w). x and w may then
    differ in dtype; the kernel writes wide sums, scales and epilogue are XLA's, and the result of
    8-bit operands is bfloat16, of wider integers float32, unless preferred_element_type says
    otherwise. Gradients of 8-bit operands are 8-bit, as JAX has it: train through
    `quantized_dot`.

    implementation None takes the best that applies and never fails; "cuda", "host", "interpret"
    or "xla" insist, and raise UnsupportedError when that one cannot serve. Raises ProblemError
    for shapes that do not fit and for an unknown activation.
    """
    is_scaled = lhs_scale is not None or rhs_scale is not None
    if is_scaled and dtype is not None:
        raise ProblemError(
            f"dot to dtype {plain.canonical_dtype(dtype)} with scales: quantised operands stay as "
            "they are; pass preferred_element_type"
        )
    x, w = scales.operands(x, w) if is_scaled else _promoted(x, w, dtype)
    chosen = options.current(implementation)
    if not is_scaled and x.dtype == w.dtype:
        w = constants.weight(x, w, chosen)
    preferred = preferred_element_type
    spec = DotSpec(
        _dimension_numbers(x, w),
        plain.canonical_precision(precision),
        None if preferred is None else plain.canonical_dtype(preferred),
        None,
        chosen,
    )
    fusion = fusion_of(bias, activation, residual, residual_first)
    if isinstance(w, Packed):
        packed = PackedSpec(spec, w.shape)
        return fused.product(packed, fusion, x, w.data, *extras_of(bias, residual))[0]
    if is_scaled:
        factors = scales.of_result(x, w, lhs_scale, rhs_scale)
        return _scaled(spec, fusion, x, w, factors, *extras_of(bias, residual))
    rounded = spec if x.dtype == w.dtype else RoundedSpec(spec, x.dtype.name)
    return fused.product(rounded, fusion, x, w, *extras_of(bias, residual))[0]


def _scaled(
    spec: DotSpec, fusion: Fusion, x: Any, w: Any, factors: Sequence[Any], *extras: Any
) -> jax.Array:
    """Wide sums from the kernel; scales, bias, activation and residual on them; one rounding."""
    acc = fused.bare(replace(spec, preferred_element_type=_sum_dtype(x, w)), x, w)
    acc = acc.astype(jnp.promote_types(jnp.float32, acc.dtype))
    for factor in factors:
        acc = acc * factor.astype(acc.dtype)
    dtype = spec.preferred_element_type or _scaled_dtype(x, w)
    return finished(x, w, acc, fusion, extras, dtype)


def finished(
    x: Any, w: Any, acc: Any, fusion: Fusion, extras: Sequence[Any], dtype: Any
) -> jax.Array:
    """The epilogue of `acc`, wide sums of x @ w, in plain JAX: one rounding, to `dtype`."""
    acc, *varied = compat.same_varying(acc, *extras)
    bias, residual = fusion.split(tuple(varied))
    spec = DotSpec(_dimension_numbers(x, w))
    out = jax.ShapeDtypeStruct(acc.shape, dtype)
    fused.check_epilogue(spec, fusion, x, w, out, bias, residual)
    return epilogue.apply(acc, bias, residual, fusion, out.dtype)[0]


def _sum_dtype(x: Any, w: Any) -> Any:
    """int32 for int8, else float32, or float64 where an operand has it."""
    dtypes = {x.dtype, w.dtype}
    if dtypes == {jnp.dtype("int8")}:
        return jnp.dtype("int32")
    return jnp.dtype("float64" if jnp.dtype("float64") in dtypes else "float32")


def _scaled_dtype(x: Any, w: Any) -> Any:
    """The wider operand's, bfloat16 for 8-bit ones as in `jax.lax.scaled_dot`, never an integer."""
    wide = [d for d in (x.dtype, w.dtype) if d.itemsize > 1]
    if not wide:
        return jnp.dtype("bfloat16")
    dtype = jnp.result_type(*wide)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.dtype("float32")


def conv(
    x: Any,
    w: Any,
    *,
    strides: int | Sequence[int] = 1,
    padding: Any = "SAME",
    dilation: int | Sequence[int] = 1,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    residual_first: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    implementation: Implementation | None = None,
) -> jax.Array:
    """`activation(convolution of x with w + bias) + residual` in one kernel; with residual_first
    the residual is added before the activation.

    x is [batch, height, width, in] (NHWC), w is [height, width, in, out] (HWIO), the result NHWC;
    one spatial dimension works likewise. strides and dilation (of w) are one number or one a
    spatial dimension; padding is "SAME", "VALID" or ((top, bottom), (left, right)). bias has one
    element an output channel, residual the result's shape. Everything else is as in `dot`.
    """
    x, w = _common(x, w)
    spatial = x.ndim - 2
    if spatial not in (1, 2) or w.ndim != x.ndim:
        raise ProblemError(
            f"conv of shapes {x.shape} and {w.shape}: x is [batch, height, width, in] and w is "
            "[height, width, in, out], or both without a height; "
            "jaxpipe.conv_general_dilated takes the rest"
        )
    letters = "HW"[-spatial:]
    convolve = functools.partial(
        lax.conv_general_dilated,
        window_strides=_per_dimension("strides", strides, spatial),
        padding=padding,
        rhs_dilation=_per_dimension("dilation", dilation, spatial),
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    spec = convolution.spec_of(convolve, x, w, options.current(implementation))
    fusion = fusion_of(bias, activation, residual, residual_first)
    return fused.product(spec, fusion, x, w, *extras_of(bias, residual))[0]


def _per_dimension(name: str, value: Any, spatial: int) -> tuple[int, ...]:
    """One whole number a spatial dimension; ProblemError for anything else."""
    given = (value,) * spatial if np.ndim(value) == 0 else tuple(value)
    numbers = [int(v) for v in given if isinstance(v, int | np.integer) and v >= 1]
    if len(numbers) != len(given) or len(given) != spatial:
        raise ProblemError(
            f"conv with {name}={value!r}: it takes one whole number of at least 1, or {spatial}"
        )
    return tuple(numbers)


def fusion_of(bias: Any, activation: str | None, residual: Any, residual_first: bool) -> Fusion:
    """The epilogue that these arguments ask for."""
    name = epilogue.activation_name(activation)
    return Fusion(
        bias=bias is not None,
        activation=name,
        residual=residual is not None,
        residual_first=residual_first and residual is not None and name != "none",
    )


def extras_of(bias: Any, residual: Any) -> list[Any]:
    """The operands that follow lhs and rhs, as arrays."""
    return [jnp.asarray(extra) for extra in (bias, residual) if extra is not None]


def _promoted(x: Any, w: Any, given: Any) -> tuple[Any, Any]:
    """Both of one dtype, except a float32 w that RoundedSpec takes as it is."""
    if isinstance(w, Packed):
        return packing.operand_for(x if given is None else jnp.asarray(x).astype(given), w), w
    if given is None:
        return _common(x, w)
    x, w, dtype = jnp.asarray(x), jnp.asarray(w), plain.canonical_dtype(given)
    is_rounded = dtype.name in ROUNDED and w.dtype == jnp.float32
    return x.astype(dtype), w if is_rounded else w.astype(dtype)


def _common(x: Any, w: Any) -> tuple[jax.Array, jax.Array]:
    """Both as arrays of the dtype that jnp promotes them to."""
    x, w = jnp.asarray(x), jnp.asarray(w)
    dtype = jnp.result_type(x, w)
    return x.astype(dtype), w.astype(dtype)


def _dimension_numbers(x: Any, w: Any) -> Any:
    if x.ndim == 0 or w.ndim == 0:
        raise ProblemError(
            f"dot of shapes {x.shape} and {w.shape}: both need a dimension to contract; "
            "multiply scalars with *"
        )
    contracted = max(0, w.ndim - 2)
    if x.shape[-1] != w.shape[contracted]:
        raise ProblemError(
            f"dot of shapes {x.shape} and {w.shape}: x has {x.shape[-1]} columns, w has "
            f"{w.shape[contracted]} rows (dimension {contracted}); transpose or reshape one"
        )
    return ((x.ndim - 1,), (contracted,)), ((), ())
