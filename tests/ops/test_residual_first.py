"""The residual before the activation: `y = activation(x @ w + bias + residual)` in one kernel.

Values on every executor, transformations, sharding, and every public way to ask for it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpipe
from jaxpipe.epilogue import Epilogue
from jaxpipe.ops import fused
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import ACTIVATIONS, Fusion
from jaxpipe.ops.options import Options
from jaxpipe.problem import Matmul
from jaxpipe.runtime.measure import measure
from jaxpipe.runtime.timing import QUICK_PLAN
from jaxpipe.schedule import HostSchedule
from tests.ops import ways
from tests.tolerance import assert_close

SIZE = ways.SIZE
ON = {
    "host": Options("host"),
    "sm_80": Options("interpret", "a100"),
    "sm_90a": Options("interpret", "h200"),
}
NAMES = list(ACTIVATIONS)[1:]


def random(shape, dtype="float32", seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


BIAS, RESIDUAL = random((SIZE,), seed=7), random((SIZE, SIZE), seed=8)


def first(x, w, bias=BIAS, residual=RESIDUAL, activation="gelu_tanh", **words):
    return jaxpipe.dot(
        x, w, bias=bias, activation=activation, residual=residual, residual_first=True, **words
    )


def in_jax(x, w, bias=BIAS, residual=RESIDUAL, activation="gelu_tanh"):
    wide = [a.astype(jnp.promote_types(a.dtype, jnp.float32)) for a in (x, w, bias, residual)]
    y = ACTIVATIONS[activation or "none"](wide[0] @ wide[1] + wide[2] + wide[3])
    return y.astype(x.dtype)


# ------------------------------------------------------------------ values
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.parametrize("on", ON)
def test_values_and_the_preactivation(on, activation: str, dtype: str) -> None:
    x, w = random((40, 48), dtype), random((48, 72), dtype, 1)
    bias, residual = random((72,), dtype, 2), 8 * random((40, 72), dtype, 3)
    fusion = Fusion(1.0, True, activation, True, save=True, residual_first=True)
    spec = DotSpec((((1,), (0,)), ((), ())), options=ON[on])
    got = fused.product(spec, fusion, x, w, bias, residual)
    want = [in_jax(x, w, bias, residual, name) for name in (activation, "none")]
    slack = 2000.0 if dtype == "float32" and on != "host" else 8.0  # TF32
    assert_close(got, want, 48, slack)


@pytest.mark.parametrize("implementation", ["host", "xla"])
@pytest.mark.parametrize("activation", [None, "tanh"])
def test_without_an_activation_or_a_residual_it_says_nothing(activation, implementation) -> None:
    x, w, _ = ways.operands()
    words = dict(
        bias=BIAS, activation=activation, residual=None if activation else RESIDUAL,
        implementation=implementation,
    )  # fmt: skip
    np.testing.assert_array_equal(first(x, w, **words), jaxpipe.dot(x, w, **words))
    epilogue = Epilogue(residual=not activation, activation=activation or "none")
    words = dict(residual=epilogue.residual, activation=epilogue.activation)
    assert Epilogue(**words, residual_first=True) == epilogue


# ------------------------------------------------------------------ transformations
@pytest.mark.parametrize("way", ways.WAYS)
def test_it_passes_through(way: str) -> None:
    got, want = (ways.through(way, f) for f in (first, in_jax))
    assert_close(got, want, SIZE, slack=40)


VALUES = dict(x=random((6, 8)), w=random((8, 5), seed=1), bias=random((5,), seed=2),
              residual=random((6, 5), seed=3))  # fmt: skip


@pytest.mark.parametrize("operand", VALUES)
@pytest.mark.parametrize("activation", [None, "silu", "relu"])
def test_each_operand_has_its_gradient(operand: str, activation) -> None:
    def loss(value, f):
        return jnp.sin(f(**{**VALUES, operand: value}, activation=activation)).sum()

    grads = [jax.grad(loss)(VALUES[operand], f) for f in (first, in_jax)]
    assert_close(*grads, 8, slack=10)


@pytest.mark.parametrize("operand", VALUES)
def test_the_saved_preactivation_has_its_tangent(operand: str) -> None:
    fusion = Fusion(0.5, True, "tanh", True, save=True, residual_first=True)

    def ours(value):
        return fused.product(
            DotSpec((((1,), (0,)), ((), ()))), fusion, *{**VALUES, operand: value}.values()
        )

    def theirs(value):
        v = {**VALUES, operand: value}
        z = 0.5 * (v["x"] @ v["w"]) + v["bias"] + v["residual"]
        return [jnp.tanh(z), z]

    tangent = jnp.cos(VALUES[operand])
    got, want = (jax.jvp(f, (VALUES[operand],), (tangent,)) for f in (ours, theirs))
    assert_close(got, want, 8, slack=4)


@pytest.mark.parametrize("mapped", ["x", "w", "bias", "residual", "w bias", "x w residual"])
def test_vmap(mapped: str) -> None:
    stacked = {n: jnp.stack([VALUES[n], -VALUES[n]], -1) for n in mapped.split()}
    call = lambda f, stacked: f(**{**VALUES, **stacked})  # noqa: E731
    outs = [jax.vmap(functools.partial(call, f), -1, 1)(stacked) for f in (first, in_jax)]
    assert_close(*outs, 8, slack=2)


def test_reverse_mode_saves_the_operands_and_the_preactivation_only() -> None:
    x, w, _ = ways.operands()
    _, pull = jax.vjp(first, x, w)
    assert sorted(leaf.shape for leaf in jax.tree.leaves(pull)) == [(SIZE, SIZE)] * 3


def test_a_split_sum_is_complete_before_the_residual() -> None:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    x, w, _ = ways.operands()
    split = [jax.device_put(a, NamedSharding(mesh, P(*p))) for a, p in ((x, (None, "x")), (w, "x"))]
    assert_close(jax.jit(first)(*split), in_jax(x, w), SIZE, slack=4)


# ------------------------------------------------------------------ public ways
def test_packed_weights_give_the_same_bits() -> None:
    x, w, _ = ways.operands()
    packed, dense = first(x, jaxpipe.prepack(w)), first(x, w, implementation="host")
    np.testing.assert_array_equal(packed, dense)


@pytest.mark.parametrize("implementation", ["host", "xla"])
def test_a_block_of_a_residual_network(implementation: str) -> None:
    x, w, bias = random((2, 9, 8, 16)), random((3, 3, 16, 16), seed=1) / 12, random((16,), seed=2)

    def ours(x, w, bias):
        return jaxpipe.conv(
            x, w, bias=bias, activation="relu", residual=x, residual_first=True,
            implementation=implementation,
        )  # fmt: skip

    def theirs(x, w, bias):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        return jax.nn.relu(y + bias + x)

    outs = [
        jax.value_and_grad(lambda *a, f=f: jnp.sin(f(*a)).sum(), (0, 1, 2))(x, w, bias)
        for f in (ours, theirs)
    ]
    assert_close(*outs, 300, slack=8)


@pytest.mark.parametrize("dot", [jaxpipe.dot, jaxpipe.quantized_dot])
def test_quantised_operands(dot) -> None:
    x, w = (jnp.round(4 * random((8, 8), seed=s)) for s in (0, 1))
    bias, residual = random((8,), seed=2), 40 * random((8, 8), seed=3)
    scaled = dict(lhs_scale=1.0, rhs_scale=1.0)
    narrow = (x, w) if dot is jaxpipe.quantized_dot else (x.astype("int8"), w.astype("int8"))
    got = dot(
        *narrow, **scaled, bias=bias, activation="relu", residual=residual, residual_first=True,
        **(dict(dtype="int8") if dot is jaxpipe.quantized_dot
           else dict(preferred_element_type="float32")),
    )  # fmt: skip
    assert_close(got, in_jax(x, w, bias, residual, "relu"), 8, slack=2)


def test_the_tuner_can_judge_it() -> None:
    epilogue = Epilogue(
        bias="column", activation="gelu_erf", residual=True, save_preactivation=True,
        residual_first=True,
    )  # fmt: skip
    problem = Matmul(256, 512, 64, dtype="bfloat16", epilogue=epilogue)
    (measured,) = measure(problem, [HostSchedule()], plan=QUICK_PLAN, baseline=False)
    assert measured.status == "ok", measured.reason
    assert problem.key.endswith("bias+residual_first+gelu_erf+preactivation")
