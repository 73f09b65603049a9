"""What users of such software ran into, by its very trigger: one test a public report.

Reports 46 to 49 (sharding, scan inside shard_map, the persistent cache) are tests of
test_sharding.py and test_persistent_cache.py, 21 and 22 (64-bit offsets) of
tests/codegen/test_ampere.py, 56 (vmap) of test_dot_general.py, 58 (keywords of
Flax) of tests/test_flax.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpipe
from jaxpipe.errors import UnsupportedError
from tests.tolerance import assert_close

PLAIN = (((1,), (0,)), ((), ()))
SCALARS = (((), ()), ((), ()))
RANDOM = np.random.default_rng(0)
ON = {
    "host": {"implementation": "host"},
    "sm_80": {"implementation": "interpret", "target": "a100"},
    "sm_90a": {"implementation": "interpret", "target": "h200"},
}


@pytest.fixture(params=ON)
def executor(request):
    """Every call of the test runs there or raises."""
    with jaxpipe.options(**ON[request.param]):
        yield request.param


def normal(shape, dtype):
    return jnp.asarray(RANDOM.standard_normal(shape), dtype)


def exact(x, y):
    return np.asarray(x, np.float64) @ np.asarray(y, np.float64)


# ------------------------------------------------------------------ dtypes and precision
def test_1_the_backward_of_a_wider_result(executor) -> None:
    """jax#10818: cotangent float32, primals of 16 bits."""
    f = lambda x: jaxpipe.dot_general(x, x, SCALARS, preferred_element_type=jnp.float32)  # noqa: E731
    grad = jax.jacrev(f)(jnp.float16(1.5))
    assert (grad.dtype, float(grad)) == (jnp.float16, 3.0)
    q, k = normal((2, 5, 16), jnp.bfloat16), normal((2, 7, 16), jnp.bfloat16)

    def scores(module, q, k):
        out = module.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32)
        return jnp.sin(out).sum()

    got, want = (jax.grad(lambda *a, m=m: scores(m, *a), (0, 1))(q, k) for m in (jaxpipe, jnp))
    assert [g.dtype for g in got] == [jnp.bfloat16] * 2
    assert_close(got, want, 16, slack=4)


