"""The GPT-2 of the benchmarks computes what transformers' PyTorch model computes."""

import pathlib

import jax
import numpy as np
import pytest

from benchmarks.models import gpt2
from benchmarks.models.products import JAXPIPE, XLA, Products

CONFIG = gpt2.CONFIGS["gpt2-tiny"]


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """A Hugging Face model with random weights that make its choices lively, and its folder."""
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install .[peers]")
    transformers = pytest.importorskip("transformers", reason="an extra: pip install .[peers]")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=128, n_head=4, vocab_size=1000, n_positions=256, initializer_range=0.3,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    folder = tmp_path_factory.mktemp("gpt2")
    model.save_pretrained(folder)
    return model, pathlib.Path(folder)


def tokens(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, CONFIG.vocabulary, (batch, length))


@pytest.mark.parametrize("products", [XLA, JAXPIPE], ids=lambda p: p.name)
def test_logits_equal_transformers(peer, products: Products) -> None:
    import torch

    model, folder = peer
    config, params = gpt2.load(folder)
    ids = tokens(2, 17)
    with torch.no_grad():
        want = model(torch.tensor(ids)).logits.numpy()
    ours = gpt2.Gpt2(config, products)
    got = jax.jit(lambda p, t: gpt2.forward(ours, p, t))(params, ids)
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max(), rtol=0)


@pytest.mark.parametrize("products", [XLA, JAXPIPE], ids=lambda p: p.name)
def test_greedy_generation_equals_transformers(peer, products: Products) -> None:
    import torch

    model, folder = peer
    config, params = gpt2.load(folder)
    ids = tokens(2, 9)
    want = model.generate(
        torch.tensor(ids), max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0
    ).numpy()[:, 9:]
    ours = gpt2.Gpt2(config, products)
    got = np.asarray(jax.jit(lambda p, t: gpt2.generate(ours, p, t, 12))(params, ids))
    assert len(set(want.ravel())) > 4, "the peer's choices are too dull to prove anything"
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("products", [XLA, JAXPIPE], ids=lambda p: p.name)
def test_decoding_with_the_cache_equals_a_whole_pass(products: Products) -> None:
    params = gpt2.init(CONFIG, XLA)
    model = gpt2.Gpt2(CONFIG, products)
    ids = tokens(2, 12)
    whole = gpt2.forward(model, params, ids)
    cache = gpt2.empty_cache(CONFIG, 2, 12)
    _, cache = model.apply({"params": params}, ids[:, :11], cache)
    last, _ = model.apply({"params": params}, ids[:, 11:], cache, 11)
    np.testing.assert_allclose(last[:, 0], whole[:, 11], atol=1e-4)


def test_too_long_a_generation_is_refused() -> None:
    params = gpt2.init(CONFIG, XLA)
    with pytest.raises(ValueError, match=r"needs 260 positions.*has 256"):
        gpt2.generate(gpt2.Gpt2(CONFIG, XLA), params, tokens(1, 250), 10)
