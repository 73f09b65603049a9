"""ResNet-18 and ResNet-50 for inference in Flax linen; batch normalisation is folded into each
convolution's kernel and bias.

In: images [batch, height, width, 3]. Out: logits [batch, classes] in float32. Every convolution
and the classifier go through `Products`. Weights come from a seed. Source of the architecture:
He et al. 2016 (with the stride of a bottleneck on its 3x3 convolution).
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
class ResnetConfig:
    """Blocks per stage, and whether they are bottlenecks (1x1, 3x3, 1x1) or basic (3x3, 3x3)."""

    stages: tuple[int, ...]
    bottleneck: bool
    width: int = 64
    classes: int = 1000

    @property
    def convolutions(self) -> int:
        """How many convolutions one forward pass runs, projections included."""
        in_blocks = sum(self.stages) * (3 if self.bottleneck else 2)
        return 1 + in_blocks + len(self.stages) - (0 if self.bottleneck else 1)


CONFIGS = {
    "resnet18": ResnetConfig((2, 2, 2, 2), bottleneck=False),
    "resnet50": ResnetConfig((3, 4, 6, 3), bottleneck=True),
}


class ConvNorm(nn.Module):
    """Convolution, folded batch normalisation, optional residual and activation, in this order."""

    features: int
    products: Products
    kernel: int = 3
    stride: int = 1
    activation: str | None = None

    @nn.compact
    def __call__(self, x: jax.Array, residual: jax.Array | None = None) -> jax.Array:
        shape = (self.kernel, self.kernel, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape, jnp.float32)
        scale = self.param("scale", nn.initializers.constant(0.5), (self.features,), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        mean = self.param("mean", nn.initializers.zeros, (self.features,), jnp.float32)
        variance = self.param("variance", nn.initializers.ones, (self.features,), jnp.float32)
        factor = scale * jax.lax.rsqrt(variance + 1e-5)
        pad = (self.kernel - 1) // 2
        return self.products.conv(
            x,
            (kernel * factor).astype(x.dtype),
            strides=(self.stride, self.stride),
            padding=((pad, pad), (pad, pad)),
            bias=(bias - mean * factor).astype(x.dtype),
            activation=self.activation,
            residual=residual,
            residual_first=True,
        )


class Block(nn.Module):
    """One residual block: basic or bottleneck; the shortcut is projected where shapes change."""

    features: int
    products: Products
    bottleneck: bool
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        p, out = self.products, self.features * (4 if self.bottleneck else 1)
        shortcut = x
        if x.shape[-1] != out or self.stride != 1:
            shortcut = ConvNorm(out, p, 1, self.stride, name="shortcut")(x)
        if self.bottleneck:
            y = ConvNorm(self.features, p, 1, activation="relu", name="reduce")(x)
            y = ConvNorm(self.features, p, 3, self.stride, "relu", name="spatial")(y)
            y = ConvNorm(out, p, 1, activation="relu", name="expand")(y, shortcut)
        else:
            y = ConvNorm(self.features, p, 3, self.stride, "relu", name="first")(x)
            y = ConvNorm(out, p, 3, activation="relu", name="second")(y, shortcut)
        return y


class Resnet(nn.Module):
    """The classifier, computed in `dtype`."""

    config: ResnetConfig
    products: Products
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        c, p = self.config, self.products
        x = ConvNorm(c.width, p, 7, 2, "relu", name="stem")(images.astype(self.dtype))
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for stage, blocks in enumerate(c.stages):
            for i in range(blocks):
                stride = 2 if stage > 0 and i == 0 else 1
                features = c.width * 2**stage
                x = Block(features, p, c.bottleneck, stride, name=f"stage_{stage}_{i}")(x)
        x = x.mean((1, 2))
        return Linear(c.classes, p, name="classifier")(x).astype(jnp.float32)


def init(config: ResnetConfig, products: Products, size: int = 224, seed: int = 0) -> Any:
    """Random parameters of `config` from `seed`."""
    return init_on_images(Resnet(config, products), size, seed)
