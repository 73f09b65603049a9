"""jaxpipe.accelerate: the same function with its products replaced, through everything in JAX."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpipe
from tests.rewrite.programs import MODES, PROGRAMS, operands
from tests.tolerance import assert_close


def outcome(call):
    """The result, or the type of the error (a mode that the program itself refuses)."""
    try:
        return call(), None
    except Exception as error:
        return None, type(error)


FAST_MODES = ("forward", "grad")


@pytest.mark.parametrize(
    "mode", [pytest.param(m, marks=() if m in FAST_MODES else pytest.mark.slow) for m in MODES]
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_accelerate(name: str, mode: str) -> None:
    f, (x, w) = PROGRAMS[name], operands()
    want, refusal = outcome(lambda: MODES[mode](f, x, w))
    if refusal is not None:
        with pytest.raises(refusal):
            MODES[mode](jaxpipe.accelerate(f), x, w)
        return
    assert_close(MODES[mode](jaxpipe.accelerate(f), x, w), want, 64, slack=100)


def products_left(f, *args) -> tuple[int, int]:
    """(lax's products, ours) in the program of f."""
    text = str(jax.make_jaxpr(f)(*args))
    ours = text.count("jaxpipe_dot[") + text.count("jaxpipe_fused[")
    return text.count("dot_general["), ours


# custom_linear_solve holds lax's own LU kernels; their products are not the user's.
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"custom_linear_solve"}))
def test_no_product_is_left(name: str) -> None:
    left, ours = products_left(jaxpipe.accelerate(PROGRAMS[name]), *operands())
    assert left == 0
    assert ours > 0 or name == "custom_vjp with a product in its rule"


def test_gradients_inside_are_accelerated() -> None:
    x, w = operands()
    f = jaxpipe.accelerate(lambda x: jax.grad(lambda x: (scaled(x) ** 2).sum())(x))
    scaled = PROGRAMS["custom_vjp"]
    scaled = lambda x, g=scaled: g(x, w)  # noqa: E731
    assert products_left(f, x)[0] == 0


def test_a_rule_of_the_user_is_kept_and_accelerated() -> None:
    x, w = operands()
    grad = jax.grad(lambda x: jaxpipe.accelerate(PROGRAMS["custom_vjp"])(x, w).sum())
    want = jax.grad(lambda x: PROGRAMS["custom_vjp"](x, w).sum())(x)
    assert_close(grad(x), want, 16, slack=8)
    assert products_left(grad, x)[0] == 0


def test_accelerating_twice_changes_nothing() -> None:
    x, w = operands()
    once = jaxpipe.accelerate(PROGRAMS["fused layers"])
    twice = jaxpipe.accelerate(lambda x, w: once(x, w))
    assert str(jax.make_jaxpr(once)(x, w)) == str(jax.make_jaxpr(twice)(x, w))
    assert jaxpipe.accelerate(once) is once


# ------------------------------------------------------------------ patterns
X, W = (jnp.asarray(a) for a in operands())
B = jnp.arange(4.0)
R = jnp.ones((4, 4))
H = jnp.full((4, 4), -0.25, jnp.bfloat16)
C = (2 / np.pi) ** 0.5

