"""jaxpipe.conv and conv_general_dilated: values, gradients, what kernels take, errors of lax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpipe
from jaxpipe.errors import ProblemError
from jaxpipe.ops.epilogue import ACTIVATIONS
from tests.tolerance import assert_close

NHWC = ("NHWC", "HWIO", "NHWC")


def random(shape, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


IMAGE, FILTER = random((2, 9, 8, 5)), random((3, 2, 5, 7), seed=1)

# name: arguments of conv_general_dilated after lhs and rhs, NHWC unless said.
SERVED = {
    "same": dict(window_strides=(1, 1), padding="SAME"),
    "valid": dict(window_strides=(1, 1), padding="VALID"),
    "strided": dict(window_strides=(2, 3), padding="SAME"),
    "asymmetric padding": dict(window_strides=(1, 2), padding=((2, 0), (1, 3))),
    "dilated filter": dict(window_strides=(1, 1), padding="SAME", rhs_dilation=(2, 3)),
    "dilated image": dict(window_strides=(1, 1), padding=((2, 2), (1, 1)), lhs_dilation=(2, 3)),
    "cropped image": dict(window_strides=(1, 1), padding=((-1, 2), (0, -2))),
    "strided and dilated": dict(window_strides=(2, 1), padding="VALID", rhs_dilation=(2, 1)),
}


def convolve(f, x, w, **words):
    return f(x, w, **{"dimension_numbers": NHWC, **words})


def both(call):
    """The outcome through jaxpipe and through lax."""
    return [call(f) for f in (jaxpipe.conv_general_dilated, lax.conv_general_dilated)]


@pytest.mark.parametrize("name", SERVED)
def test_kernels_serve_convolutions_that_are(name: str) -> None:
    with jaxpipe.coverage() as ledger:
        assert_close(*both(lambda f: convolve(f, IMAGE, FILTER, **SERVED[name])), 30)
    assert (ledger.taken, ledger.left) == (1, {})


@pytest.mark.parametrize("name", SERVED)
def test_kernels_serve_the_gradients_too(name: str) -> None:
    def gradients(f):
        loss = lambda x, w: jnp.sin(convolve(f, x, w, **SERVED[name])).sum()  # noqa: E731
        return jax.jit(jax.grad(loss, (0, 1)))(IMAGE, FILTER)

    with jaxpipe.coverage() as ledger:
        assert_close(*both(gradients), 100, slack=4)
    expected = 2 if name == "dilated image" else 3
    assert ledger.taken >= expected, str(ledger)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, None), (None, -1), (2, 1)])
def test_vmap(axes) -> None:
    x = IMAGE if axes[0] is None else jnp.stack([IMAGE, -IMAGE], axes[0])
    w = FILTER if axes[1] is None else jnp.stack([FILTER, 2 * FILTER], axes[1])
    call = lambda f: jax.vmap(lambda x, w: convolve(f, x, w, **SERVED["same"]), axes)(x, w)  # noqa: E731
    assert_close(*both(call), 30)


@pytest.mark.parametrize("axes", [(0, None), (None, 0)])
def test_vmap_of_one_operand_stays_one_kernel(axes) -> None:
    x = IMAGE if axes[0] is None else jnp.stack([IMAGE, -IMAGE])
    w = FILTER if axes[1] is None else jnp.stack([FILTER, 2 * FILTER])
    f = jax.vmap(lambda x, w: jaxpipe.conv(x, w), axes)
    with jaxpipe.coverage() as ledger:
        jax.jit(f).lower(x, w)
    assert (ledger.taken, ledger.total) == (1, 1)


def test_higher_derivatives() -> None:
    def hessian_vector(f):
        loss = lambda w: jnp.sin(convolve(f, IMAGE, w, **SERVED["strided"])).sum()  # noqa: E731
        return jax.jit(lambda w: jax.jvp(jax.grad(loss), (w,), (w,)))(FILTER)

    assert_close(*both(hessian_vector), 100, slack=8)


def test_a_filter_of_one_pixel_is_a_product() -> None:
    with jaxpipe.coverage() as ledger:
        jax.jit(lambda x, w: jaxpipe.conv(x, w, strides=2)).lower(IMAGE, random((1, 1, 5, 7)))
    ((site, _),) = ledger.rows()
    assert site.problem.startswith("matmul 40x7x5")


# name: (image, filter, arguments): what goes to XLA, and a word of the reason.
LEFT = {
    "groups": ((1, 6, 6, 4), (3, 3, 2, 8), dict(feature_group_count=2), "2 feature"),
    "channels first": (
        (1, 4, 6, 6), (8, 4, 3, 3), dict(dimension_numbers=("NCHW", "OIHW", "NCHW")),
        "channels last",
    ),
    "three dimensions": (
        (1, 4, 4, 4, 2), (2, 2, 2, 2, 3),
        dict(dimension_numbers=("NDHWC", "DHWIO", "NDHWC"), window_strides=(1, 1, 1)),
        "3 spatial dimensions",
    ),
    "batch groups": ((2, 6, 6, 4), (3, 3, 4, 8), dict(batch_group_count=2), "2 batch groups"),
    "an empty batch": ((0, 6, 6, 4), (3, 3, 4, 8), {}, "empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_xla_gets_with_a_reason(name: str) -> None:
    image, kernel, words, reason = LEFT[name]
    words = {"window_strides": (1, 1), "padding": "SAME", **words}
    x, w = random(image), random(kernel, seed=1)
    with jaxpipe.coverage() as ledger:
        assert_close(*both(lambda f: convolve(f, x, w, **words)), 30)
    assert ledger.taken == 0
    assert reason in next(iter(ledger.left))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("preferred", [None, "float32"])
def test_narrow_dtypes_are_summed_in_float32(dtype: str, preferred) -> None:
    x, w = IMAGE.astype(dtype), FILTER.astype(dtype)
    words = dict(SERVED["same"], preferred_element_type=preferred)
    got = convolve(jaxpipe.conv_general_dilated, x, w, **words)
    wide = convolve(lax.conv_general_dilated, x.astype("float32"), w.astype("float32"),
                    **SERVED["same"])  # fmt: skip
    assert_close(got, wide.astype(preferred or dtype), 30)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_the_epilogue_is_fused_and_differentiated(activation) -> None:
    bias, residual = random((7,), seed=2), random((2, 5, 4, 7), seed=3)

    def ours(x, w, bias, residual):
        return jaxpipe.conv(x, w, strides=2, bias=bias, activation=activation, residual=residual)

    def theirs(x, w, bias, residual):
        y = convolve(lax.conv_general_dilated, x, w, window_strides=(2, 2), padding="SAME")
        name = "gelu_tanh" if activation == "gelu" else activation or "none"
        return ACTIVATIONS[name](y + bias) + residual

    outs = [
        jax.jit(jax.value_and_grad(lambda *a, f=f: jnp.sin(f(*a)).sum(), (0, 1, 2, 3)))(
            IMAGE, FILTER, bias, residual
        )
        for f in (ours, theirs)
    ]
    assert_close(*outs, 100, slack=8)


def test_a_fused_convolution_is_batched() -> None:
    bias = random((7,), seed=2)
    ours = lambda x, b: jaxpipe.conv(x, FILTER, bias=b, activation="relu")  # noqa: E731
    theirs = lambda x, b: jax.nn.relu(  # noqa: E731
        convolve(lax.conv_general_dilated, x, FILTER, **SERVED["same"]) + b
    )
    args = jnp.stack([IMAGE, -IMAGE]), jnp.stack([bias, 2 * bias])
    assert_close(jax.vmap(ours)(*args), jax.vmap(theirs)(*args), 30)


def test_one_spatial_dimension() -> None:
    x, w = random((2, 11, 4)), random((3, 4, 6), seed=1)
    want = lax.conv_general_dilated(x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    with jaxpipe.coverage() as ledger:
        assert_close(jaxpipe.conv(x, w, strides=2), want, 12)
    assert ledger.taken == 1


def test_filters_may_lie_in_any_order() -> None:
    words = dict(SERVED["same"], dimension_numbers=("NHWC", "OIHW", "NHWC"))
    w = jnp.transpose(FILTER, (3, 2, 0, 1))
    with jaxpipe.coverage() as ledger:
        assert_close(*both(lambda f: f(IMAGE, w, **words)), 30)
    assert ledger.taken == 1


@pytest.mark.parametrize(
    "words",
    [
        dict(window_strides=(1,), padding="SAME"),
        dict(window_strides=(1, 1), padding="SAME", feature_group_count=3),
    ],
    ids=str,
)
def test_errors_are_those_of_lax(words) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        convolve(lax.conv_general_dilated, IMAGE, FILTER, **words)
    with pytest.raises(theirs.type) as ours:
        convolve(jaxpipe.conv_general_dilated, IMAGE, FILTER, **words)
    assert str(ours.value) == str(theirs.value)


ERRORS = {
    r"both without a height": (jnp.ones((3, 4)), FILTER, {}),
    r"bias has shape \(5,\), it takes \(7,\)": (IMAGE, FILTER, dict(bias=jnp.ones(5))),
    r"'softplus' is unknown": (IMAGE, FILTER, dict(activation="softplus")),
}


@pytest.mark.parametrize("message", ERRORS)
def test_calls_that_do_not_fit_are_named(message: str) -> None:
    x, w, words = ERRORS[message]
    with pytest.raises(ProblemError, match=message):
        jaxpipe.conv(x, w, **words)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_an_image_of_many_pixels_is_widened_whole(dtype: str) -> None:
    x, w = random((2, 40, 40, 16), dtype), random((3, 3, 16, 8), dtype, 1)
    got = jaxpipe.conv(x, w, implementation="host")
    assert_close(got, jaxpipe.conv(x, w, implementation="xla"), 144)
