"""BERT encoder in Flax linen (its parameters are one plain pytree, so both sides share them).

In: token ids [batch, length], attention mask [batch, length]. Out: hidden states
[batch, length, hidden]; `embed` pools them to unit sentence vectors [batch, hidden]. Every matrix
product goes through `Products`. Weights come from Hugging Face safetensors (MiniLM, BERT-base,
BERT-large layouts) or from a seed. Source of the architecture: Devlin et al. 2019.
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

# In checkpoints, but not part of the encoder that `embed` needs.
NOT_ENCODER = ("pooler.", "cls.", "embeddings.position_ids")


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder; `activation` is a name of `jaxpipe.dot`."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    epsilon: float = 1e-12
    activation: str = "gelu_erf"

    @property
    def head_size(self) -> int:
        """Columns of one attention head."""
        return self.hidden // self.heads


CONFIGS = {
    "minilm": BertConfig(layers=6, hidden=384, heads=12, intermediate=1536),
    "bert-base": BertConfig(layers=12, hidden=768, heads=12, intermediate=3072),
    "bert-large": BertConfig(layers=24, hidden=1024, heads=16, intermediate=4096),
}


class Attention(nn.Module):
    """Multi-head self-attention with its output projection and the residual added."""

    config: BertConfig
    products: Products

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        c, dot_general = self.config, self.products.dot_general
        split = (*x.shape[:2], c.heads, c.head_size)
        query, key, value = (
            Linear(c.hidden, self.products, name=name)(x).reshape(split)
            for name in ("query", "key", "value")
        )
        scores = dot_general(query, key, HEAD_AXES, preferred_element_type=jnp.float32)
        scores = scores / np.sqrt(c.head_size) + mask
        probs = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
        context = dot_general(probs, value, VALUE_AXES)
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        return Linear(c.hidden, self.products, name="output")(context, residual=x)


class Layer(nn.Module):
    """One encoder layer, normalised after each residual as in the original."""

    config: BertConfig
    products: Products

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        c = self.config
        x = Attention(c, self.products, name="attention")(x, mask)
        x = Norm(c.epsilon, name="attention_norm")(x)
        up = Linear(c.intermediate, self.products, c.activation, name="up")
        down = Linear(c.hidden, self.products, name="down")
        return Norm(c.epsilon, name="norm")(down(up(x), residual=x))


class Bert(nn.Module):
    """The encoder: embeddings and layers, computed in `dtype`."""

    config: BertConfig
    products: Products
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens: jax.Array, attention_mask: jax.Array) -> jax.Array:
        c, init = self.config, nn.initializers.normal(0.02)
        words = self.param("words", init, (c.vocabulary, c.hidden), jnp.float32)
        positions = self.param("positions", init, (c.positions, c.hidden), jnp.float32)
        types = self.param("types", init, (c.types, c.hidden), jnp.float32)
        x = words[tokens] + positions[: tokens.shape[1]] + types[0]
        x = Norm(c.epsilon, name="norm")(x).astype(self.dtype)
        mask = jnp.where(attention_mask, 0.0, -1e9)[:, None, None, :]
        for i in range(c.layers):
            x = Layer(c, self.products, name=f"layer_{i}")(x, mask)
        return x


def embed(
    model: Bert, params: Any, tokens: jax.Array, attention_mask: jax.Array, packed: Any = None
) -> jax.Array:
    """Mean of the hidden states under the mask, scaled to unit length: float32 [batch, hidden].

    packed: `layers.packed_kernels(params, dtype)`, to multiply with those.
    """
    variables = {"params": params} | ({} if packed is None else {"packed": packed})
    hidden = model.apply(variables, tokens, attention_mask).astype(jnp.float32)
    weight = attention_mask[..., None].astype(jnp.float32)
    mean = (hidden * weight).sum(1) / weight.sum(1)
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


# ---------------------------------------------------------------------- weights
def load(folder: pathlib.Path) -> tuple[BertConfig, dict[str, Any]]:
    """Configuration and parameters of a Hugging Face BERT folder (config.json, safetensors)."""
    raw = read_config(folder)
    config = BertConfig(
        layers=int(raw["num_hidden_layers"]),
        hidden=int(raw["hidden_size"]),
        heads=int(raw["num_attention_heads"]),
        intermediate=int(raw["intermediate_size"]),
        vocabulary=int(raw["vocab_size"]),
        positions=int(raw["max_position_embeddings"]),
        types=int(raw["type_vocab_size"]),
        epsilon=float(raw["layer_norm_eps"]),
        activation={"gelu": "gelu_erf", "gelu_new": "gelu_tanh", "relu": "relu"}[raw["hidden_act"]],
    )
    return config, params_from(read_tensors(folder, ("bert.",)), config)


def params_from(tensors: dict[str, np.ndarray], config: BertConfig) -> dict[str, Any]:
    """The Flax parameters of Hugging Face tensors; names and shapes are checked."""
    c, take = config, Taker(tensors)
    params: dict[str, Any] = {
        "words": take("embeddings.word_embeddings.weight", c.vocabulary, c.hidden),
        "positions": take("embeddings.position_embeddings.weight", c.positions, c.hidden),
        "types": take("embeddings.token_type_embeddings.weight", c.types, c.hidden),
        "norm": _norm(take, "embeddings.LayerNorm", c),
    }
    for i in range(c.layers):
        params[f"layer_{i}"] = _layer(take, f"encoder.layer.{i}", c)
    if unknown := [name for name in take.left() if not name.startswith(NOT_ENCODER)]:
        raise ValueError(f"tensors that a BERT encoder does not have: {', '.join(sorted(unknown))}")
    return params


def _layer(take: Taker, at: str, c: BertConfig) -> dict[str, Any]:
    return {
        "attention": {
            "query": _linear(take, f"{at}.attention.self.query", c.hidden, c.hidden),
            "key": _linear(take, f"{at}.attention.self.key", c.hidden, c.hidden),
            "value": _linear(take, f"{at}.attention.self.value", c.hidden, c.hidden),
            "output": _linear(take, f"{at}.attention.output.dense", c.hidden, c.hidden),
        },
        "attention_norm": _norm(take, f"{at}.attention.output.LayerNorm", c),
        "up": _linear(take, f"{at}.intermediate.dense", c.hidden, c.intermediate),
        "down": _linear(take, f"{at}.output.dense", c.intermediate, c.hidden),
        "norm": _norm(take, f"{at}.output.LayerNorm", c),
    }


def _linear(take: Taker, at: str, inputs: int, outputs: int) -> dict[str, np.ndarray]:
    weight = take(f"{at}.weight", outputs, inputs)  # Hugging Face keeps [out, in]
    return {"kernel": np.ascontiguousarray(weight.T), "bias": take(f"{at}.bias", outputs)}


def _norm(take: Taker, at: str, c: BertConfig) -> dict[str, np.ndarray]:
    return {"scale": take(f"{at}.weight", c.hidden), "bias": take(f"{at}.bias", c.hidden)}


def init(config: BertConfig, products: Products, seed: int = 0) -> Any:
    """Random parameters of `config` from `seed`."""
    tokens = jnp.zeros((1, 8), jnp.int32)
    model = Bert(config, products)
    return model.init(jax.random.key(seed), tokens, jnp.ones_like(tokens))["params"]
