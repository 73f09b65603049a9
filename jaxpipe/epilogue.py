"""What a kernel does to a product's sums before it rounds them, as frozen data.

In: activation, bias, residual, their order. Out: a stable description, which is part of keys. It
must not know products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from jaxpipe.dtypes import dtype_info
from jaxpipe.errors import ProblemError

Activation = Literal["none", "relu", "gelu_tanh", "gelu_erf", "silu", "tanh"]
BiasKind = Literal["none", "column", "row"]

ACTIVATIONS: tuple[str, ...] = get_args(Activation)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What happens to the accumulator before its one rounding to the result dtype.

    `y = activation(alpha * acc + bias) + residual`, all in the accumulator's type; with
    residual_first `y = activation(alpha * acc + bias + residual)`, the pre-activation with it (and
    without a residual and an activation to put in order the field is False). With `derivative`,
    the residual operand is a pre-activation instead of a summand:
    `y = (alpha * acc + bias) * derivative'(residual)`, the step back through an activation.
    bias: "column" has n elements (one a column of the result), "row" has m. bias_dtype: "" is the
    result dtype. residual has the result's shape and dtype. save_preactivation adds a second
    result, what the activation is taken of, in the result dtype (for derivatives).
    """

    alpha: float = 1.0
    bias: BiasKind = "none"
    bias_dtype: str = ""
    activation: Activation = "none"
    residual: bool = False
    save_preactivation: bool = False
    derivative: Activation = "none"
    residual_first: bool = False

    def __post_init__(self) -> None:
        if self.derivative not in ACTIVATIONS:
            raise ProblemError(
                f"unknown derivative {self.derivative!r}: use one of {', '.join(ACTIVATIONS)}"
            )
        if self.derivative != "none" and (self.activation != "none" or not self.residual):
            raise ProblemError(
                f"the derivative of {self.derivative} with activation={self.activation} and "
                f"residual={self.residual}: it takes the pre-activation as residual, and no "
                "activation of its own"
            )
        if self.activation not in ACTIVATIONS:
            raise ProblemError(
                f"unknown activation {self.activation!r}: use one of {', '.join(ACTIVATIONS)}"
            )
        if self.bias not in get_args(BiasKind):
            raise ProblemError(f"unknown bias kind {self.bias!r}: use none, column or row")
        if self.bias_dtype:
            dtype_info(self.bias_dtype)
        if not math.isfinite(self.alpha):
            raise ProblemError(f"alpha is {self.alpha}: it must be finite")
        object.__setattr__(self, "alpha", float(self.alpha))
        has_order = self.residual and self.activation != "none"
        object.__setattr__(self, "residual_first", self.residual_first and has_order)

    @property
    def is_identity(self) -> bool:
        """True when the epilogue only rounds."""
        return self == Epilogue()

    def describe(self) -> str:
        """Short text such as `bias+gelu_tanh+residual`, "" for the identity; exact."""
        parts = [f"alpha={_exact(self.alpha)}"] if self.alpha != 1.0 else []
        if self.bias != "none":
            parts.append("bias" if self.bias == "column" else "row_bias")
        if self.residual_first:
            parts.append("residual_first")
        if self.activation != "none":
            parts.append(self.activation)
        if self.residual and not self.residual_first:
            gated = self.derivative != "none"
            parts.append(f"derivative_{self.derivative}" if gated else "residual")
        if self.save_preactivation:
            parts.append("preactivation")
        return "+".join(parts)


def _exact(value: float) -> str:
    """The short form where it is the very number, else every digit: it is part of keys."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
