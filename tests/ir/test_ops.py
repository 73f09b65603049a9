"""Rounding and activations of the IR, against numpy's and ml_dtypes' own."""

import ml_dtypes
import numpy as np
import pytest

from jaxpipe.ir.ops import OPS, round_to

TYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("name", TYPES)
def test_rounding_equals_the_dtypes_own(name: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(4000) * 2.0 ** rng.integers(-20, 20, 4000)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 448.0, 464.0, 465.0, 61440.0, 65520.0])
    values = np.concatenate([values, special]).astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        want = values.astype(np.float32).astype(TYPES[name]).astype(np.float64)
    if name == "float8_e4m3fn":
        want = np.where(np.isinf(values), round_to(name, values), want)  # no infinity there
    np.testing.assert_array_equal(round_to(name, values), want)


def test_integers_wrap() -> None:
    values = np.array([127.0, 128.0, -129.0, 300.0])
    assert round_to("int8", values).tolist() == [127, -128, 127, 44]


def test_relu_keeps_nan() -> None:
    got = OPS["relu"].apply(np.array([np.nan, -1.0, 2.0]), np.float64(0))
    np.testing.assert_array_equal(got, [np.nan, 0.0, 2.0])


def test_tf32_rounds_ties_away_from_zero() -> None:
    half = 1.0 + 2.0**-11
    assert OPS["round_tf32"].apply(np.array([half, -half]), np.float64(0)).tolist() == [
        1.0 + 2.0**-10,
        -1.0 - 2.0**-10,
    ]
