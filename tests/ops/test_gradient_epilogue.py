"""The step back through an activation as the epilogue of a gradient's product.

`y = (lhs @ rhs) * activation'(z)` in one kernel: values on every executor, derivatives, sharding,
and where `accelerate` puts it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpipe
from jaxpipe.epilogue import ACTIVATIONS, Epilogue
from jaxpipe.errors import ProblemError
from jaxpipe.ops import epilogue, fused
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.options import Options
from jaxpipe.problem import Layout, Matmul
from jaxpipe.runtime.measure import measure
from jaxpipe.runtime.timing import QUICK_PLAN
from jaxpipe.schedule import HostSchedule
from tests.tolerance import assert_close

NT = (((1,), (1,)), ((), ()))
M, K, N = 40, 48, 72
RANDOM = np.random.default_rng(0)
ON = {
    "host": Options("host"),
    "sm_80": Options("interpret", "a100"),
    "sm_90a": Options("interpret", "h200"),
}


def normal(shape, dtype="float32"):
    return jnp.asarray(RANDOM.standard_normal(shape), dtype)


def gated(g, w, z, activation, options=None):
    fusion = Fusion(residual=True, derivative=activation)
    return fused.product(DotSpec(NT, options=options or Options()), fusion, g, w, z)[0]


def in_lax(g, w, z, activation):
    wide = jax.lax.dot_general(g, w, NT, preferred_element_type=jnp.float32)
    (t,) = jax.vjp(epilogue.ACTIVATIONS[activation], z.astype(jnp.float32))[1](wide)
    return t.astype(g.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
@pytest.mark.parametrize("on", ON)
def test_values(on, activation, dtype) -> None:
    g, w, z = normal((M, K), dtype), normal((N, K), dtype), 2 * normal((M, N), dtype)
    got = gated(g, w, z, activation, ON[on])
    slack = 2000.0 if dtype == "float32" and on != "host" else 8.0  # TF32
    assert_close(got, in_lax(g, w, z, activation), K, slack)


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
@pytest.mark.parametrize("on", ON)
def test_slopes_far_out_and_at_nan(on, activation) -> None:
    """One product of 1, so that the slope itself is seen; XLA's own is NaN beyond 1e19."""
    z = jnp.array([-1e4, -90.0, -12.0, -6.0, -1.0, -1e-3, -1e-20, 0.0, 1e-20, 1e-3, 1.0, 6.0, 12.0,
                   90.0, 1e4, jnp.nan])[None]  # fmt: skip
    one = jnp.ones((1, 4)) / 4
    got = gated(one, jnp.ones((z.shape[1], 4)), z, activation, ON[on])[0]
    want = jax.vmap(jax.grad(epilogue.ACTIVATIONS[activation]))(z[0])
    if activation == "relu":
        want = jnp.where(jnp.isnan(z[0]), 0.0, want)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)


def test_fast_slopes_stay_near_float64() -> None:
    z = jnp.linspace(-9, 9, 4001)[None]
    one = jnp.ones((1, 1))
    for activation in ACTIVATIONS[1:]:
        got = gated(one, jnp.ones((z.shape[1], 1)), z, activation, ON["host"])[0]
        with jax.enable_x64(True):
            slope = jax.vmap(jax.grad(epilogue.ACTIVATIONS[activation]))
            want = slope(jnp.asarray(z[0], jnp.float64))
        np.testing.assert_allclose(got, want, rtol=0, atol=5e-7, err_msg=activation)


