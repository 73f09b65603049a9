"""GPT-2 in Flax linen: prefill, decode with a key-value cache, greedy generation.

In: token ids [batch, length]. Out: logits [batch, length, vocabulary] in float32 and the cache.
Every matrix product goes through `Products`. Weights come from Hugging Face safetensors or from a
seed. Source of the architecture: Radford et al. 2019, as in Hugging Face's GPT2LMHeadModel.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models.layers import HEAD_AXES, VALUE_AXES, Linear, Norm
from benchmarks.models.products import Products
from benchmarks.models.weights import Taker, read_config, read_tensors

LOGIT_AXES = (((2,), (1,)), ((), ()))  # h[b,t,e] words[v,e] -> logits[b,t,v]
Cache = tuple[tuple[jax.Array, jax.Array], ...]  # a layer: keys and values [b, positions, h, d]


@dataclass(frozen=True)
class Gpt2Config:
    """Sizes of a GPT-2 model."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int = 50257
    positions: int = 1024
    epsilon: float = 1e-5
    activation: str = "gelu_tanh"

    @property
    def head_size(self) -> int:
        """Columns of one attention head."""
        return self.hidden // self.heads


CONFIGS = {
    "gpt2-tiny": Gpt2Config(layers=2, hidden=128, heads=4, vocabulary=1000, positions=256),
    "gpt2": Gpt2Config(layers=12, hidden=768, heads=12),
    "gpt2-medium": Gpt2Config(layers=24, hidden=1024, heads=16),
}


class Attention(nn.Module):
    """Causal self-attention over the cache; returns its projection plus `residual`."""

    config: Gpt2Config
    products: Products

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        residual: jax.Array,
        cache: tuple[jax.Array, jax.Array],
        start: jax.Array,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        c, dot_general = self.config, self.products.dot_general
        split = (*x.shape[:2], c.heads, c.head_size)
        qkv = Linear(3 * c.hidden, self.products, name="qkv")(x)
        query, key, value = (part.reshape(split) for part in jnp.split(qkv, 3, axis=-1))
        keys, values = (
            jax.lax.dynamic_update_slice(old, new.astype(old.dtype), (0, start, 0, 0))
            for old, new in zip(cache, (key, value), strict=True)
        )
        scores = dot_general(query, keys, HEAD_AXES, preferred_element_type=jnp.float32)
        seen = jnp.arange(keys.shape[1]) <= (start + jnp.arange(x.shape[1]))[:, None]
        scores = jnp.where(seen, scores / np.sqrt(c.head_size), -jnp.inf)
        probs = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
        context = dot_general(probs, values, VALUE_AXES)
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        out = Linear(c.hidden, self.products, name="output")(context, residual=residual)
        return out, (keys, values)


class Block(nn.Module):
    """One decoder layer, normalised before each branch."""

    config: Gpt2Config
    products: Products

    @nn.compact
    def __call__(
        self, x: jax.Array, cache: tuple[jax.Array, jax.Array], start: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        c = self.config
        attention = Attention(c, self.products, name="attention")
        x, cache = attention(Norm(c.epsilon, name="norm_1")(x), x, cache, start)
        up = Linear(4 * c.hidden, self.products, c.activation, name="up")
        down = Linear(c.hidden, self.products, name="down")
        return down(up(Norm(c.epsilon, name="norm_2")(x)), residual=x), cache


class Gpt2(nn.Module):
    """The language model, computed in `dtype`; logits are float32."""

    config: Gpt2Config
    products: Products
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, tokens: jax.Array, cache: Cache, start: jax.Array | int = 0
    ) -> tuple[jax.Array, Cache]:
        """Logits of `tokens`, which stand at positions start, start+1, ...; and the new cache."""
        c, init = self.config, nn.initializers.normal(0.02)
        words = self.param("words", init, (c.vocabulary, c.hidden), jnp.float32)
        positions = self.param("positions", init, (c.positions, c.hidden), jnp.float32)
        start = jnp.asarray(start, jnp.int32)
        here = jax.lax.dynamic_slice_in_dim(positions, start, tokens.shape[1])
        x = (words[tokens] + here).astype(self.dtype)
        caches = []
        for i in range(c.layers):
            block = Block(c, self.products, name=f"block_{i}")
            x, layer_cache = block(x, cache[i], start)
            caches.append(layer_cache)
        x = Norm(c.epsilon, name="norm")(x)
        logits = self.products.dot_general(
            x, words.astype(x.dtype), LOGIT_AXES, preferred_element_type=jnp.float32
        )
        return logits, tuple(caches)


def empty_cache(config: Gpt2Config, batch: int, positions: int, dtype: Any = jnp.float32) -> Cache:
    """Zeroed keys and values for `positions` tokens a row."""
    shape = (batch, positions, config.heads, config.head_size)
    return tuple((jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.layers))


