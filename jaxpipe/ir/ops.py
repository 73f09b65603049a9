"""Element-wise operations of the IR and what they mean, and rounding to every dtype.

In: float64 arrays that hold values of some dtype. Out: the same after one operation or one
rounding. The meaning is here in numpy; the CUDA text of each stands in codegen/device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation. operand: "none", "scalar" or "region"; `apply` takes value and operand."""

    name: str
    operand: str
    apply: Callable[[Array, Array], Array]


def _erf(values: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(values)  # type: ignore[no-any-return]


def _relu(x: Array, _: Array) -> Array:
    return np.where(np.isnan(x), x, np.maximum(x, 0.0))


def _gelu_tanh(x: Array, _: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_erf(x: Array, _: Array) -> Array:
    return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))


def _silu(x: Array, _: Array) -> Array:
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


def _logistic(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


def _gelu_tanh_slope(z: Array) -> Array:
    c = math.sqrt(2.0 / math.pi)
    t = np.tanh(c * (z + 0.044715 * z**3))
    return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * c * (1.0 + 3 * 0.044715 * z**2)


def _gelu_erf_slope(z: Array) -> Array:
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return 0.5 * (1.0 + _erf(z / math.sqrt(2.0))) + z * density


def _silu_slope(z: Array) -> Array:
    s = _logistic(z)
    return s * (1.0 + z * (1.0 - s))


SLOPES: dict[str, Callable[[Array], Array]] = {
    "relu": lambda z: np.where(z > 0, 1.0, 0.0),
    "gelu_tanh": _gelu_tanh_slope,
    "gelu_erf": _gelu_erf_slope,
    "silu": _silu_slope,
    "tanh": lambda z: 1.0 - np.tanh(z) ** 2,
}
"""First derivatives of the activations."""


def _times_slope(name: str) -> Callable[[Array, Array], Array]:
    return lambda x, z: x * SLOPES[name](z)


def _round_tf32(x: Array, _: Array) -> Array:
    """cvt.rna.tf32.f32: 10 stored mantissa bits, nearest, ties away from zero."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x).astype(np.float64)


OPS: dict[str, Op] = {
    o.name: o
    for o in (
        Op("scale", "scalar", lambda x, a: x * a),
        Op("add", "region", lambda x, y: x + y),
        Op("save", "region", lambda x, _: x),
        Op("relu", "none", _relu),
        Op("gelu_tanh", "none", _gelu_tanh),
        Op("gelu_erf", "none", _gelu_erf),
        Op("silu", "none", _silu),
        Op("tanh", "none", lambda x, _: np.tanh(x)),
        *(Op(f"derivative_{name}", "region", _times_slope(name)) for name in SLOPES),
        Op("round_tf32", "none", _round_tf32),
    )
}


def round_to(dtype: str, values: Array) -> Array:
    """`values` as the nearest values of `dtype`, ties to even; integers wrap as in C.

    Source: OCP 8-bit floating point (e4m3fn has no infinity: what overflows is NaN, as in XLA).
    """
    return _ROUNDING[dtype](values)


def _round_mantissa(bits: int, least_exponent: int) -> Callable[[Array], Array]:
    """Rounding to `bits` stored mantissa bits with subnormals below 2**least_exponent."""

    def rounding(values: Array) -> Array:
        _, exponent = np.frexp(values)
        scale = np.maximum(exponent - 1, least_exponent) - bits
        with np.errstate(invalid="ignore"):
            return np.where(
                np.isfinite(values), np.ldexp(np.rint(np.ldexp(values, -scale)), scale), values
            )

    return rounding


def _overflowing(
    rounding: Callable[[Array], Array], largest: float, to: float
) -> Callable[[Array], Array]:
    def limited(values: Array) -> Array:
        rounded = rounding(values)
        return np.where(np.abs(rounded) > largest, np.copysign(to, rounded), rounded)

    return limited


def _wrap(bits: int) -> Callable[[Array], Array]:
    half, period = 1 << (bits - 1), 1 << bits

    def wrapped(values: Array) -> Array:
        return (np.trunc(values) + half) % period - half

    return wrapped


def _float32(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "float32": _float32,
    "bfloat16": _overflowing(_round_mantissa(7, -126), 3.3895313892515355e38, math.inf),
    "float16": _overflowing(_round_mantissa(10, -14), 65504.0, math.inf),
    "float8_e4m3fn": _overflowing(_round_mantissa(3, -6), 448.0, math.nan),
    "float8_e5m2": _overflowing(_round_mantissa(2, -14), 57344.0, math.inf),
    "int32": _wrap(32),
    "int8": _wrap(8),
}
