"""What the models share: Linear with a fused epilogue, layer normalisation, initialisation.

Kernels may come packed, in a collection "packed" beside "params": `packed_kernels` makes it.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

import jaxpipe
from benchmarks.models.products import Products

HEAD_AXES = (((3,), (3,)), ((0, 2), (0, 2)))  # q[b,t,h,d] k[b,s,h,d] -> scores[b,h,t,s]
VALUE_AXES = (((3,), (1,)), ((0, 1), (0, 2)))  # probs[b,h,t,s] v[b,s,h,d] -> context[b,h,t,d]


class Linear(nn.Module):
    """A dense layer whose bias, activation and residual ride on the product's epilogue."""

    features: int
    products: Products
    activation: str | None = None

    @nn.compact
    def __call__(self, x: jax.Array, residual: jax.Array | None = None) -> jax.Array:
        kernel = self._kernel(x)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return self.products.dot(
            x,
            kernel,
            bias=bias.astype(x.dtype),
            dtype=x.dtype,
            activation=self.activation,
            residual=residual,
        )

    def _kernel(self, x: jax.Array) -> Any:
        if self.has_variable("packed", "kernel"):
            return self.get_variable("packed", "kernel")
        shape = (x.shape[-1], self.features)
        return self.param("kernel", nn.initializers.normal(0.02), shape, jnp.float32)


def init_on_images(model: nn.Module, size: int, seed: int) -> Any:
    """Random parameters from `seed` of a model of images `size` pixels a side."""
    return model.init(jax.random.key(seed), jnp.zeros((1, size, size, 3)))["params"]


class Norm(nn.Module):
    """Layer normalisation in float32, result in the input's dtype."""

    epsilon: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        variance = jnp.square(wide - mean).mean(-1, keepdims=True)
        normal = (wide - mean) * jax.lax.rsqrt(variance + self.epsilon)
        return (normal * scale + bias).astype(x.dtype)


def packed_kernels(params: Any, dtype: Any) -> dict[str, Any]:
    """The collection "packed" of `params`: every matrix "kernel" in `dtype`, prepacked once."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, dict):
            found[name] = packed_kernels(value, dtype)
        elif name == "kernel" and value.ndim == 2:
            found[name] = jaxpipe.prepack(value.astype(dtype))
    return {name: value for name, value in found.items() if value != {}}
