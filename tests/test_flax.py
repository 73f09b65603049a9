"""Flax: every example of docs/flax.md runs and is right, and training goes through every slot."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxpipe
from tests.tolerance import assert_close

nn = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")

import jaxpipe.flax as slots  # noqa: E402

DOCUMENT = pathlib.Path(__file__).parent.parent / "docs" / "flax.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.S)


def examples() -> dict[str, str]:
    """The code of every section that has one, by "chapter: section"."""
    found, chapter = {}, ""
    for part in re.split(r"^(?=##)", DOCUMENT.read_text(), flags=re.M):
        title = part.splitlines()[0].lstrip("# ")
        chapter = title if part.startswith("## ") else chapter
        if block := BLOCK.search(part):
            found[f"{chapter}: {title}"] = block[1]
    return found


EXAMPLES = examples()
X = jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, 16)), jnp.float32)
IMAGE = jnp.asarray(np.random.default_rng(0).standard_normal((2, 8, 8, 3)), jnp.float32)


def test_the_document_has_its_examples() -> None:
    assert DOCUMENT.read_text().count("```python") == len(EXAMPLES) == 12


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str) -> None:
    exec(compile(EXAMPLES[name], f"docs/flax.md: {name}", "exec"), {})


def ravel(tree):
    """One vector: gradients that cancel to nothing are judged beside the others."""
    return ravel_pytree(tree)[0]


# name: (layer with jaxpipe, the same without, input)
LINEN = {
    "Dense": (lambda d: nn.Dense(8, dot_general=d), "dot_general", X),
    "Dense in bfloat16 with float32 parameters": (
        lambda d: nn.Dense(8, dtype=jnp.bfloat16, dot_general=d), "dot_general", X,
    ),
    "DenseGeneral": (lambda d: nn.DenseGeneral((4, 2), dot_general=d), "dot_general", X),
    "DenseGeneral over two axes": (
        lambda d: nn.DenseGeneral(8, axis=(-2, -1), dot_general=d), "dot_general", X,
    ),
    "DenseGeneral with a batch": (
        lambda d: nn.DenseGeneral(8, axis=-1, batch_dims=(0,), dot_general=d), "dot_general", X,
    ),
    "attention": (
        lambda d: nn.MultiHeadDotProductAttention(
            4, qkv_dot_general=d, out_dot_general=d
        ), "dot_general", X,
    ),
    "Conv": (lambda c: nn.Conv(4, (3, 3), 2, conv_general_dilated=c), "conv", IMAGE),
    "Conv in bfloat16": (
        lambda c: nn.Conv(4, (3, 3), dtype=jnp.bfloat16, conv_general_dilated=c), "conv", IMAGE,
    ),
    "a causal Conv of one dimension": (
        lambda c: nn.Conv(4, (3,), padding="CAUSAL", conv_general_dilated=c), "conv", X,
    ),
}  # fmt: skip
OURS = {"dot_general": jaxpipe.dot_general, "conv": jaxpipe.conv_general_dilated}


@pytest.mark.parametrize("name", LINEN)
def test_a_linen_layer_trains_as_without(name: str) -> None:
    make, slot, x = LINEN[name]
    ours, theirs = make(OURS[slot]), make(None)
    params = theirs.init(jax.random.key(0), x)

    def step(layer):
        loss = lambda p: (layer.apply(p, x).astype(jnp.float32) ** 2).sum()  # noqa: E731
        return jax.jit(jax.value_and_grad(loss))(params)

    assert_close(
        ravel(step(ours)), ravel(step(theirs)), 128, slack=4000 if "bfloat16" in name else 8
    )


NNX = {
    "Linear": (lambda d: nnx.Linear(16, 8, dot_general=d, rngs=nnx.Rngs(0)), "dot_general", X),
    "LinearGeneral": (
        lambda d: nnx.LinearGeneral(16, (4, 2), dot_general=d, rngs=nnx.Rngs(0)), "dot_general", X,
    ),
    "attention": (
        lambda d: nnx.MultiHeadAttention(
            4, 16, qkv_dot_general=d, out_dot_general=d, decode=False, rngs=nnx.Rngs(0)
        ), "dot_general", X,
    ),
    "Conv": (
        lambda c: nnx.Conv(3, 4, (3, 3), conv_general_dilated=c, rngs=nnx.Rngs(0)), "conv", IMAGE,
    ),
}  # fmt: skip
THEIRS = {"dot_general": jax.lax.dot_general, "conv": jax.lax.conv_general_dilated}


@pytest.mark.parametrize("name", NNX)
def test_an_nnx_layer_trains_as_without(name: str) -> None:
    make, slot, x = NNX[name]

    def step(product):
        loss = nnx.jit(nnx.value_and_grad(lambda layer: (layer(x) ** 2).sum()))
        value, grads = loss(make(product))
        return value, nnx.to_pure_dict(nnx.state(grads))

    assert_close(ravel(step(OURS[slot])), ravel(step(THEIRS[slot])), 128, slack=8)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_fused_dense_has_the_parameters_and_results_of_linen(dtype) -> None:
    ours, theirs = slots.Dense(16, activation="gelu", dtype=dtype), nn.Dense(16, dtype=dtype)
    params = theirs.init(jax.random.key(0), X)
    assert jax.tree.map(jnp.shape, ours.init(jax.random.key(0), X)) == jax.tree.map(
        jnp.shape, params
    )
    want = jax.nn.gelu(theirs.apply(params, X).astype(jnp.float32)).astype(dtype or "float32")
    assert_close(ours.apply(params, X), want, 16, slack=8)


def test_the_fused_linear_is_an_nnx_linear() -> None:
    ours = slots.Linear(16, 16, activation="silu", rngs=nnx.Rngs(0))
    theirs = nnx.Linear(16, 16, rngs=nnx.Rngs(0))
    assert_close(ours(X, residual=X), jax.nn.silu(theirs(X)) + X, 16)


def test_layers_add_the_residual_first_when_told_so() -> None:
    linen = slots.Dense(16, activation="relu", residual_first=True)
    params = linen.init(jax.random.key(0), X)
    want = jax.nn.relu(nn.Dense(16).apply(params, X) + X)
    assert_close(linen.apply(params, X, residual=X), want, 16)
    nnx_ours = slots.Linear(16, 16, activation="relu", residual_first=True, rngs=nnx.Rngs(0))
    theirs = nnx.Linear(16, 16, rngs=nnx.Rngs(0))
    assert_close(nnx_ours(X, residual=X), jax.nn.relu(theirs(X) + X), 16)


def test_a_slot_with_an_implementation_insists_on_it() -> None:
    layer = nn.Dense(8, dot_general=slots.DotGeneral(implementation="xla"))
    with jaxpipe.coverage() as ledger:
        layer.init(jax.random.key(0), X)
    assert ledger.left == {"asked for": 1}


def test_attention_functions_take_masks_biases_and_dropout() -> None:
    q = X.reshape(2, 5, 4, 4)
    words = dict(mask=nn.make_causal_mask(jnp.ones((2, 5))), dropout_rate=0.5,
                 dropout_rng=jax.random.key(1), deterministic=False)  # fmt: skip
    assert_close(
        slots.linen_attention(q, q, q, **words), nn.dot_product_attention(q, q, q, **words), 16
    )


def test_an_accelerated_nnx_module_updates_its_state() -> None:
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.dense, self.norm = nnx.Linear(16, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)

        def __call__(self, x):
            return self.norm(self.dense(x))

    ours, theirs = Net(nnx.Rngs(0)), Net(nnx.Rngs(0))
    fast = jaxpipe.accelerate(ours)
    assert_close(fast(X), theirs(X), 16, slack=8)
    assert_close(ours.norm.mean[...], theirs.norm.mean[...], 16, slack=8)
    assert float(jnp.abs(ours.norm.mean[...]).sum()) > 0
    assert fast.report(X).taken == 1


def test_fp8_layers_of_flax_train_on_8_bit_kernels() -> None:
    """The same numbers as without, scale histories included; on an H200 (lowered) as 8-bit."""
    layer = nn.Dense(16, dtype=jnp.bfloat16, dot_general_cls=nn.Fp8DirectDotGeneralOp)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 32)), jnp.bfloat16)
    variables = layer.init(jax.random.key(0), x)

    def step(apply):
        def loss(v):
            return (apply(v, x).astype(jnp.float32) ** 2).sum()

        return jax.jit(jax.grad(loss, allow_int=True))

    fast = step(jaxpipe.accelerate(layer))
    assert_close(ravel(fast(variables)), ravel(step(layer.apply)(variables)), 128, slack=4000)
    with jaxpipe.options(target="h200"), jaxpipe.coverage() as ledger:
        fast.trace(variables).lower(lowering_platforms=("cuda",))
    problems = [site.problem for site, _ in ledger.rows()]
    assert ledger.left == {}
    assert any("float8_e4m3fn->bfloat16" in problem for problem in problems), problems
