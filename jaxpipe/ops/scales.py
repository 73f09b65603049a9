"""Scales of quantised operands: what a scale must look like, and quantising by one.

A scale is what a quantised value is multiplied with, as in `jax.lax.scaled_dot`: one number, one a
row of x or one a column of w. It must not know products or kernels.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxpipe.errors import DtypeError, ProblemError


def operands(x: Any, w: Any) -> tuple[jax.Array, jax.Array]:
    """The operands of a scaled product as arrays; ProblemError for complex ones."""
    x, w = jnp.asarray(x), jnp.asarray(w)
    for operand in (x, w):
        if jnp.issubdtype(operand.dtype, jnp.complexfloating):
            raise ProblemError(f"scaled {operand.dtype.name} operands: scales are for real ones")
    return x, w


def quantize(x: Any, scale: Any, dtype: Any = "float8_e4m3fn") -> jax.Array:
    """`x / scale` in `dtype`, saturating: finite values beyond the largest become the largest.

    scale is broadcast to x. Integers are rounded to the nearest, ties to even; NaN stays NaN in
    floats. Raises DtypeError where x is complex, or `dtype` no floating-point or integer one.
    """
    x, dtype = jnp.asarray(x), jnp.dtype(dtype)
    kinds = (jnp.floating, jnp.integer)
    if jnp.iscomplexobj(x) or not any(jnp.issubdtype(dtype, kind) for kind in kinds):
        raise DtypeError(
            f"quantize of {x.dtype.name} to {dtype.name}: it takes real numbers to "
            "floating-point or integer types"
        )
    is_float = jnp.issubdtype(dtype, jnp.floating)
    limits = jnp.finfo(dtype) if is_float else jnp.iinfo(dtype)
    wide = x.astype(jnp.float32) / jnp.asarray(scale, jnp.float32)
    clipped = jnp.clip(wide, float(limits.min), float(limits.max))
    return (clipped if is_float else jnp.round(clipped)).astype(dtype)


def of_result(x: Any, w: Any, lhs_scale: Any, rhs_scale: Any) -> list[jax.Array]:
    """The given scales in float32, shaped to multiply x[..., k] @ w[..., k, n].

    lhs_scale: one number, or [..., 1] with x's leading dimensions (or ones); rhs_scale: one
    number, or [..., 1, n] with w's. Raises ProblemError for other shapes.
    """
    contracted = max(0, w.ndim - 2)
    found = []
    if lhs_scale is not None:
        rows = _checked(jnp.asarray(lhs_scale), x, x.ndim - 1, "lhs_scale")
        found.append(rows.reshape(*rows.shape[:-1], *(1,) * (w.ndim - 1)) if rows.ndim else rows)
    if rhs_scale is not None:
        columns = _checked(jnp.asarray(rhs_scale), w, contracted, "rhs_scale")
        found.append(columns.squeeze(contracted) if columns.ndim else columns)
    return [scale.astype(jnp.float32) for scale in found]


def _checked(scale: Any, operand: Any, contracted: int, name: str) -> Any:
    """`scale` when it is a number or has one element along the contracted dimension."""
    wanted = tuple(1 if i == contracted else n for i, n in enumerate(operand.shape))
    fits = scale.ndim == len(wanted) and all(
        s in (1, n) for s, n in zip(scale.shape, wanted, strict=True)
    )
    if scale.ndim and not fits:
        raise ProblemError(
            f"{name} of shape {scale.shape} for an operand of shape {operand.shape}: it takes one "
            f"number, or {wanted} (ones broadcast); scales that change along dimension "
            f"{contracted}, which is summed, are jax.lax.scaled_dot's"
        )
    return scale
