"""docs/precision.md, row by row: which dtypes, precisions and convolutions kernels serve, and
the values.

The document is written by `python -m tests.ops.test_precision > docs/precision.md`.
"""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpipe
from jaxpipe.ops import execute
from jaxpipe.ops.dot import canonical_precision
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.options import Options
from tests.tolerance import assert_close

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "precision.md"
PLAIN = (((1,), (0,)), ((), ()))
M, K, N = 32, 64, 32
FLOATS = ("float32", "bfloat16", "float16")
# (lhs, rhs, preferred_element_type, precision)
ROWS: tuple[tuple[str, str, str | None, str | None], ...] = (
    *((d, d, None, None) for d in FLOATS),
    ("float32", "float32", None, "high"),
    ("float32", "float32", None, "highest"),
    ("float32", "float32", None, "F32_F32_F32"),
    ("float32", "float32", None, "TF32_TF32_F32"),
    ("float32", "float32", None, "BF16_BF16_F32_X3"),
    ("float32", "float32", "bfloat16", None),
    ("bfloat16", "bfloat16", "float32", None),
    ("bfloat16", "bfloat16", None, "highest"),
    ("bfloat16", "bfloat16", None, "BF16_BF16_F32"),
    ("float16", "float16", "float32", None),
    ("float16", "float16", None, "F16_F16_F16"),
    ("bfloat16", "float32", "float32", None),
    ("bfloat16", "float16", "float32", None),
    ("int8", "int8", "int32", None),
    ("int8", "int8", None, None),
    ("int8", "int8", "float32", None),
    ("int16", "int16", None, None),
    ("int32", "int32", None, None),
    ("float8_e4m3fn", "float8_e4m3fn", "float32", None),
    ("float8_e4m3fn", "float8_e4m3fn", None, None),
    ("float8_e5m2", "float8_e5m2", "bfloat16", None),
    ("float8_e4m3fn", "float8_e5m2", "float32", None),
    ("float8_e4m3fn", "float8_e4m3fn", "float32", "ANY_F8_ANY_F8_F32"),
    ("float8_e4m3fn", "bfloat16", "bfloat16", None),
    ("float8_e5m2", "float16", "float16", None),
    ("float8_e4m3fn", "float32", "float32", None),
    ("float64", "float64", None, None),
    ("float32", "float32", "float64", None),
    ("complex64", "complex64", None, None),
)
COLUMNS = {
    "host": ("cpu", None),
    "cuda (sm_80)": ("cuda", "a100"),
    "cuda (sm_90a)": ("cuda", "h200"),
}
NHWC = ("NHWC", "HWIO", "NHWC")
IMAGE, FILTER, PIXEL = (2, 8, 8, 16), (3, 3, 16, 32), (1, 1, 16, 32)
# What is convolved, by which arguments.
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3, NHWC, HWIO": (IMAGE, FILTER, {}),
    "3x3, stride 2": (IMAGE, FILTER, {"window_strides": (2, 2)}),
    "3x3, dilated filter": (IMAGE, FILTER, {"rhs_dilation": (2, 2)}),
    "1x1": (IMAGE, PIXEL, {}),
    "3x3, two groups": (IMAGE, (3, 3, 8, 32), {"feature_group_count": 2}),
    "3x3, NCHW": ((2, 16, 8, 8), FILTER, {"dimension_numbers": ("NCHW", "HWIO", "NCHW")}),
}
USES = ("forward", "image gradient", "filter gradient")
# What XLA:CPU itself cannot run, so that there is nothing to compare with.
NOT_ON_CPU = (
    "TF32_TF32_F32", "BF16_BF16_F32_X3", "F16_F16_F16", "BF16_BF16_F32", "ANY_F8_ANY_F8_F32",
)  # fmt: skip


def outcome(row, column: str) -> str:
    """The kernel's Problem, or XLA with the reason."""
    lhs, rhs, preferred, precision = row
    platform, target = COLUMNS[column]
    with jax.enable_x64(True):
        types = [jax.typeof(jnp.zeros(shape, d)) for shape, d in (((M, K), lhs), ((K, N), rhs))]
        wanted = None if preferred is None else np.dtype(preferred)
        options = Options(target=target)
        spec = DotSpec(PLAIN, canonical_precision(precision), wanted, None, options)
        site = execute.preview(types, spec, Fusion(), execute.Place(platform))
    if site.implementation == "xla":
        return f"XLA: {site.reason}"
    return f"kernel: {site.problem.split(' ', 3)[3]}"


