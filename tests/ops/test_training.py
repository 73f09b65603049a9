"""Twenty steps of training on the host give XLA's loss curve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

bert = pytest.importorskip("benchmarks.models.bert")
gpt2 = pytest.importorskip("benchmarks.models.gpt2")
products = pytest.importorskip("benchmarks.models.products")

import jaxpipe  # noqa: E402

STEPS, RATE = 20, 0.05


def bert_loss(side):
    """MiniLM's sizes: embeddings are drawn towards fixed random directions."""
    config = bert.CONFIGS["minilm"]
    model = bert.Bert(config, side)
    random = np.random.default_rng(0)
    tokens = random.integers(0, config.vocabulary, (4, 32))
    goal = jnp.asarray(random.standard_normal((4, config.hidden)), jnp.float32)

    def loss(params):
        embedded = bert.embed(model, params, tokens, np.ones((4, 32), np.int32))
        return ((embedded - goal) ** 2).mean()

    return loss, bert.init(config, products.XLA)


def gpt2_loss(side):
    """A small GPT-2: the next token of random text."""
    config = gpt2.CONFIGS["gpt2-tiny"]
    model = gpt2.Gpt2(config, side)
    tokens = np.random.default_rng(0).integers(0, config.vocabulary, (4, 33))

    def loss(params):
        logits = gpt2.forward(model, params, tokens[:, :-1])
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
        return -picked.mean()

    return loss, gpt2.init(config, products.XLA)


def curve(make, side) -> np.ndarray:
    loss, params = make(side)

    @jax.jit
    def step(params):
        value, grads = jax.value_and_grad(loss)(params)
        return value, jax.tree.map(lambda p, g: p - RATE * g, params, grads)

    values = []
    for _ in range(STEPS):
        value, params = step(params)
        values.append(float(value))
    return np.array(values)


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert_loss, gpt2_loss])
def test_the_loss_curve_is_that_of_xla(make) -> None:
    with jaxpipe.coverage() as ledger:
        ours = curve(make, products.JAXPIPE)
    theirs = curve(make, products.XLA)
    assert ledger.left == {}
    assert theirs[-1] < theirs[0]
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