@pytest.mark.parametrize("order", ["jvp", "grad", "vmap", "vmap of z"])
def test_it_differentiates_and_batches(order) -> None:
    g, w, z = normal((M, K)), normal((N, K)), normal((M, N))
    ways = {
        "jvp": lambda f: jax.jvp(f, (g, w, z), (w[:M], g[: M // 2].repeat(2, 0)[:1] + w, z * 0.5)),
        "grad": lambda f: jax.grad(lambda *a: jnp.sin(f(*a)).sum(), (0, 1, 2))(g, w, z),
        "vmap": lambda f: jax.vmap(f, (0, None, 0))(jnp.stack([g, -g]), w, jnp.stack([z, z * 2])),
        "vmap of z": lambda f: jax.vmap(f, (None, None, 1), 1)(g, w, jnp.stack([z, z * 2], 1)),
    }
    got, want = (ways[order](lambda *a, f=f: f(*a, "gelu_tanh")) for f in (gated, in_lax))
    assert_close(got, want, 100, slack=16)


def test_a_split_sum_is_complete_before_it_is_multiplied() -> None:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    g, w, z = normal((M, K)), normal((N, K)), normal((M, N))
    placed = jax.device_put((g, w), NamedSharding(mesh, P(None, "x")))
    got = jax.jit(lambda g, w, z: gated(g, w, z, "silu"))(*placed, z)
    assert_close(got, in_lax(g, w, z, "silu"), K, slack=16)


# ------------------------------------------------------------------ where it comes from
def mlp(params, x, activation="gelu_erf"):
    (w1, b1), (w2, b2) = params
    return jaxpipe.dot(jaxpipe.dot(x, w1, bias=b1, activation=activation), w2, bias=b2)


PARAMS = [(normal((K, N)), normal((N,))), (normal((N, K)), normal((K,)))]


def loss(params, x):
    return (mlp(params, x) ** 2).sum()


def derivative_steps(fun, *args) -> int:
    return str(jax.make_jaxpr(fun)(*args)).count("jaxpipe_derivative")


def test_accelerate_fuses_it_into_the_gradient_of_a_layer() -> None:
    x, step = normal((M, K)), jax.value_and_grad(loss)
    fast = jaxpipe.accelerate(step)
    assert_close(jax.jit(fast)(PARAMS, x), jax.jit(step)(PARAMS, x), 1000, slack=16)
    assert derivative_steps(step, PARAMS, x) == 1
    assert derivative_steps(fast, PARAMS, x) == 0
    assert "derivative of gelu_erf" in str(fast.report(PARAMS, x))
    with jaxpipe.options(target="h200"), jaxpipe.coverage() as ledger:
        jax.jit(fast).trace(PARAMS, x).lower(lowering_platforms=("cuda",))
    assert ledger.left == {}
    assert any("derivative_gelu_erf" in site.problem for site, _ in ledger.rows())


def test_accelerate_inside_and_outside_of_a_gradient() -> None:
    """A model that knows nothing of jaxpipe: its activation is found, then its derivative."""

    def plain(params, x):
        (w1, b1), (w2, b2) = params
        return ((jax.nn.gelu(x @ w1 + b1) @ w2 + b2) ** 2).sum()

    x, want = normal((M, K)), jax.grad(plain)
    fast = jaxpipe.accelerate(jax.grad(jaxpipe.accelerate(plain)))
    assert_close(jax.jit(fast)(PARAMS, x), jax.jit(want)(PARAMS, x), 1000, slack=16)
    assert "derivative of gelu_tanh" in str(fast.report(PARAMS, x))


def test_a_cotangent_with_another_use_is_not_fused() -> None:
    def both(g, w, z):
        t = jaxpipe.dot_general(g, w, NT)
        return epilogue.derivative(z, t, "silu"), t

    args = normal((M, K)), normal((N, K)), normal((M, N))
    fast = jaxpipe.accelerate(both)
    assert derivative_steps(fast, *args) == 1
    assert_close(fast(*args), both(*args), K, slack=4)


@pytest.mark.parametrize(
    "words",
    [dict(derivative="relu"), dict(derivative="relu", residual=True, activation="silu"),
     dict(derivative="sine", residual=True)],
    ids=str,
)  # fmt: skip
def test_epilogues_that_make_no_sense_are_refused(words) -> None:
    with pytest.raises(ProblemError, match="derivative"):
        Epilogue(**words)


def test_its_key_names_it() -> None:
    problem = Matmul(8, 8, 8, epilogue=Epilogue(residual=True, derivative="silu"))
    assert problem.key.endswith("derivative_silu")


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_tuner_can_judge_it(activation, dtype) -> None:
    gate = Epilogue(residual=True, derivative=activation)
    problem = Matmul(256, 512, 64, dtype=dtype, rhs=Layout(True), epilogue=gate)
    (measured,) = measure(problem, [HostSchedule()], plan=QUICK_PLAN, baseline=False)
    assert measured.status == "ok", measured.reason
