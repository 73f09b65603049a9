"""Products that quantise wide operands by given scales, and can be trained through.

Forward, both operands are 8-bit and the sums are wide. The derivative is straight-through: that of
the product of the quantised values, as if quantising were the identity. It must not know kernels.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxpipe.errors import ProblemError
from jaxpipe.ops import compat, products
from jaxpipe.ops.options import Implementation
from jaxpipe.ops.scales import quantize


def quantized_dot(
    x: Any,
    w: Any,
    *,
    lhs_scale: Any,
    rhs_scale: Any,
    dtype: Any = "float8_e4m3fn",
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    residual_first: bool = False,
    implementation: Implementation | None = None,
) -> jax.Array:
    """`activation(q(x) @ q(w) + bias) + residual`, q rounding to `dtype` times the scale.

    residual_first adds the residual before the activation. x[..., k] and w[k, n] are wide; `dtype`
    ("float8_e4m3fn", "float8_e5m2" or "int8", or one for each) and scales are as in `quantize` and
    `dot`. The result has x's dtype. Differentiable any number of times, forward and reverse, under
    vmap too: gradients of x and w are products of the cotangent with the other operand's quantised
    values, in the wide dtypes and with no gradient quantised; what saturated passes gradients on;
    scales are constants.
    """
    x, w = _wide(x), _wide(w)
    lhs_scale, rhs_scale = map(jax.lax.stop_gradient, (lhs_scale, rhs_scale))
    sums = _sums(x, w, lhs_scale, rhs_scale, _pair(dtype), implementation)
    fusion = products.fusion_of(bias, activation, residual, residual_first)
    extras = products.extras_of(bias, residual)
    return products.finished(x, w, sums, fusion, extras, x.dtype)


def _wide(operand: Any) -> jax.Array:
    operand = jnp.asarray(operand)
    if not jnp.issubdtype(operand.dtype, jnp.floating):
        raise ProblemError(
            f"quantized_dot of {operand.dtype.name}: it rounds floating-point operands; "
            "convert them, or give quantised ones to jaxpipe.dot with their scales"
        )
    return operand


def _pair(dtype: Any) -> tuple[Any, Any]:
    """The dtypes of lhs and rhs, of one or of two."""
    given = tuple(dtype) if isinstance(dtype, tuple | list) else (dtype, dtype)
    if len(given) != 2:
        raise ProblemError(f"quantized_dot with dtype={dtype!r}: it takes one dtype, or two")
    return given[0], given[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def _sums(x: Any, w: Any, lhs_scale: Any, rhs_scale: Any, dtypes: Any, implementation: Any) -> Any:
    """float32 sums of the quantised product."""
    return products.dot(
        quantize(x, lhs_scale, dtypes[0]), quantize(w, rhs_scale, dtypes[1]),
        lhs_scale=lhs_scale, rhs_scale=rhs_scale, preferred_element_type=jnp.float32,
        implementation=implementation,
    )  # fmt: skip


def _sums_jvp(dtypes: Any, implementation: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    x, w, lhs_scale, rhs_scale = primals
    xd, wd = tangents[:2]
    product = functools.partial(
        products.dot, preferred_element_type=jnp.float32, implementation=implementation
    )
    out = _sums(x, w, lhs_scale, rhs_scale, dtypes, implementation)
    total = jnp.zeros_like(out)
    if not compat.is_symbolic_zero(xd):
        total += product(xd, _rounded(w, rhs_scale, dtypes[1]))
    if not compat.is_symbolic_zero(wd):
        total += product(_rounded(x, lhs_scale, dtypes[0]), wd)
    return out, total


_sums.defjvp(_sums_jvp, symbolic_zeros=True)


def _rounded(x: Any, scale: Any, dtype: Any) -> Any:
    """The values that the product sees, in x's dtype; the identity to derivatives."""
    rounded = (quantize(x, scale, dtype).astype(jnp.float32) * scale).astype(x.dtype)
    return x + jax.lax.stop_gradient(rounded - x)
