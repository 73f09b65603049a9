"""VGG-16 for inference in Flax linen.

In: images [batch, 224, 224, 3] (any size divisible by 32). Out: logits [batch, classes] in
float32. Every product goes through `Products`. Weights come from a seed. Source of the
architecture: Simonyan and Zisserman 2015, configuration D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.models.layers import Linear, init_on_images
from benchmarks.models.products import Products


@dataclass(frozen=True)
class VggConfig:
    """Convolutions per stage with their channels, and the size of the two hidden dense layers."""

    stages: tuple[tuple[int, int], ...]
    hidden: int = 4096
    classes: int = 1000

    @property
    def convolutions(self) -> int:
        """How many convolutions one forward pass runs."""
        return sum(count for count, _ in self.stages)


CONFIGS = {"vgg16": VggConfig(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)))}


class Conv(nn.Module):
    """A 3x3 convolution with bias and ReLU on its epilogue."""

    features: int
    products: Products

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (3, 3, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return self.products.conv(
            x,
            kernel.astype(x.dtype),
            strides=(1, 1),
            padding=((1, 1), (1, 1)),
            bias=bias.astype(x.dtype),
            activation="relu",
        )


class Vgg(nn.Module):
    """The classifier, computed in `dtype`."""

    config: VggConfig
    products: Products
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        c, p = self.config, self.products
        x = images.astype(self.dtype)
        for stage, (count, features) in enumerate(c.stages):
            for i in range(count):
                x = Conv(features, p, name=f"conv_{stage}_{i}")(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        x = Linear(c.hidden, p, "relu", name="dense_0")(x)
        x = Linear(c.hidden, p, "relu", name="dense_1")(x)
        return Linear(c.classes, p, name="classifier")(x).astype(jnp.float32)


def init(config: VggConfig, products: Products, size: int = 224, seed: int = 0) -> Any:
    """Random parameters of `config` from `seed`."""
    return init_on_images(Vgg(config, products), size, seed)
