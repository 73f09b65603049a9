"""Several devices, automatic axes: results and shardings as lax's, no collective without need."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpipe
from tests.ops.sharded import (
    AUTO,
    BATCHED,
    array,
    assert_same,
    collectives,
    local_results,
    mesh_of,
    ours,
    place,
    theirs,
)  # fmt: skip
from tests.tolerance import assert_close

# ------------------------------------------------------------------ automatic axes
# name: (function of a product, operands, specs, collectives)
AUTOMATIC = {
    "rows": (lambda d, a, b: d(a, b), "x w", (P("x"), P()), set()),
    "columns": (lambda d, a, b: d(a, b), "x w", (P(), P(None, "y")), set()),
    "rows and columns": (lambda d, a, b: d(a, b), "x w", (P("x"), P(None, "y")), set()),
    "contracting": (lambda d, a, b: d(a, b), "x w", (P(None, "x"), P("x")), {"all-reduce"}),
    "contracting and rows": (
        lambda d, a, b: d(a, b), "x w", (P("y", "x"), P("x")), {"all-reduce"},
    ),
    "contracting over two axes": (
        lambda d, a, b: d(a, b), "x w", (P(None, ("x", "y")), P(("x", "y"))), {"all-reduce"},
    ),
    "batch": (lambda d, a, b: d(a, b, BATCHED), "xb wb", (P("x"), P("x", None, "y")), set()),
    "vmap": (lambda d, a, b: jax.vmap(d)(a, b), "xb wb", (P("x"), P("x")), set()),
    "vmap of lhs": (
        lambda d, a, b: jax.vmap(d, (0, None))(a, b[0]), "xb wb", (P("x", "y"), P()), set(),
    ),
    "scan": (
        lambda d, a, b: lax.scan(lambda c, _: (jnp.tanh(d(c, b)), None), a, None, length=3)[0],
        "x sq", (P("x"), P()), set(),
    ),
    "gradients of tensor parallel layers": (
        lambda d, a, b: jax.grad(
            lambda a, b: jnp.sin(d(jnp.tanh(d(a, b)), b.T)).sum(), (0, 1)
        )(a, b),
        "x sq", (P("x"), P(None, "y")), {"all-reduce"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTOMATIC)
def test_automatic_axes(name: str) -> None:
    f, operands, specs, expected = AUTOMATIC[name]
    args = place(mesh_of(AUTO), operands, specs)
    assert_same(f, *args)
    compiled = jax.jit(lambda *a: f(ours, *a)).lower(*args).compile()
    assert collectives(compiled) == expected
    assert local_results(compiled)


def test_the_local_kernel_has_the_local_shape() -> None:
    args = place(mesh_of(AUTO), "x w", (P("x"), P(None, "y")))
    assert local_results(jax.jit(ours).lower(*args).compile()) == ["f32[4,6]{1,0}"]


@pytest.mark.parametrize("names", ["x7 w", "x17 w17"])
def test_uneven_shards_add_no_padding_to_sums(names: str) -> None:
    mesh = mesh_of(AUTO)
    a, b = (jnp.asarray(array(n, i)) for i, n in enumerate(names.split()))
    spec = P("x") if names == "x7 w" else P(None, "x")

    def loss(d, a, b):
        a = lax.with_sharding_constraint(a, NamedSharding(mesh, spec))
        y = d(a, b)
        return (jnp.sin(y) * y).sum()

    got, want = (
        jax.jit(jax.value_and_grad(lambda a, b, d=d: loss(d, a, b), (0, 1)))(a, b)
        for d in (ours, theirs)
    )
    assert_close(got, want, 64, slack=8)


def test_constraints_by_partition_spec_under_set_mesh() -> None:
    a, b = array("x"), array("w", 1)

    def f(d, a, b):
        a = lax.with_sharding_constraint(jnp.sin(a), P("y", "x"))
        return d(a, lax.with_sharding_constraint(b, P("x", None)))

    with jax.set_mesh(mesh_of(AUTO)):
        assert_same(f, a, b)
        compiled = jax.jit(lambda a, b: f(ours, a, b)).lower(a, b).compile()
    assert "all-gather" not in collectives(compiled)
    assert local_results(compiled) == ["f32[4,12]{1,0}"]


def test_one_axis_that_both_operands_want_splits_one_of_them() -> None:
    args = place(mesh_of(AUTO), "x w", (P("x"), P(None, "x")))
    got = jax.jit(ours)(*args)
    assert_close(got, jnp.asarray(array("x") @ array("w", 1)), 16)


def test_a_program_for_one_of_many_devices_is_not_partitioned() -> None:
    compiled = jax.jit(ours).lower(array("x"), array("w")).compile()
    assert local_results(compiled) == ["f32[8,12]{1,0}"]
    assert "CustomSPMDPartitioning" not in jax.jit(ours).lower(array("x"), array("w")).as_text()


def test_a_fused_product_is_split_with_its_epilogue() -> None:
    mesh = mesh_of(AUTO)
    a, b, r = place(mesh, "x w x", (P("x"), P(None, "y"), P("x", None)))
    bias = jax.device_put(np.arange(12.0, dtype=np.float32), NamedSharding(mesh, P("y")))

    def f(d, a, b, bias, r):
        if d is ours:
            return jaxpipe.dot(a, b, bias=bias, activation="gelu", residual=r[:, :12])
        return jax.nn.gelu(a @ b + bias) + r[:, :12]

    assert_same(f, a, b, bias, r)
    grad = lambda d, *a: jax.grad(lambda *a: jnp.sin(f(d, *a)).sum(), (0, 1, 2, 3))(*a)  # noqa: E731
    assert_same(grad, a, b, bias, r)
    compiled = jax.jit(lambda *a: f(ours, *a)).lower(a, b, bias, r).compile()
    assert collectives(compiled) == set()


def test_the_epilogue_of_a_summed_product_comes_after_the_sum() -> None:
    a, b = place(mesh_of(AUTO), "x w", (P(None, "x"), P("x")))
    bias = jnp.arange(12.0)
    got = jax.jit(lambda a, b: jaxpipe.dot(a, b, bias=bias, activation="silu"))(a, b)
    assert_close(got, jax.nn.silu(jnp.asarray(array("x") @ array("w", 1)) + bias), 16, slack=2)


def test_the_older_partitioner_serves_too() -> None:
    args = place(mesh_of(AUTO), "x w", (P("y", "x"), P("x")))
    previous = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        assert_close(jax.jit(ours)(*args), jnp.asarray(array("x") @ array("w", 1)), 16)
    finally:
        jax.config.update("jax_use_shardy_partitioner", previous)


def test_what_no_kernel_serves_is_partitioned_by_xla() -> None:
    a, b = (x.astype(jnp.int32) for x in place(mesh_of(AUTO), "x w", (P("x"), P(None, "y"))))
    with jaxpipe.coverage() as ledger:
        compiled = jax.jit(ours).lower(a, b).compile()
    assert (ledger.taken, collectives(compiled)) == (0, set())


# ------------------------------------------------------------------ convolutions
@pytest.mark.parametrize(("image", "kernel", "expected"), [
    (P("x"), P(), set()),
    (P("x"), P(None, None, None, "y"), set()),
    (P(None, None, None, "x"), P(None, None, "x"), {"all-reduce"}),
])  # fmt: skip
def test_convolutions_split_by_batch_and_channels(image, kernel, expected) -> None:
    mesh = mesh_of(AUTO)
    x = np.random.default_rng(0).standard_normal((4, 6, 6, 8)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((3, 3, 8, 4)).astype(np.float32)
    args = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((x, image), (w, kernel))]
    compiled = jax.jit(jaxpipe.conv).lower(*args).compile()
    want = lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    assert_close(compiled(*args), want, 72)
    assert collectives(compiled) == expected


# ------------------------------------------------------------------ a model
COLLECTIVE = r"(all-\w+|reduce-scatter|collective-\w+)\("


def bert_spec(path) -> P:
    """Data over "data", Megatron's tensor parallelism over "model"."""
    name = "/".join(str(getattr(key, "key", key)) for key in path)
    if re.search(r"(query|key|value|up)/kernel", name):
        return P(None, "model")
    if re.search(r"(query|key|value|up)/bias", name):
        return P("model")
    return P("model", None) if re.search(r"(output|down)/kernel", name) else P()


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_data_and_tensor_parallel_bert_gathers_nothing(training: bool) -> None:
    bert = pytest.importorskip("benchmarks.models.bert")
    products = pytest.importorskip("benchmarks.models.products")
    config = bert.BertConfig(2, 64, 4, 128, vocabulary=100, positions=32)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AUTO, AUTO))
    put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))  # noqa: E731
    params = jax.tree_util.tree_map_with_path(
        lambda path, x: put(x, bert_spec(path)), bert.init(config, products.XLA)
    )
    tokens = put(np.random.default_rng(0).integers(0, 100, (8, 16)), P("data"))
    mask = put(np.ones((8, 16), np.int32), P("data"))

    def step(side, params, tokens, mask):
        embed = lambda p: bert.embed(bert.Bert(config, side), p, tokens, mask)  # noqa: E731
        return jax.grad(lambda p: (embed(p) ** 3).sum())(params) if training else embed(params)

    outs, texts = [], []
    for side in (products.JAXPIPE, products.XLA):
        f = jax.jit(lambda *a, side=side: step(side, *a))
        with jaxpipe.coverage() as ledger:
            compiled = f.lower(params, tokens, mask).compile()
        outs.append(ravel_pytree(jax.device_get(compiled(params, tokens, mask)))[0])
        texts.append(sorted(re.findall(COLLECTIVE, compiled.as_text())))
        if side is products.JAXPIPE:
            assert (ledger.taken, ledger.left) == (48 if training else 16, {})
    assert_close(*outs, 128, slack=20)
    assert texts[0] == texts[1]
    assert set(texts[0]) == {"all-reduce"}
