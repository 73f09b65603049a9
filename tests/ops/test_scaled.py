"""Quantised operands with scales as arguments: values, shapes, who runs them, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpipe
from jaxpipe.errors import ProblemError
from tests.tolerance import assert_close

M, K, N = 24, 64, 40
FP8 = ("float8_e4m3fn", "float8_e5m2")
PAIRS = [(a, b) for a in FP8 for b in FP8] + [("int8", "int8")]
RANDOM = np.random.default_rng(0)
X = jnp.asarray(RANDOM.standard_normal((M, K)), jnp.float32)
W = jnp.asarray(RANDOM.standard_normal((K, N)) * 0.1, jnp.float32)
BIAS = jnp.asarray(RANDOM.standard_normal(N), jnp.float32)
ROWS = jnp.max(jnp.abs(X), 1, keepdims=True)
COLUMNS = jnp.max(jnp.abs(W), 0, keepdims=True)
SCALES = {
    "numbers": (0.02, jnp.float32(0.01)),
    "rows and columns": (ROWS / 100, COLUMNS / 100),
    "lhs only": (0.03, None),
    "rhs only": (None, COLUMNS / 50),
}


def operands(lhs: str, rhs: str, scales) -> tuple[jax.Array, jax.Array]:
    a, b = (1.0 if s is None else s for s in scales)
    return jaxpipe.quantize(X, a, lhs), jaxpipe.quantize(W, b, rhs)


def dequantized(x, scale):
    return np.asarray(x, np.float64) * (1.0 if scale is None else np.asarray(scale, np.float64))


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize(("lhs", "rhs"), PAIRS, ids=str)
def test_a_scaled_product_is_the_product_of_the_dequantised(lhs, rhs, scales) -> None:
    x, w = operands(lhs, rhs, scales)
    with jaxpipe.coverage() as ledger:
        y = jax.jit(
            lambda x, w: jaxpipe.dot(
                x, w, lhs_scale=scales[0], rhs_scale=scales[1], preferred_element_type="float32"
            )
        )(x, w)
    want = dequantized(x, scales[0]) @ dequantized(w, scales[1])
    assert_close(y, jnp.asarray(want, jnp.float32), K, slack=4)
    assert ledger.left == {}


@pytest.mark.parametrize("executor", ["host", "interpret"])
def test_the_epilogue_follows_the_scales(executor) -> None:
    scales = SCALES["rows and columns"]
    x, w = operands("float8_e4m3fn", "float8_e4m3fn", scales)
    residual = jnp.ones((M, N), jnp.bfloat16)
    with jaxpipe.options(target="l4"):
        y = jaxpipe.dot(
            x, w, lhs_scale=scales[0], rhs_scale=scales[1], bias=BIAS, activation="gelu",
            residual=residual, implementation=executor,
        )  # fmt: skip
    z = jnp.asarray(dequantized(x, scales[0]) @ dequantized(w, scales[1]), jnp.float32) + BIAS
    assert y.dtype == jnp.bfloat16
    assert_close(y, (jax.nn.gelu(z) + 1).astype(jnp.bfloat16), K, slack=2)


@pytest.mark.skipif(not hasattr(lax, "scaled_dot"), reason="this JAX has no lax.scaled_dot")
def test_scales_mean_what_lax_scaled_dot_means_by_them() -> None:
    scales = [jnp.full((M, 1), 0.25, "float8_e8m0fnu"), jnp.full((1, N), 2.0, "float8_e8m0fnu")]
    x, w = operands("float8_e4m3fn", "float8_e4m3fn", (0.25, 2.0))
    want = lax.scaled_dot(
        x, w, lhs_scale=scales[0], rhs_scale=scales[1], preferred_element_type=jnp.float32
    )
    got = jaxpipe.dot(
        x, w, lhs_scale=scales[0], rhs_scale=scales[1], preferred_element_type=jnp.float32
    )
    assert_close(got, want, K, slack=2**16)  # lax rounds the scaled operands to bfloat16


@pytest.mark.parametrize(
    ("target", "kernel"),
    [("h200", "float8_e4m3fn->float32"), ("l4", "float8_e4m3fn->float32"),
     ("a100", "bfloat16->float32")],
)  # fmt: skip
def test_gpus_multiply_8_bit_floats_where_they_can(target, kernel) -> None:
    """Lowered for cuda, nothing is run: a GPU without them gets the exact bfloat16 values."""
    x, w = operands("float8_e4m3fn", "float8_e4m3fn", (0.02, 0.01))
    f = jax.jit(lambda x, w: jaxpipe.dot(x, w, lhs_scale=0.02, rhs_scale=0.01, bias=BIAS))
    with jaxpipe.options(target=target), jaxpipe.coverage() as ledger:
        f.trace(x, w).lower(lowering_platforms=("cuda",))
    ((site, _),) = ledger.rows()
    assert (site.implementation, kernel in site.problem) == ("cuda", True)


def test_leading_and_trailing_dimensions_take_scales() -> None:
    x = jnp.asarray(RANDOM.integers(-100, 100, (2, 3, K)), jnp.int8)
    w = jnp.asarray(RANDOM.integers(-100, 100, (4, K, 5)), jnp.int8)
    a, b = jnp.full((2, 3, 1), 0.5) + X[0, 0], jnp.full((4, 1, 5), 0.25) + X[1, 1]
    got = jaxpipe.dot(x, w, lhs_scale=a, rhs_scale=b, preferred_element_type="float32")
    want = np.einsum("abk,ckn->abcn", dequantized(x, a), dequantized(w, b))
    assert_close(got, jnp.asarray(want, jnp.float32), K, slack=4)


@pytest.mark.parametrize(
    ("scales", "match"),
    [(((M,), None), r"lhs_scale of shape \(24,\).*takes one number, or \(24, 1\)"),
     (((M, 4), None), r"jax.lax.scaled_dot"), ((None, (K, N)), r"rhs_scale.*or \(1, 40\)")],
)  # fmt: skip
def test_other_scales_are_refused(scales, match) -> None:
    x, w = operands("int8", "int8", (1, 1))
    given = [None if s is None else jnp.ones(s) for s in scales]
    with pytest.raises(ProblemError, match=match):
        jaxpipe.dot(x, w, lhs_scale=given[0], rhs_scale=given[1])


@pytest.mark.parametrize("dtype", [*FP8, "int8"])
def test_quantising_saturates_and_keeps_nan_of_floats(dtype) -> None:
    limits = (jnp.iinfo if dtype == "int8" else jnp.finfo)(dtype)
    q = jaxpipe.quantize(jnp.array([1e9, -1e9, 0.5, 1.5, 0.0]), 0.5, dtype)
    assert q.tolist() == [limits.max, limits.min, 1, 3, 0]
    if dtype != "int8":
        assert np.isnan(jaxpipe.quantize(jnp.array(np.nan), 1.0, dtype))


# ------------------------------------------------------------------ training through it
def trained(x, w, bias=BIAS, activation="silu"):
    return jaxpipe.quantized_dot(
        x, w, lhs_scale=0.02, rhs_scale=COLUMNS / 100, bias=bias, activation=activation
    )


def straight_through(x, w, bias=BIAS):
    """The same with quantising as the identity to derivatives, in lax alone."""

    def rounded(x, scale):
        q = jaxpipe.quantize(x, scale).astype(jnp.float32) * scale
        return x + lax.stop_gradient(q - x)

    return jax.nn.silu(rounded(x, 0.02) @ rounded(w, COLUMNS / 100) + bias)


TRANSFORMS = {
    "value": lambda f: f(X, W, BIAS),
    "grad": lambda f: jax.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1, 2))(X, W, BIAS),
    "grad of w alone": lambda f: jax.jit(jax.grad(lambda w: (f(X, w) ** 2).sum()))(W),
    "jvp": lambda f: jax.jvp(lambda x: f(x, W), (X,), (jnp.ones_like(X),)),
    "vmap": lambda f: jax.vmap(lambda x: f(x, W))(jnp.stack([X, 2 * X])),
    "vmap of grad": lambda f: jax.vmap(jax.grad(lambda w: f(X, w).sum()))(jnp.stack([W, -W])),
    "second order": lambda f: jax.grad(
        lambda x: jnp.sum(jax.grad(lambda x: (f(x, W) ** 2).sum())(x) ** 2)
    )(X),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_quantised_products_differentiate_straight_through(transform) -> None:
    assert_close(transform(trained), transform(straight_through), 1000, slack=16)


def test_only_the_needed_gradient_products_are_made() -> None:
    with jaxpipe.coverage() as ledger:
        jax.jit(jax.grad(lambda w: trained(X, w).sum())).lower(W)
    products = [site.problem.split(" ")[1] for site, n in ledger.rows() for _ in range(n)]
    assert sorted(products) == sorted([f"{M}x{N}x{K}", f"{K}x{N}x{M}"])
    assert ledger.left == {}
