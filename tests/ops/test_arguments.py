"""What users hand over by mistake: an error that says what, or the result that jnp would give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpipe
from jaxpipe.errors import DtypeError, ProblemError, SettingError, TargetError
from tests.tolerance import assert_close

RANDOM = np.random.default_rng(0)
X = jnp.asarray(RANDOM.standard_normal((8, 16)), jnp.float32)
W = jnp.asarray(RANDOM.standard_normal((16, 24)), jnp.float32)
IMAGE = jnp.asarray(RANDOM.standard_normal((2, 8, 8, 3)), jnp.float32)
FILTER = jnp.asarray(RANDOM.standard_normal((3, 3, 3, 4)), jnp.float32)
INTS = jnp.ones((8, 16), "int8"), jnp.ones((16, 24), "int8")
SCALES = {"lhs_scale": 0.02, "rhs_scale": 0.02}


def packed() -> jaxpipe.Packed:
    return jaxpipe.prepack(W)


REFUSED = {
    "a number": (lambda: jaxpipe.dot(2.0, W), ProblemError, "multiply scalars"),
    "a number and packed": (lambda: jaxpipe.dot(2.0, packed()), ProblemError, "multiply scalars"),
    "a scaled number": (lambda: jaxpipe.dot(2.0, W, lhs_scale=1.0), ProblemError, "multiply"),
    "float bias on int8": (
        lambda: jaxpipe.dot(*INTS, bias=jnp.full(24, 0.5)), ProblemError, "bias is float32",
    ),
    "complex bias": (
        lambda: jaxpipe.dot(X, W, bias=jnp.ones(24) * 1j), ProblemError, "bias is complex64",
    ),
    "complex residual": (
        lambda: jaxpipe.dot(X, W, residual=jnp.ones((8, 24)) * 1j), ProblemError, "residual is",
    ),
    "complex and scales": (
        lambda: jaxpipe.dot(X * 1j, W, lhs_scale=1.0), ProblemError, "complex64 operands",
    ),
    "complex to quantize": (lambda: jaxpipe.quantize(X * 1j, 1.0), DtypeError, "complex64"),
    "truth values": (lambda: jaxpipe.quantize(X, 1.0, "bool"), DtypeError, "to bool"),
    "integers to quantize": (
        lambda: jaxpipe.quantized_dot(*INTS, **SCALES), ProblemError, "quantized_dot of int8",
    ),
    "three dtypes": (
        lambda: jaxpipe.quantized_dot(X, W, dtype=("int8",) * 3, **SCALES), ProblemError, "or two",
    ),
    "a bias that would broadcast": (
        lambda: jaxpipe.quantized_dot(X, W, bias=jnp.ones(1), **SCALES), ProblemError, r"\(24,\)",
    ),
    "a residual that would broadcast": (
        lambda: jaxpipe.quantized_dot(X, W, residual=jnp.ones((8, 1)), **SCALES),
        ProblemError, "residual has shape",
    ),
    "packed as lhs": (lambda: jaxpipe.dot(packed(), W), DtypeError, "is no array"),
    "packed in dot_general": (
        lambda: jaxpipe.dot_general(X, packed(), (((1,), (0,)), ((), ()))), DtypeError, "unpack",
    ),
    "packed with scales": (
        lambda: jaxpipe.dot(X, packed(), lhs_scale=1.0), DtypeError, "without scales",
    ),
    "packed twice": (lambda: jaxpipe.prepack(packed()), DtypeError, "is no array"),
    "packed filter": (lambda: jaxpipe.conv(IMAGE, packed()), DtypeError, "is no array"),
    "strides 0": (lambda: jaxpipe.conv(IMAGE, FILTER, strides=0), ProblemError, "strides=0"),
    "strides 1.5": (lambda: jaxpipe.conv(IMAGE, FILTER, strides=1.5), ProblemError, "strides=1.5"),
    "three strides": (
        lambda: jaxpipe.conv(IMAGE, FILTER, strides=(1, 1, 1)), ProblemError, "or 2",
    ),
    "dilation 0": (lambda: jaxpipe.conv(IMAGE, FILTER, dilation=0), ProblemError, "dilation=0"),
    "a target": (lambda: jaxpipe.options(target="foo").__enter__(), TargetError, "unknown GPU"),
    "a schedule": (lambda: jaxpipe.options(schedule="x").__enter__(), SettingError, "HostSchedule"),
    "a flag": (lambda: jaxpipe.options(pack_constants="x").__enter__(), SettingError, "or False"),
    "no function": (lambda: jaxpipe.accelerate(3), TypeError, "takes a function"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_mistake_is_told(what: str) -> None:
    call, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        call()


def test_operands_of_a_convolution_are_promoted() -> None:
    y = jaxpipe.conv(IMAGE, FILTER.astype("bfloat16"), strides=np.int64(2))
    want = jaxpipe.conv(IMAGE, FILTER.astype("bfloat16").astype("float32"), strides=2)
    assert_close(y, want, 27)


def test_lists_are_arrays() -> None:
    y = jaxpipe.dot([[1.0, 2.0]], [[3.0], [4.0]], bias=[0.5])
    assert y.tolist() == [[11.5]]
    scaled = jaxpipe.quantized_dot([[1.0, 2.0]], [[3.0], [4.0]], bias=[0.5], dtype=["int8", "int8"],
                                   lhs_scale=1.0, rhs_scale=1.0)  # fmt: skip
    assert scaled.tolist() == [[11.5]]


def test_scaled_integers_give_floats() -> None:
    y = jaxpipe.dot(jnp.ones((2, 3), "int32"), jnp.ones((3, 2), "int32"), lhs_scale=0.5)
    assert y.dtype == jnp.float32
    assert y.tolist() == [[1.5, 1.5]] * 2


def test_the_promoted_filter_has_a_gradient_of_its_own_dtype() -> None:
    grad = jax.grad(lambda w: jaxpipe.conv(IMAGE, w).sum())(FILTER.astype("bfloat16"))
    assert grad.dtype == jnp.bfloat16
