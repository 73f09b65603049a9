"""The products that a model is built from, as an argument: jaxpipe's, or XLA's for comparison.

A model takes `Products` and calls nothing else for its matrix products, so both sides of a
comparison run the same Flax code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import jaxpipe

ACTIVATIONS: dict[str | None, Callable[[jax.Array], jax.Array]] = {
    None: lambda x: x,
    "gelu_erf": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


@dataclass(frozen=True)
class Products:
    """`dot(x, w, bias=, activation=, residual=)`, a drop-in for `jax.lax.dot_general`, and
    `conv(x, w, strides=, padding=, bias=, activation=, residual=, residual_first=)` on NHWC and
    HWIO."""

    name: str
    dot: Callable[..., jax.Array]
    dot_general: Callable[..., jax.Array]
    conv: Callable[..., jax.Array]


def _xla_dot(
    x: jax.Array,
    w: jax.Array,
    *,
    bias: jax.Array | None = None,
    activation: str | None = None,
    residual: jax.Array | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> jax.Array:
    """What a Flax user writes without jaxpipe: XLA fuses what it can."""
    product = jnp.dot(x, w if dtype is None else w.astype(dtype), **kwargs)
    return _epilogue(product, bias, activation, residual)


def _xla_conv(
    x: jax.Array,
    w: jax.Array,
    *,
    strides: tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]],
    bias: jax.Array | None = None,
    activation: str | None = None,
    residual: jax.Array | None = None,
    residual_first: bool = False,
) -> jax.Array:
    y = jax.lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return _epilogue(y, bias, activation, residual, residual_first)


def _epilogue(
    y: jax.Array,
    bias: jax.Array | None,
    activation: str | None,
    residual: jax.Array | None,
    residual_first: bool = False,
) -> jax.Array:
    if bias is not None:
        y = y + bias
    if residual is not None and residual_first:
        y, residual = y + residual, None
    y = ACTIVATIONS[activation](y)
    return y if residual is None else y + residual


XLA = Products("xla", _xla_dot, jax.lax.dot_general, _xla_conv)
JAXPIPE = Products("jaxpipe", jaxpipe.dot, jaxpipe.dot_general, jaxpipe.conv)