def convolution(name: str, module: Any = jaxpipe) -> tuple[Any, Any, Any]:
    """The convolution with its operands."""
    image, window, words = CONVOLUTIONS[name]
    words = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC, **words}
    random = np.random.default_rng(0)
    x, w = (jnp.asarray(random.standard_normal(s), jnp.bfloat16) for s in (image, window))
    return (lambda x, w: module.conv_general_dilated(x, w, **words)), x, w


def used(name: str, use: str, module: Any = jaxpipe) -> tuple[Any, Any, Any]:
    """The convolution, or a gradient of it without its forward."""
    f, x, w = convolution(name, module)
    if use == "forward":
        return f, x, w
    g = jnp.asarray(np.random.default_rng(1).standard_normal(f(x, w).shape), jnp.bfloat16)
    if use == "image gradient":
        return (lambda g, w: jax.vjp(lambda x: f(x, w), x)[1](g)[0]), g, w
    return (lambda x, g: jax.vjp(lambda w: f(x, w), w)[1](g)[0]), x, g


def convolution_outcome(name: str, use: str, column: str) -> str:
    """As `outcome`, of the site that is not the forward's."""
    platform, target = COLUMNS[column]
    f, *operands = used(name, use)
    with jaxpipe.options(target=target), jaxpipe.coverage() as ledger:
        jax.jit(f).trace(*operands).lower(lowering_platforms=(platform,))
    (site,) = {site for site, _ in ledger.rows()}
    if site.implementation == "xla":
        return f"XLA: {site.reason}"
    return f"kernel: {site.problem}"


def render() -> str:
    """The document."""
    lines = [
        "# Precision",
        "",
        "Written by `python -m tests.ops.test_precision`; each row is tested. Kernels sum floats "
        "in float32 and int8 in int32; only the final store rounds. A row shows what a kernel "
        "multiplies and writes (`float32 tf32`: TensorFloat-32 products, as XLA:GPU does by "
        "default; `float32 float32`: true float32), or why the call goes to XLA, where it is "
        "counted in `jaxpipe.coverage()`. Float64, complex and wide integers are XLA's everywhere.",
        "",
        "A result whose contracted dimension is split over devices is summed across them in its "
        "own dtype, as in XLA: ask for `preferred_element_type=float32` to sum in float32.",
        "",
        "| lhs x rhs | preferred | precision | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 3) + "|",
    ]
    for row in ROWS:
        lhs, rhs, preferred, precision = row
        words = [f"{lhs} x {rhs}", preferred or "", precision or ""]
        words += [outcome(row, column).replace("|", "/") for column in COLUMNS]
        lines.append("| " + " | ".join(words) + " |")
    lines += [
        "",
        "## Scales",
        "",
        "`jaxpipe.dot(x, w, lhs_scale=a, rhs_scale=b)` takes quantised operands (8-bit floats, "
        "int8) and their scales: numbers, one a row of x, or one a column of w. The kernel's "
        "operands and sums are those of the table, with a float32 (int32) result; scales, bias, "
        "activation and residual are applied to it by XLA in float32, and rounded once. Scales "
        "along the contracted dimension are `jax.lax.scaled_dot`'s. Gradients of 8-bit arrays are "
        "8-bit, as JAX has it; `jaxpipe.quantized_dot` quantises wide operands inside and "
        "differentiates straight-through. Tested by `tests/ops/test_scaled.py`.",
        "",
        "## Convolutions",
        "",
        "bfloat16, and the same for other dtypes that products take. A gradient of a filter with "
        "more than one tap is a product over copies of the image, which a GPU has no memory for; "
        "there it is XLA's.",
        "",
        "| convolution | use | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for name in CONVOLUTIONS:
        for use in USES:
            words = [name, use, *(convolution_outcome(name, use, c) for c in COLUMNS)]
            lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text() == render()


def call(module: Any, row, x, y) -> jax.Array:
    _, _, preferred, precision = row
    return module.dot_general(x, y, PLAIN, precision, preferred)


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row[3] not in NOT_ON_CPU],
    ids=lambda row: " ".join(map(str, row)),
)
def test_a_row_has_the_value_and_type_of_lax(row) -> None:
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = jnp.asarray(random.standard_normal((M, K)) * 2, row[0])
        y = jnp.asarray(random.standard_normal((K, N)) * 2, row[1])
        with jaxpipe.coverage() as ledger:
            got = jax.jit(lambda x, y: call(jaxpipe, row, x, y))(x, y)
        assert_close(got, call(lax, row, x, y), K, slack=4)
    assert (ledger.taken == 1) == outcome(row, "host").startswith("kernel")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_has_the_value_of_lax(name: str, use: str) -> None:
    (f, *operands), (g, *_) = used(name, use), used(name, use, lax)
    assert_close(jax.jit(f)(*operands), g(*operands), 300, slack=4)


if __name__ == "__main__":
    print(render(), end="")