# name: (function of x, what is fused)
PATTERNS = {
    "bias": (lambda x: x @ W + B, ["bias"]),
    "bias first": (lambda x: B + x @ W, ["bias"]),
    "bias of a row": (lambda x: x @ W + B[None], ["bias"]),
    "relu": (lambda x: jax.nn.relu(x @ W), ["relu"]),
    "maximum": (lambda x: jnp.maximum(x @ W, 0), ["relu"]),
    "gelu": (lambda x: jax.nn.gelu(x @ W), ["gelu_tanh"]),
    "gelu by erf": (lambda x: jax.nn.gelu(x @ W + B, approximate=False), ["bias", "gelu_erf"]),
    "gelu written out": (
        lambda x: (lambda z: 0.5 * z * (1 + jnp.tanh(C * (z + 0.044715 * z**3))))(x @ W + B),
        ["bias", "gelu_tanh"],
    ),
    "gelu by erf written out": (
        lambda x: (lambda z: 0.5 * z * (1 + lax.erf(z / np.sqrt(2.0))))(x @ W), ["gelu_erf"],
    ),
    "silu": (lambda x: jax.nn.silu(x @ W), ["silu"]),
    "silu written out": (lambda x: (lambda z: z * jax.nn.sigmoid(z))(x @ W), ["silu"]),
    "tanh": (lambda x: jnp.tanh(x @ W + B), ["bias", "tanh"]),
    "scale": (lambda x: (x @ W) * 0.5, ["scale 0.5"]),
    "division": (lambda x: (x @ W) / np.sqrt(16.0), ["scale 0.25"]),
    "residual": (lambda x: x + x @ W, ["residual"]),
    "everything": (
        lambda x: R + jax.nn.gelu(2.0 * (x @ W) + B), ["scale 2", "bias", "gelu_tanh", "residual"],
    ),
    "a residual first": (lambda x: jax.nn.relu(x @ W + R), ["residual", "relu"]),
    "a residual first, cast": (
        lambda x: jax.nn.gelu(((x @ W).astype(jnp.bfloat16) + B.astype(jnp.bfloat16)) + H),
        ["cast to bfloat16", "bias", "residual", "gelu_tanh"],
    ),
    "a residual before the bias": (
        lambda x: jnp.tanh(0.5 * (x @ W) + R + B), ["scale 0.5", "residual", "bias", "tanh"],
    ),
    "two residuals": (lambda x: R + jax.nn.relu(x @ W + x), ["residual", "relu"]),
    "the relu of a sum of two products": (
        lambda x: jax.nn.relu(x @ W + (x * 2) @ W), ["residual", "relu"],
    ),
    "a narrowing cast": (
        lambda x: jax.nn.relu(x @ W).astype(jnp.bfloat16), ["relu", "cast to bfloat16"],
    ),
    "a cast before the bias": (
        lambda x: (x @ W).astype(jnp.bfloat16) + B.astype(jnp.bfloat16),
        ["cast to bfloat16", "bias"],
    ),
    "an activation in a wider type": (
        lambda x: jax.nn.silu(
            (x.astype(jnp.bfloat16) @ W.astype(jnp.bfloat16)).astype(jnp.float32)
        ).astype(jnp.bfloat16),
        ["cast to float32", "silu", "cast to bfloat16"],
    ),
    "the activation under jit": (lambda x: jax.jit(jax.nn.gelu)(x @ W), ["gelu_tanh"]),
    "a sum of two products": (lambda x: x @ W + (x * 2) @ W, ["residual"]),
    "einsum with a bias": (lambda x: jnp.einsum("ij,jk->ik", x, W) + B, ["bias"]),
}  # fmt: skip


def fused_steps(f, x) -> list[str]:
    return [step for row in jaxpipe.accelerate(f).report(x).sites for step in row.fused]


@pytest.mark.parametrize("name", PATTERNS)
def test_is_fused(name: str) -> None:
    f, steps = PATTERNS[name]
    assert fused_steps(f, X) == steps
    assert_close(jaxpipe.accelerate(f)(X), f(X), 16, slack=2)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_fused_pattern_is_differentiated(name: str) -> None:
    f, _ = PATTERNS[name]
    grads = [
        jax.grad(lambda x, g=g: (g(x) ** 2).sum().astype(jnp.float32))(X)
        for g in (jaxpipe.accelerate(f), f)
    ]
    narrow = "cast" in name or "wider" in name
    assert_close(*grads, 64, slack=2e5 if narrow else 8)


