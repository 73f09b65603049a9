"""jaxpipe.dot: shapes like jnp.dot, the epilogue in one kernel, derivatives of every order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpipe
from jaxpipe.errors import ProblemError, SettingError, UnsupportedError
from jaxpipe.ops.epilogue import ACTIVATIONS
from tests.ops import ways
from tests.tolerance import assert_close

SIZE = ways.SIZE
BIAS = jnp.asarray(np.random.default_rng(7).standard_normal(SIZE), np.float32)
RESIDUAL = jnp.asarray(np.random.default_rng(8).standard_normal((SIZE, SIZE)), np.float32)


def random(shape, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def fused(x, w, bias=BIAS, residual=RESIDUAL, activation="gelu"):
    return jaxpipe.dot(x, w, bias=bias, activation=activation, residual=residual)


def unfused(x, w, bias=BIAS, residual=RESIDUAL, activation="gelu"):
    name = "gelu_tanh" if activation == "gelu" else activation
    return ACTIVATIONS[name or "none"](jnp.dot(x, w) + bias) + residual


@pytest.mark.parametrize("activation", ["gelu", pytest.param("relu", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ways.WAYS)
def test_a_fused_product_passes_through(way: str, activation: str) -> None:
    got = ways.through(way, functools.partial(fused, activation=activation))
    want = ways.through(way, functools.partial(unfused, activation=activation))
    assert_close(got, want, SIZE, slack=40)


@pytest.mark.parametrize("activation", [*ACTIVATIONS, "gelu", "swish"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_activations(activation: str, dtype: str) -> None:
    x, w, bias = random((7, 40), dtype), random((40, 9), dtype, 1), random((9,), dtype, 2)
    activation_ = {"gelu": "gelu_tanh", "swish": "silu"}.get(activation, activation)
    wide = jnp.dot(x.astype("float32"), w.astype("float32")) + bias.astype("float32")
    got = jaxpipe.dot(x, w, bias=bias, activation=activation)
    assert_close(got, ACTIVATIONS[activation_](wide).astype(dtype), 40)


@pytest.mark.parametrize("operand", ["x", "w", "bias", "residual"])
@pytest.mark.parametrize("activation", [None, "silu", "tanh"])
def test_each_operand_has_its_gradient(operand: str, activation) -> None:
    values = dict(x=random((6, 8)), w=random((8, 5), seed=1), bias=random((5,), seed=2),
                  residual=random((6, 5), seed=3))  # fmt: skip

    def loss(value, f):
        return jnp.sin(f(**{**values, operand: value}, activation=activation)).sum()

    grads = [jax.grad(loss)(values[operand], f) for f in (fused, unfused)]
    assert_close(*grads, 8, slack=10)


@pytest.mark.parametrize("mapped", ["x", "w", "bias", "residual", "x bias", "w bias", "x w",
                                    "x residual", "w residual", "x w bias residual"])  # fmt: skip
def test_vmap_of_each_operand(mapped: str) -> None:
    values = dict(x=random((6, 8)), w=random((8, 5), seed=1), bias=random((5,), seed=2),
                  residual=random((6, 5), seed=3))  # fmt: skip
    names = mapped.split()
    stacked = {n: jnp.stack([values[n], -values[n]], -1) for n in names}

    def call(f, stacked):
        return f(**{**values, **stacked})

    outs = [jax.vmap(functools.partial(call, f), -1, 1)(stacked) for f in (fused, unfused)]
    assert_close(*outs, 8, slack=2)


@pytest.mark.parametrize(
    "jacobian", [jax.jacrev, jax.jacfwd, jax.hessian], ids=lambda j: j.__name__
)
@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_jacobians_map_one_operand_of_the_derivative(jacobian, activation: str) -> None:
    x, w = random((2, 3)) / 4, random((3, 4), seed=1) / 4

    def out(x, f):
        return f(x, w, bias=w[0], residual=jnp.ones((2, 4)), activation=activation)

    got, want = (jacobian(functools.partial(out, f=f))(x) for f in (fused, unfused))
    assert_close(got, want, 8, slack=8)


@pytest.mark.parametrize("mapped", ["x", "w", "w bias", "x w", "x residual"])
def test_vmap_keeps_the_fusion(mapped: str) -> None:
    values = dict(x=random((6, 8)), w=random((8, 5)), bias=random((5,)), residual=random((6, 5)))
    stacked = {n: jnp.stack([values[n], -values[n]]) for n in mapped.split()}
    text = str(jax.make_jaxpr(jax.vmap(lambda s: fused(**{**values, **s})))(stacked))
    assert text.count("jaxpipe_fused[") == 1
    assert "jaxpipe_dot[" not in text


def test_only_differentiation_saves_the_preactivation() -> None:
    x, w, _ = ways.operands()
    forward = str(jax.make_jaxpr(fused)(x, w))
    backward = str(jax.make_jaxpr(jax.grad(lambda w: fused(x, w).sum()))(w))
    assert "preactivation" not in forward
    assert backward.count("preactivation") == 1


def test_a_linear_epilogue_saves_nothing() -> None:
    x, w, _ = ways.operands()
    loss = lambda w: fused(x, w, activation=None).sum()  # noqa: E731
    assert "preactivation" not in str(jax.make_jaxpr(jax.grad(loss))(w))


def test_reverse_mode_saves_the_operands_and_the_preactivation_only() -> None:
    x, w, _ = ways.operands()
    _, pull = jax.vjp(functools.partial(fused, activation="silu"), x, w)
    assert sorted(leaf.shape for leaf in jax.tree.leaves(pull)) == [(SIZE, SIZE)] * 3


def test_an_unused_gradient_costs_no_product() -> None:
    x, w, _ = ways.operands()
    text = str(jax.make_jaxpr(jax.grad(lambda bias: fused(x, w, bias).sum()))(BIAS))
    assert "jaxpipe_dot[" not in text


SHAPES = [((5,), (5,)), ((4, 5), (5,)), ((5,), (5, 6)), ((2, 3, 5), (5, 6)), ((3, 5), (2, 5, 6)),
          ((2, 5), (4, 3, 5, 6)), ((1, 1, 1), (1, 1))]  # fmt: skip


@pytest.mark.parametrize(("x", "w"), SHAPES)
def test_shapes_are_those_of_jnp_dot(x, w) -> None:
    x, w = random(x), random(w, seed=1)
    assert_close(jaxpipe.dot(x, w), jnp.dot(x, w), 5)


@pytest.mark.parametrize(("x", "w"), SHAPES)
def test_a_bias_has_the_shape_of_w_without_its_rows(x, w) -> None:
    x, w = random(x), random(w, seed=1)
    bias = random((*w.shape[:-2], *w.shape[-1:]) if w.ndim > 1 else (), seed=2)
    got = jaxpipe.dot(x, w, bias=bias, activation="relu")
    assert_close(got, jax.nn.relu(jnp.dot(x, w) + bias), 5)


@pytest.mark.parametrize(("x", "w"), [("bfloat16", "float32"), ("float16", "bfloat16"),
                                      ("int8", "bfloat16"), ("int32", "float32")])  # fmt: skip
def test_operands_are_promoted_as_in_jnp(x: str, w: str) -> None:
    x, w = jnp.ones((3, 4), x), jnp.ones((4, 5), w)
    assert_close(jaxpipe.dot(x, w), jnp.dot(x, w), 4)


def test_k_of_zero_gives_the_epilogue_of_zeros() -> None:
    bias = random((4,))
    got = jaxpipe.dot(jnp.ones((3, 0)), jnp.ones((0, 4)), bias=bias, activation="relu")
    assert_close(got, jnp.broadcast_to(jax.nn.relu(bias), (3, 4)), 1)


def test_relu_keeps_nan() -> None:
    x = jnp.full((4, 4), jnp.nan)
    assert jnp.isnan(jaxpipe.dot(x, x, activation="relu")).all()


def test_the_epilogue_is_rounded_once() -> None:
    x, w = jnp.full((1, 1), 256.0, jnp.bfloat16), jnp.ones((1, 1), jnp.bfloat16)
    one = jnp.ones((1,), jnp.bfloat16)  # 256 + 1 rounds to 256 in bfloat16, 256 + 1 + 1 does not
    got = jaxpipe.dot(x, w, bias=one, residual=one[None])
    assert got.item() == 258.0


ERRORS = {
    r"x has 4 columns, w has 5 rows": dict(x=(3, 4), w=(5, 6)),
    r"bias has shape \(5,\), it takes \(6,\)": dict(x=(3, 4), w=(4, 6), bias=(5,)),
    r"residual has shape \(6,\), it takes the result's \(3, 6\)": dict(
        x=(3, 4), w=(4, 6), residual=(6,)
    ),
    r"multiply scalars": dict(x=(), w=(4, 6)),
}


@pytest.mark.parametrize("message", ERRORS)
def test_shapes_that_do_not_fit_are_named(message: str) -> None:
    arrays = {name: jnp.ones(shape) for name, shape in ERRORS[message].items()}
    with pytest.raises(ProblemError, match=message):
        jaxpipe.dot(**arrays)


def test_an_unknown_activation_is_named_with_the_known_ones() -> None:
    with pytest.raises(ProblemError, match=r"'softplus' is unknown: use None or one of relu, gelu"):
        jaxpipe.dot(jnp.ones((2, 2)), jnp.ones((2, 2)), activation="softplus")


def test_an_activation_of_integers_is_refused() -> None:
    x = jnp.ones((2, 2), jnp.int8)
    with pytest.raises(ProblemError, match=r"int8 results: activations take floating-point"):
        jaxpipe.dot(x, x, activation="gelu")


def test_an_unknown_implementation_is_refused() -> None:
    with pytest.raises(SettingError, match=r"'cpu' does not exist: use one of cuda, host"):
        jaxpipe.dot(jnp.ones((2, 2)), jnp.ones((2, 2)), implementation="cpu")


def test_a_named_implementation_that_cannot_serve_raises() -> None:
    x = jnp.ones((2, 2), jnp.int16)
    with pytest.raises(UnsupportedError, match=r"host.*dot int16\[2,2\].*kernels take.*None picks"):
        jaxpipe.dot(x, x, implementation="host")


def test_cuda_on_a_machine_without_one_says_so() -> None:
    x = jnp.ones((2, 2))
    with pytest.raises(UnsupportedError, match=r"compiled for cpu, cuda runs on cuda.*None picks"):
        jaxpipe.dot(x, x, implementation="cuda")


def test_xla_by_name_is_counted_as_asked_for() -> None:
    x = jnp.ones((2, 3))
    with jaxpipe.coverage() as ledger:
        assert_close(jaxpipe.dot(x, x.T, implementation="xla", bias=jnp.ones(2)), x @ x.T + 1, 3)
    assert ledger.left == {"asked for": 1}