def forward(model: Gpt2, params: Any, tokens: jax.Array) -> jax.Array:
    """Logits [batch, length, vocabulary] of whole rows, without keeping the cache."""
    cache = empty_cache(model.config, *tokens.shape, model.dtype)
    return model.apply({"params": params}, tokens, cache)[0]


def generate(model: Gpt2, params: Any, prompt: jax.Array, steps: int) -> jax.Array:
    """Greedy continuation [batch, steps] of `prompt` [batch, length]: one prefill, then decode."""
    batch, length = prompt.shape
    if length + steps > model.config.positions:
        raise ValueError(
            f"prompt of {length} plus {steps} steps needs {length + steps} positions, the model "
            f"has {model.config.positions}: generate fewer steps"
        )
    cache = empty_cache(model.config, batch, length + steps, model.dtype)
    logits, cache = model.apply({"params": params}, prompt, cache)
    first = jnp.argmax(logits[:, -1], -1).astype(jnp.int32)

    def step(carry: tuple[jax.Array, Cache], at: jax.Array) -> tuple[Any, jax.Array]:
        token, cache = carry
        logits, cache = model.apply({"params": params}, token[:, None], cache, at)
        following = jnp.argmax(logits[:, -1], -1).astype(jnp.int32)
        return (following, cache), token

    _, out = jax.lax.scan(step, (first, cache), length + jnp.arange(steps))
    return out.T


# ---------------------------------------------------------------------- weights
# Buffers in checkpoints that are no parameters, and the tied head.
NOT_PARAMETERS = ("lm_head.weight",)


def load(folder: pathlib.Path) -> tuple[Gpt2Config, dict[str, Any]]:
    """Configuration and parameters of a Hugging Face GPT-2 folder (config.json, safetensors)."""
    raw = read_config(folder)
    if raw["activation_function"] != "gelu_new":
        raise ValueError(f"activation {raw['activation_function']!r}: GPT-2 uses gelu_new")
    config = Gpt2Config(
        layers=int(raw["n_layer"]),
        hidden=int(raw["n_embd"]),
        heads=int(raw["n_head"]),
        vocabulary=int(raw["vocab_size"]),
        positions=int(raw["n_positions"]),
        epsilon=float(raw["layer_norm_epsilon"]),
    )
    return config, params_from(read_tensors(folder, ("transformer.",)), config)


def params_from(tensors: dict[str, np.ndarray], config: Gpt2Config) -> dict[str, Any]:
    """The Flax parameters of Hugging Face tensors; names and shapes are checked."""
    c, take = config, Taker(tensors)
    params: dict[str, Any] = {
        "words": take("wte.weight", c.vocabulary, c.hidden),
        "positions": take("wpe.weight", c.positions, c.hidden),
        "norm": _norm(take, "ln_f", c),
    }
    for i in range(c.layers):
        params[f"block_{i}"] = _block(take, f"h.{i}", c)
    masks = tuple(f"h.{i}.attn.{name}" for i in range(c.layers) for name in ("bias", "masked_bias"))
    if unknown := sorted(take.left() - set(masks) - set(NOT_PARAMETERS)):
        raise ValueError(f"tensors that GPT-2 does not have: {', '.join(unknown)}")
    return params


def _block(take: Taker, at: str, c: Gpt2Config) -> dict[str, Any]:
    return {
        "norm_1": _norm(take, f"{at}.ln_1", c),
        "attention": {
            "qkv": _linear(take, f"{at}.attn.c_attn", c.hidden, 3 * c.hidden),
            "output": _linear(take, f"{at}.attn.c_proj", c.hidden, c.hidden),
        },
        "norm_2": _norm(take, f"{at}.ln_2", c),
        "up": _linear(take, f"{at}.mlp.c_fc", c.hidden, 4 * c.hidden),
        "down": _linear(take, f"{at}.mlp.c_proj", 4 * c.hidden, c.hidden),
    }


def _linear(take: Taker, at: str, inputs: int, outputs: int) -> dict[str, np.ndarray]:
    return {"kernel": take(f"{at}.weight", inputs, outputs), "bias": take(f"{at}.bias", outputs)}


def _norm(take: Taker, at: str, c: Gpt2Config) -> dict[str, np.ndarray]:
    return {"scale": take(f"{at}.weight", c.hidden), "bias": take(f"{at}.bias", c.hidden)}


def init(config: Gpt2Config, products: Products, seed: int = 0) -> Any:
    """Random parameters of `config` from `seed`."""
    model = Gpt2(config, products)
    tokens, cache = jnp.zeros((1, 4), jnp.int32), empty_cache(config, 1, 4)
    return model.init(jax.random.key(seed), tokens, cache)["params"]