# What looks alike but is something else, or has another use.
NOT_FUSED = {
    "a value that is used twice": (lambda x: (lambda y: y.sum() + (y + B).sum())(x @ W), []),
    "relu that drops NaN": (lambda x: (lambda z: jnp.where(z > 0, z, 0.0))(x @ W), []),
    "relu of another threshold": (lambda x: jnp.maximum(x @ W, 0.1), []),
    "leaky relu": (lambda x: jax.nn.leaky_relu(x @ W), []),
    "gelu of other numbers": (
        lambda x: (lambda z: 0.5 * z * (1 + jnp.tanh(C * (z + 0.045 * z**3))))(x @ W), [],
    ),
    "a bias along rows": (lambda x: x @ W + B[:, None], []),
    "a residual that depends on the product": (
        lambda x: (lambda y: jnp.sin(y) + y * 0)(x @ W), [],
    ),
    "a scale that is an array": (lambda x: (x @ W) * x[0, 0], []),
    "a scale after the bias": (lambda x: (x @ W + B) * 2.0, ["bias"]),
    "a second bias": (lambda x: x @ W + B + 2.0 * B, ["bias"]),
    "a residual after a residual": (lambda x: x @ W + x + R, ["residual"]),
    "a widening cast at the end": (
        lambda x: jax.nn.relu(x.astype(jnp.bfloat16) @ W.astype(jnp.bfloat16)).astype(jnp.float32),
        ["relu"],
    ),
    "an integer product": (lambda x: (x.astype(jnp.int32) @ W.astype(jnp.int32)) + 1, []),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_FUSED)
def test_is_not_fused(name: str) -> None:
    f, steps = NOT_FUSED[name]
    assert fused_steps(f, X) == steps
    assert_close(jaxpipe.accelerate(f)(X), f(X), 16, slack=2)


def test_a_preactivation_with_another_use_is_a_second_result() -> None:
    def f(x):
        z = x @ W + B
        return jax.nn.gelu(z), z

    ours = jaxpipe.accelerate(f)
    assert "preactivation" in str(jax.make_jaxpr(ours)(X))
    assert_close(ours(X), f(X), 16)


def test_a_sum_that_goes_on_beside_its_activation_is_a_second_result() -> None:
    def f(x):
        total = x @ W + B + x  # a residual network whose activations come first
        return jax.nn.relu(total) @ W, total

    ours = jaxpipe.accelerate(f)
    assert fused_steps(f, X) == ["bias", "residual", "relu"]
    assert "bias+residual_first+relu+preactivation" in str(jax.make_jaxpr(ours)(X))
    assert_close(ours(X), f(X), 16)


def test_a_residual_may_be_computed_after_the_product() -> None:
    def f(x):
        y = x @ W
        late = jnp.sin(x) * 3
        return y + late

    assert fused_steps(f, X) == ["residual"]
    assert_close(jaxpipe.accelerate(f)(X), f(X), 16)


def test_products_that_wait_for_each_other_stay_in_order() -> None:
    def f(x):
        first = x @ W
        z = x @ (W * 2) + B
        return jax.nn.relu(z) + first, z  # the second product's residual is the first

    assert_close(jaxpipe.accelerate(f)(X), f(X), 16)


def test_effects_happen_once_and_in_order(capfd) -> None:
    def f(x):
        jax.debug.print("first {}", x[0, 0])
        y = x @ W
        jax.debug.print("second {}", y[0, 0])
        return y + B

    jax.block_until_ready(jax.jit(jaxpipe.accelerate(f))(X))
    jax.effects_barrier()
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == ["first", "second"]


def test_convolutions_are_fused_too() -> None:
    x, w = jnp.ones((1, 5, 5, 3)), jnp.ones((3, 3, 3, 4))

    def f(x):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        return jax.nn.relu(y + B)

    report = jaxpipe.accelerate(f).report(x)
    ((row),) = report.sites
    assert (row.fused, row.site.implementation) == (("bias", "relu"), "host")
    assert_close(jaxpipe.accelerate(f)(x), f(x), 27)


# ------------------------------------------------------------------ the report
def test_the_report_says_who_runs_what_and_why_not() -> None:
    def f(x):
        with jax.named_scope("layer"):
            y = jax.nn.relu(x @ W + B)
        return y, x.astype(jnp.int32) @ jnp.ones((4, 4), jnp.int32)

    report = jaxpipe.accelerate(f).report(X)
    text = str(report)
    assert "1 of 2 products on jaxpipe" in text
    assert "layer: matmul 4x4x4 nn float32->float32 float32 bias+relu" in text
    assert "left to XLA: int32 operands" in text
    assert report.fraction == 0.5


