"""Ready objects for every place where Flax takes a product, and layers with fused epilogues.

Flax argument                                          value
dot_general=, qkv_dot_general=, out_dot_general=       jaxpipe.dot_general, or DotGeneral(...)
dot_general_cls=, qkv_dot_general_cls=, out_..._cls=   DotGeneral
qk_attn_weights_einsum_cls=, attn_weights_value_...=   Einsum
einsum_op= (nnx.Einsum)                                jaxpipe.einsum
attention_fn=                                          linen_attention, nnx_attention
conv_general_dilated=                                  jaxpipe.conv_general_dilated, or
                                                       ConvGeneralDilated(...)
conv_general_dilated_cls=                              ConvGeneralDilated
layers without one (LoRA, linen.Einsum, Embed.attend)  jaxpipe.accelerate(module)

docs/flax.md has a runnable example a row. Needs the `flax` extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from jaxpipe.accelerate import accelerate
from jaxpipe.ops.conv import conv_general_dilated
from jaxpipe.ops.dot import dot_general, einsum
from jaxpipe.ops.options import Implementation, options
from jaxpipe.ops.products import dot


@dataclass(frozen=True, slots=True)
class DotGeneral:
    """A `dot_general` with settings of its own: `DotGeneral(implementation="host")`.

    preferred_element_type applies where the caller gives none. Also a factory without arguments,
    as `dot_general_cls` wants.
    """

    implementation: Implementation | None = None
    preferred_element_type: Any = None

    def __call__(
        self,
        lhs: Any,
        rhs: Any,
        dimension_numbers: Any,
        precision: Any = None,
        preferred_element_type: Any = None,
        *,
        out_sharding: Any = None,
    ) -> jax.Array:
        """As `jax.lax.dot_general`."""
        preferred = preferred_element_type or self.preferred_element_type
        with options(implementation=self.implementation):
            return dot_general(
                lhs, rhs, dimension_numbers, precision, preferred, out_sharding=out_sharding
            )


@dataclass(frozen=True, slots=True)
class ConvGeneralDilated:
    """A `conv_general_dilated` with settings of its own; also a factory without arguments."""

    implementation: Implementation | None = None

    def __call__(self, lhs: Any, rhs: Any, *args: Any, **kwargs: Any) -> jax.Array:
        """As `jax.lax.conv_general_dilated`."""
        with options(implementation=self.implementation):
            return conv_general_dilated(lhs, rhs, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Einsum:
    """An einsum with settings of its own; also a factory without arguments."""

    implementation: Implementation | None = None

    def __call__(self, subscripts: str, *operands: Any, **kwargs: Any) -> jax.Array:
        """As `jnp.einsum`."""
        with options(implementation=self.implementation):
            return einsum(subscripts, *operands, **kwargs)


def linen_attention(query: Any, key: Any, value: Any, **kwargs: Any) -> jax.Array:
    """`flax.linen.dot_product_attention` on jaxpipe's kernels."""
    return _attention(nn.dot_product_attention, query, key, value, kwargs)


def nnx_attention(query: Any, key: Any, value: Any, **kwargs: Any) -> jax.Array:
    """`flax.nnx.dot_product_attention` on jaxpipe's kernels."""
    return _attention(nnx.dot_product_attention, query, key, value, kwargs)


def _attention(
    function: Callable[..., Any], query: Any, key: Any, value: Any, kwargs: dict[str, Any]
) -> jax.Array:
    if kwargs.get("module") is not None:  # it records weights in the module while it runs
        out: jax.Array = function(query, key, value, **kwargs)
        return out
    return accelerate(function)(query, key, value, **kwargs)


class Dense(nn.Module):  # type: ignore[misc]
    """`flax.linen.Dense` with bias and activation in the kernel; the same parameters.

    x[..., in] -> activation(x @ kernel[in, features] + bias[features]) + residual, or with
    residual_first activation(x @ kernel + bias + residual). activation is a name of `jaxpipe.dot`.
    dtype is the type of the computation (None: promoted from x and parameters), param_dtype that
    of the parameters.
    """

    features: int
    activation: str | None = None
    use_bias: bool = True
    dtype: Any = None
    param_dtype: Any = jnp.float32
    precision: Any = None
    kernel_init: Callable[..., Any] = nn.initializers.lecun_normal()
    bias_init: Callable[..., Any] = nn.initializers.zeros_init()
    residual_first: bool = False

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any, residual: Any = None) -> jax.Array:
        """Apply the layer."""
        shape = (jnp.shape(x)[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        bias = None
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype)
        x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
        return dot(
            x, kernel, bias=bias, activation=self.activation, residual=residual,
            residual_first=self.residual_first, precision=self.precision,
        )  # fmt: skip


class Linear(nnx.Linear):  # type: ignore[misc]
    """`flax.nnx.Linear` with bias and activation in the kernel; the same parameters.

    Takes `activation` and `residual_first` of `jaxpipe.dot` beside nnx.Linear's own arguments.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        activation: str | None = None,
        residual_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_features, out_features, **kwargs)
        self.activation = activation
        self.residual_first = residual_first

    def __call__(self, inputs: Any, residual: Any = None) -> jax.Array:
        """Apply the layer; see `Dense`."""
        kernel = self.kernel[...]
        bias = None if self.bias is None else self.bias[...]
        x, kernel, bias = self.promote_dtype((inputs, kernel, bias), dtype=self.dtype)
        return dot(
            x, kernel, bias=bias, activation=self.activation, residual=residual,
            residual_first=self.residual_first, precision=self.precision,
        )  # fmt: skip
