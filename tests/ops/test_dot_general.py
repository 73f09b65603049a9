"""jaxpipe.dot_general is jax.lax.dot_general: values, dtypes, errors, transformations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpipe
from tests.ops import ways
from tests.tolerance import assert_close

PLAIN = (((1,), (0,)), ((), ()))


def plain(x, w):
    return jaxpipe.dot_general(x, w, PLAIN)


def random(shape, dtype=np.float32, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return jnp.asarray(values * 4, dtype)


@pytest.mark.parametrize("way", ways.WAYS)
def test_a_product_passes_through(way: str) -> None:
    assert_close(ways.through(way, plain), ways.lax_outcome(way), ways.SIZE, slack=8)


@pytest.mark.parametrize("way", ["grad", "vmap of both", "scan", "reverse over reverse"])
def test_a_bfloat16_product_passes_through(way: str) -> None:
    got, want = ways.through(way, plain, "bfloat16"), ways.lax_outcome(way, "bfloat16")
    assert_close(got, want, ways.SIZE, slack=4)


# (lhs shape, rhs shape, dimension numbers): batch and contracting dimensions in every place.
NUMBERS = {
    "leading batch": ((4, 5, 6), (4, 6, 7), (((2,), (1,)), ((0,), (0,)))),
    "batch last": ((6, 5, 4), (6, 7, 4), (((0,), (0,)), ((2,), (2,)))),
    "two batches crossed": ((2, 3, 5, 6), (3, 2, 6, 7), (((3,), (2,)), ((0, 1), (1, 0)))),
    "three batches": ((2, 3, 4, 5), (2, 3, 4, 5), (((3,), (3,)), ((0, 1, 2), (0, 1, 2)))),
    "two contractions crossed": ((2, 3, 5), (5, 2, 7), (((0, 2), (1, 0)), ((), ()))),
    "attention scores": ((2, 9, 3, 8), (2, 7, 3, 8), (((3,), (3,)), ((0, 2), (0, 2)))),
    "outer product": ((3, 4), (5, 2), (((), ()), ((), ()))),
    "inner product": ((6,), (6,), (((0,), (0,)), ((), ()))),
    "scalars": ((), (), (((), ()), ((), ()))),
    "all batch": ((3, 4), (3, 4), (((), ()), ((0, 1), (0, 1)))),
    "matrix and vector": ((5, 6), (6,), (((1,), (0,)), ((), ()))),
    "sizes of one": ((1, 5, 1, 6), (1, 6, 1), (((0, 3), (0, 1)), ((2,), (2,)))),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_dimension_numbers(name: str) -> None:
    lhs, rhs, numbers = NUMBERS[name]
    x, y = random(lhs), random(rhs, seed=1)
    assert_close(jaxpipe.dot_general(x, y, numbers), lax.dot_general(x, y, numbers), 30)


@pytest.mark.parametrize("name", NUMBERS)
def test_gradients_by_dimension_numbers(name: str) -> None:
    lhs, rhs, numbers = NUMBERS[name]
    x, y = random(lhs), random(rhs, seed=1)
    grads = [
        jax.grad(lambda x, y, f=f: jnp.sin(f(x, y, numbers)).sum(), (0, 1))(x, y)
        for f in (jaxpipe.dot_general, lax.dot_general)
    ]
    assert_close(*grads, 30, slack=30)


AXES = [(0, None), (None, 0), (1, -1), (-1, 1), (0, 1)]


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("name", ["leading batch", "two contractions crossed", "outer product"])
def test_vmap_by_dimension_numbers(name: str, axes) -> None:
    lhs, rhs, numbers = NUMBERS[name]
    x, y = random(lhs), random(rhs, seed=1)
    x = x if axes[0] is None else jnp.stack([x, 2 * x, -x], axes[0])
    y = y if axes[1] is None else jnp.stack([y, y + 1, -y], axes[1])
    outs = [
        jax.vmap(lambda x, y, f=f: f(x, y, numbers), axes, -1)(x, y)
        for f in (jaxpipe.dot_general, lax.dot_general)
    ]
    assert_close(*outs, 30)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap_stays_one_product(axes) -> None:
    x = random((3, 4, 5) if axes[0] == 0 else (4, 5))
    w = random((3, 5, 6) if axes[1] == 0 else (5, 6))
    text = str(jax.make_jaxpr(jax.vmap(plain, axes))(x, w))
    assert text.count("jaxpipe_dot[") == 1
    assert text.count("transpose") == (axes == (None, 0))  # vmap's own, of the result


def test_the_gradients_of_a_plain_product_move_no_data() -> None:
    loss = lambda x, w: plain(x, w).sum()  # noqa: E731
    text = str(jax.make_jaxpr(jax.grad(loss, (0, 1)))(random((4, 5)), random((5, 6))))
    assert "transpose" not in text


FLOATS = ("float32", "bfloat16", "float16")
PREFERRED = (None, "float32", "bfloat16", "float16")
DTYPES = list(itertools.product(FLOATS, FLOATS, PREFERRED))


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_float_dtypes_are_those_of_lax(dtypes) -> None:
    lhs, rhs, preferred = dtypes
    x, y = random((9, 33), lhs), random((33, 7), rhs, 1)
    got = jaxpipe.dot_general(x, y, PLAIN, preferred_element_type=preferred)
    want = lax.dot_general(x.astype("float32"), y.astype("float32"), PLAIN)
    dtype = lax.dot_general(x, y, PLAIN, preferred_element_type=preferred).dtype
    assert got.dtype == dtype
    assert_close(got, want.astype(dtype), 33)


@pytest.mark.parametrize("preferred", [None, "int8", "int32"])
def test_int8_sums_in_int32_and_wraps_like_lax(preferred) -> None:
    x = jnp.full((4, 64), 100, jnp.int8)
    y = jnp.full((64, 4), 99, jnp.int8)
    got = jaxpipe.dot_general(x, y, PLAIN, preferred_element_type=preferred)
    assert_close(got, lax.dot_general(x, y, PLAIN, preferred_element_type=preferred), 64)


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint8", "complex64", "bool"])
def test_other_dtypes_go_to_xla_with_a_reason(dtype: str) -> None:
    x = jnp.ones((3, 4), dtype)
    with jaxpipe.coverage() as ledger:
        got = jaxpipe.dot_general(x, x.T, PLAIN)
    assert_close(got, lax.dot_general(x, x.T, PLAIN), 4)
    assert ledger.taken == 0
    assert dtype in next(iter(ledger.left))


def test_the_gradient_of_a_widened_product_has_the_primal_dtypes() -> None:
    x, y = random((4, 5), "bfloat16"), random((5, 6), "bfloat16", 1)
    wide = lambda x, y: jaxpipe.dot_general(x, y, PLAIN, preferred_element_type="float32").sum()  # noqa: E731
    dx, dy = jax.grad(wide, (0, 1))(x, y)
    assert (dx.dtype, dy.dtype) == (jnp.bfloat16, jnp.bfloat16)


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 4), (4, 0)), ((0, 0), (0, 0))],
)
def test_empty_products_and_their_gradients(lhs, rhs) -> None:
    x, w = jnp.ones(lhs), jnp.ones(rhs)
    outs = [
        jax.value_and_grad(lambda x, w, f=f: f(x, w, PLAIN).sum(), (0, 1))(x, w)
        for f in (jaxpipe.dot_general, lax.dot_general)
    ]
    assert_close(*outs, 4)


def test_vmap_over_nothing() -> None:
    got = jax.vmap(plain, (0, None))(jnp.ones((0, 4, 5)), jnp.ones((5, 2)))
    assert got.shape == (0, 4, 2)


def test_nan_and_infinity_pass_as_in_lax() -> None:
    x = random((8, 8)).at[2, 3].set(jnp.nan).at[4, 1].set(jnp.inf)
    assert_close(plain(x, random((8, 8))), lax.dot_general(x, random((8, 8)), PLAIN), 8)


@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [
        (((3, 4), (5, 6)), PLAIN),
        (((3, 4), (4, 6)), (((7,), (0,)), ((), ()))),
        (((3, 4), (4, 6)), (((1,), (0,)), ((0,), ()))),
        (((3, 3), (3, 3)), (((0,), (0,)), ((0,), (1,)))),
        (((3, 4), (4, 6)), (((-1,), (0,)), ((), ()))),
    ],
)
def test_errors_are_those_of_lax(shapes, numbers) -> None:
    x, y = (jnp.ones(s) for s in shapes)
    with pytest.raises((TypeError, ValueError, IndexError)) as theirs:
        lax.dot_general(x, y, numbers)
    with pytest.raises(theirs.type) as ours:
        jaxpipe.dot_general(x, y, numbers)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    "precision",
    ["highest", "float32", "high", "default", lax.Precision.HIGHEST, ("high", "highest"),
     lax.DotAlgorithmPreset.F32_F32_F32],
    ids=str,
)  # fmt: skip
def test_precision_is_read_as_lax_reads_it(precision) -> None:
    x = jnp.asarray([[1.1111111, 2.2222222], [3.3333333, 4.4444444]])
    got = jaxpipe.dot_general(x, x.T, PLAIN, precision)
    assert_close(got, lax.dot_general(x, x.T, PLAIN, precision), 2)


def test_default_matmul_precision_is_honoured() -> None:
    with jax.default_matmul_precision("highest"):
        text = str(jax.make_jaxpr(plain)(jnp.ones((2, 2)), jnp.ones((2, 2))))
    assert "HIGHEST" in text


def test_x64_products_go_to_xla() -> None:
    with jax.enable_x64(True):
        x = random((5, 6), "float64")
        with jaxpipe.coverage() as ledger:
            assert_close(plain(x, x.T), lax.dot_general(x, x.T, PLAIN), 6)
    assert ledger.taken == 0


def test_x64_mode_leaves_float32_products_to_kernels() -> None:
    with jax.enable_x64(True), jaxpipe.coverage() as ledger:
        grad = jax.grad(lambda x: plain(x, x).sum())(random((5, 5)))
    assert grad.dtype == jnp.float32
    assert ledger.left == {}