def test_the_report_takes_shapes_and_computes_nothing() -> None:
    spec = jax.ShapeDtypeStruct((8, 4), jnp.bfloat16)
    report = jaxpipe.accelerate(lambda x: x @ W.astype(x.dtype)).report(spec)
    assert report.sites[0].site.problem.startswith("matmul 8x4x4 nn bfloat16->bfloat16")


def test_options_reach_the_products() -> None:
    with jaxpipe.options(implementation="xla"):
        report = jaxpipe.accelerate(lambda x: x @ W).report(X)
    assert report.sites[0].site.reason == "asked for"


def test_arguments_that_are_no_arrays_are_constants() -> None:
    def f(x, *, times, name=None, training=False):
        for _ in range(times):
            x = x @ W
        return x if training else {"y": x, "name": 3}

    assert_close(jaxpipe.accelerate(f)(X, times=2, training=True), X @ W @ W, 16)


# ------------------------------------------------------------------ models
def bert_case(dtype):
    bert = pytest.importorskip("benchmarks.models.bert")
    products = pytest.importorskip("benchmarks.models.products")
    config = bert.BertConfig(2, 64, 4, 128, vocabulary=100, positions=32)
    model = bert.Bert(config, products.XLA, dtype=dtype)
    params = bert.init(config, products.XLA)
    tokens = np.random.default_rng(0).integers(0, 100, (2, 16))
    return lambda p, t: bert.embed(model, p, t, np.ones((2, 16), np.int32)), params, tokens


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_plain_bert_is_taken_whole_with_its_epilogues(dtype: str) -> None:
    f, params, tokens = bert_case(dtype)
    report = jaxpipe.accelerate(f).report(params, tokens)
    assert report.fraction == 1.0
    assert Counter(row.fused for row in report.sites) == {
        ("bias",): 6, ("scale 0.25",): 2, (): 2, ("bias", "gelu_erf"): 2, ("bias", "residual"): 4,
    }  # fmt: skip
    got = jax.jit(jaxpipe.accelerate(f))(params, tokens)
    assert float((got * jax.jit(f)(params, tokens)).sum(-1).min()) > 0.999


def test_a_plain_gpt2_is_taken_whole_with_its_epilogues() -> None:
    gpt2 = pytest.importorskip("benchmarks.models.gpt2")
    products = pytest.importorskip("benchmarks.models.products")
    config = gpt2.Gpt2Config(layers=2, hidden=64, heads=4, vocabulary=100, positions=32)
    params, tokens = gpt2.init(config, products.XLA), jnp.arange(16)[None]
    f = lambda p, t: gpt2.forward(gpt2.Gpt2(config, products.XLA), p, t)  # noqa: E731
    report = jaxpipe.accelerate(f).report(params, tokens)
    assert report.fraction == 1.0
    steps = Counter(row.fused for row in report.sites)
    assert steps[("bias", "gelu_tanh")] == 2
    assert steps[("bias", "residual")] == 4
    assert_close(jax.jit(jaxpipe.accelerate(f))(params, tokens), f(params, tokens), 256, slack=8)


def test_a_plain_resnet_is_taken_whole_with_its_epilogues() -> None:
    resnet = pytest.importorskip("benchmarks.models.resnet")
    products = pytest.importorskip("benchmarks.models.products")
    config = resnet.ResnetConfig((1, 1), bottleneck=True, width=8, classes=10)
    images = jnp.ones((1, 32, 32, 3))
    model = resnet.Resnet(config, products.XLA)
    params = model.init(jax.random.key(0), images)
    report = jaxpipe.accelerate(model.apply).report(params, images)
    assert report.fraction == 1.0
    steps = Counter(row.fused for row in report.sites)
    assert steps[("bias", "relu")] == 1 + 2 * 2
    assert steps[("bias", "residual", "relu")] == 2  # nothing of a block is left to XLA
    assert_close(
        jax.jit(jaxpipe.accelerate(model.apply))(params, images),
        jax.jit(model.apply)(params, images), 256, slack=8,
    )  # fmt: skip