def test_2_and_4_float64_is_never_narrowed() -> None:
    """jax#11678, marin#8217: a float64 result of float32 operands, float64 operands."""
    with jax.enable_x64(True):
        a = normal((2, 2), jnp.float32)
        wide = jaxpipe.dot_general(a, a.T, PLAIN, preferred_element_type=jnp.float64)
        np.testing.assert_array_equal(wide, exact(a, a.T))
        x, y = normal((8, 16), jnp.float64), normal((16, 4), jnp.float64)
        out = jaxpipe.dot(x, y, bias=jnp.ones(4))
        assert out.dtype == jnp.float64
        np.testing.assert_allclose(out, exact(x, y) + 1, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("k", [128, 512])
def test_3_sixteen_bits_are_summed_in_float32_and_rounded_once(executor, k) -> None:
    """jax#39878: sums that a 16-bit accumulator would lose, in batched attention scores."""
    q, r = normal((24, 2, k), jnp.bfloat16), normal((20, 2, k), jnp.bfloat16)
    got = jaxpipe.einsum("thd,rhd->thr", q, r)
    want = np.einsum("thd,rhd->thr", *(np.asarray(a, np.float64) for a in (q, r)))
    assert got.dtype == jnp.bfloat16
    assert_close(got, jnp.asarray(want, jnp.float32).astype(jnp.bfloat16), k)
    ones = jnp.ones((8, 4096), jnp.float16)  # 2048 + 1 is 2048 in float16
    np.testing.assert_array_equal(jaxpipe.dot(ones, ones.T), np.full((8, 8), 4096))


def test_5_int8_wraps_as_in_lax_unless_int32_is_asked_for(executor) -> None:
    """jax#4465: 100 * 100."""
    x = jnp.full((1, 1), 100, jnp.int8)
    assert int(jaxpipe.dot_general(x, x, PLAIN)[0, 0]) == 16
    wide = jaxpipe.dot_general(x, x, PLAIN, preferred_element_type=jnp.int32)
    assert int(wide[0, 0]) == 10000


def test_6_mixed_operands_promote_as_in_jnp_and_round_once(executor) -> None:
    """jax#17214: bfloat16[1, 2] @ int8[2, 1]."""
    x = jnp.array([[1.6328125, 0.00064850]], jnp.bfloat16)
    w = jnp.array([[-127], [4]], jnp.int8)
    got = jaxpipe.dot(x, w)
    assert got.dtype == jnp.matmul(x, w).dtype == jnp.bfloat16
    np.testing.assert_array_equal(got, jnp.asarray(exact(x, w), jnp.float32).astype(jnp.bfloat16))


@pytest.mark.parametrize("name", ["default", "high", "highest"])
def test_7_precision_is_honoured_or_refused(executor, name) -> None:
    """jax#19444: float32 silently in TF32. HIGHEST is float32 or goes elsewhere."""
    a = jnp.array([[1.1111111, 2.2222222], [3.3333333, 4.4444444]])
    run = lambda: jaxpipe.dot(a, a.T, precision=name)  # noqa: E731
    if executor != "host" and name == "highest":
        with pytest.raises(UnsupportedError, match="TF32"):
            run()
        with jaxpipe.options(implementation="xla"):
            np.testing.assert_allclose(run(), exact(a, a.T), rtol=1e-6)
        return
    bound = 1e-6 if executor == "host" else 2.0**-10
    np.testing.assert_allclose(run(), exact(a, a.T), rtol=bound)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_9_results_stay_within_the_published_bound(dtype) -> None:
    """jax#18123: 512 x 512 of normal numbers, judged by dtype and length of the sums."""
    x, y = normal((512, 512), dtype), normal((512, 512), dtype)
    assert_close(jaxpipe.dot(x, y), jnp.asarray(exact(x, y), jnp.float32).astype(dtype), 512)


# ------------------------------------------------------------------ shapes, tails, layouts
def test_15_nothing_to_sum_and_nothing_to_write() -> None:
    """pytorch#31421, cupy#1231: K = 0 left garbage or dropped beta; M or N = 0 crashed."""
    batched = (((2,), (1,)), ((0,), (0,)))
    out = jaxpipe.dot_general(jnp.ones((10, 1, 0)), jnp.ones((10, 0, 43200)), batched)
    assert out.shape == (10, 1, 43200)
    assert not out.any()
    c = normal((3, 3), jnp.float32)
    f = lambda a, b, c: jaxpipe.dot(a, b, residual=c, bias=jnp.ones(3), activation="relu")  # noqa: E731
    empty = jnp.ones((3, 0)), jnp.ones((0, 3)), c
    np.testing.assert_array_equal(f(*empty), c + 1)
    grads = jax.grad(lambda *a: f(*a).sum(), (0, 1, 2))(*empty)
    assert [g.shape for g in grads] == [(3, 0), (0, 3), (3, 3)]
    assert jaxpipe.dot(jnp.ones((0, 3)), jnp.ones((3, 4))).shape == (0, 4)
    dw = jax.grad(lambda w: jaxpipe.dot(jnp.ones((0, 3)), w).sum())(jnp.ones((3, 4)))
    np.testing.assert_array_equal(dw, jnp.zeros((3, 4)))


@pytest.mark.parametrize("shape", [(1000, 1001, 999), (511, 511, 511)])
def test_17_sizes_that_no_tile_divides(shape) -> None:
    """triton#630, #5990: float16, every tail of K masked."""
    m, k, n = shape
    x, y = normal((m, k), "float16"), normal((k, n), "float16")
    want = jnp.asarray(exact(x, y), jnp.float32).astype("float16")
    assert_close(jaxpipe.dot(x, y, implementation="host"), want, k)


@pytest.mark.parametrize("shape", [(3, 5, 7), (65, 67, 33), (17, 130, 129)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_17_18_and_25_tails_and_rows_that_start_unaligned(executor, shape, dtype) -> None:
    """gpu-mode/lectures#51, jax-triton's 16-byte pointers: odd leading dimensions, small sizes."""
    m, k, n = shape
    x, y = normal((m, k), dtype), normal((k, n), dtype)
    want = jnp.asarray(exact(x, y), jnp.float32).astype(dtype)
    slack = 1.0 if dtype == "float16" or executor == "host" else 2000.0  # TF32
    assert_close(jaxpipe.dot(x, y), want, k, slack)
    assert_close(jaxpipe.dot(y.T, x.T), want.T, k, slack)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_erf", "silu", "tanh"])
def test_20_nan_goes_through_an_activation(executor, activation) -> None:
    """NNlib#509, onnxruntime#11010: max(x, 0) loses NaN on GPUs."""
    x = normal((20, 16), jnp.float16).at[3, 5].set(jnp.nan)
    y = jaxpipe.dot(x, normal((16, 24), jnp.float16), activation=activation)
    np.testing.assert_array_equal(jnp.isnan(y).all(1), np.arange(20) == 3)
    np.testing.assert_array_equal(jnp.isnan(y).any(1), np.arange(20) == 3)


def test_26_a_slice_at_an_odd_dynamic_offset(executor) -> None:
    """jax#34102: the copy took the wrong elements."""
    whole, y = normal((50, 70), jnp.float16), normal((33, 24), jnp.float16)

    @jax.jit
    def f(whole, y, i, j):
        return jaxpipe.dot(lax.dynamic_slice(whole, (i, j), (17, 33)), y)

    for i, j in [(0, 0), (3, 5), (33, 37)]:
        want = exact(whole[i : i + 17, j : j + 33], y)
        assert_close(f(whole, y, i, j), jnp.asarray(want, jnp.float32).astype("float16"), 33)
