"""Epilogues in JAX: what activations mean, their derivatives of any order, and the unfused form.

`y = activation(alpha * acc + bias) + residual`, or `activation(alpha * acc + bias + residual)`,
computed in the accumulator's type and rounded once. `derivative(z, t)` is kept as one symbolic step
of the derivative, so that reverse mode saves the pre-activation z and nothing else. It must not
know products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxpipe import epilogue as epilogues
from jaxpipe.epilogue import Activation
from jaxpipe.errors import ProblemError
from jaxpipe.ops import compat

Elementwise = Callable[[Any], Any]

# The meaning of every activation is JAX's own function, NaN and ties included.
ACTIVATIONS: dict[str, Elementwise] = {
    "none": lambda z: z,
    "relu": jax.nn.relu,
    "gelu_tanh": lambda z: jax.nn.gelu(z, approximate=True),
    "gelu_erf": lambda z: jax.nn.gelu(z, approximate=False),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}
ALIASES: dict[str, Activation] = {"gelu": "gelu_tanh", "swish": "silu"}
assert set(ACTIVATIONS) == set(epilogues.ACTIVATIONS)


@dataclass(frozen=True, slots=True)
class Fusion:
    """Which operands follow lhs and rhs, and what is done with them; see jaxpipe.epilogue.Epilogue.

    save asks for a second result, the pre-activation. derivative: the residual is a
    pre-activation of that activation, whose slope there multiplies the result.
    """

    alpha: float = 1.0
    bias: bool = False
    activation: Activation = "none"
    residual: bool = False
    save: bool = False
    derivative: Activation = "none"
    residual_first: bool = False

    @property
    def is_linear(self) -> bool:
        """True without an activation: the derivative needs no saved pre-activation."""
        return self.activation == "none" and self.derivative == "none"

    @property
    def is_identity(self) -> bool:
        """True when there is nothing to fuse."""
        return self == Fusion()

    def saving(self) -> Fusion:
        """The same with the pre-activation as second result."""
        return replace(self, save=True)

    def split(self, extras: tuple[Any, ...]) -> tuple[Any, Any]:
        """(bias or None, residual or None) of the operands that follow lhs and rhs."""
        rest = list(extras)
        bias = rest.pop(0) if self.bias else None
        residual = rest.pop(0) if self.residual else None
        return bias, residual

    def __repr__(self) -> str:
        return epilogues.Epilogue(
            self.alpha, "column" if self.bias else "none", "", self.activation,
            self.residual, self.save, self.derivative, self.residual_first,
        ).describe() or "none"  # fmt: skip


def activation_name(given: str | None) -> Activation:
    """The canonical name; None is "none", "gelu" is "gelu_tanh". ProblemError lists them all."""
    name = "none" if given is None else ALIASES.get(given, given)
    if name not in ACTIVATIONS:
        raise ProblemError(
            f"activation={given!r} is unknown: use None or one of "
            f"{', '.join([*list(ACTIVATIONS)[1:], *ALIASES])}, or apply it to the result"
        )
    return name  # type: ignore[return-value]


def accumulator(dtype: Any) -> Any:
    """Type in which products of `dtype` are summed: float32 for narrower floats, int32 for int8."""
    if jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32:
        return jnp.dtype("float32")
    if jnp.dtype(dtype) == jnp.int8:
        return jnp.dtype("int32")
    return jnp.dtype(dtype)


def apply(acc: Any, bias: Any, residual: Any, fusion: Fusion, dtype: Any) -> list[Any]:
    """The epilogue of `acc` (accumulator's type) in plain JAX: [y] or [y, pre-activation].

    bias has the shape of the trailing dimensions of acc, or broadcasts to it.
    """
    z = acc if fusion.alpha == 1.0 else acc * jnp.asarray(fusion.alpha, acc.dtype)
    if bias is not None:
        z = z + bias.astype(acc.dtype)
    if fusion.residual_first:
        z, residual = z + residual.astype(acc.dtype), None
    y = ACTIVATIONS[fusion.activation](z)
    if fusion.derivative != "none":
        y = derivative(residual.astype(acc.dtype), y, fusion.derivative)
    elif residual is not None:
        y = y + residual.astype(acc.dtype)
    return [y.astype(dtype), z.astype(dtype)] if fusion.save else [y.astype(dtype)]


# ------------------------------------------------------------------ derivative(z, t)
def derivative(z: Any, t: Any, activation: Activation, order: int = 1) -> Any:
    """activation^(order)(z) * t elementwise, in t's dtype; linear in t, differentiable in z."""
    z, t = compat.same_varying(z, t)
    return derivative_p.bind(z, t, activation=activation, order=order)


def _derivative_type(z: Any, t: Any, *, activation: Activation, order: int) -> Any:
    assert z.shape == t.shape, (z, t)
    return t


def _derivative(z: Any, t: Any, *, activation: Activation, order: int) -> Any:
    """In float32 at least, rounded once."""
    wide = accumulator(t.dtype)
    function = ACTIVATIONS[activation]
    for _ in range(order):
        function = _derived(function)
    return (function(z.astype(wide)) * t.astype(wide)).astype(t.dtype)


def _derived(function: Elementwise) -> Elementwise:
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def _derivative_in_z(zd: Any, z: Any, t: Any, *, activation: Activation, order: int) -> Any:
    return derivative(z, t * zd.astype(t.dtype), activation, order + 1)


def _derivative_in_t(td: Any, z: Any, t: Any, *, activation: Activation, order: int) -> Any:
    return derivative(z, td, activation, order)


def _derivative_transpose(
    g: Any, z: Any, t: Any, *, activation: Activation, order: int
) -> list[Any]:
    return [None, g if compat.is_zero(g) else derivative(z, g, activation, order)]


def _derivative_batch(
    axis_data: Any, args: Any, dims: Any, *, activation: Activation, order: int
) -> tuple[Any, Any]:
    """Both along a new first dimension; what is not mapped is repeated."""
    if all(dim is None for dim in dims):
        return derivative(args[0], args[1], activation, order), None
    z, t = (
        jnp.broadcast_to(x, (axis_data.size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
        for x, dim in zip(args, dims, strict=True)
    )
    return derivative(z, t, activation, order), 0


derivative_p = compat.primitive("jaxpipe_derivative", _derivative_type)
compat.set_jvp_per_operand(derivative_p, _derivative_in_z, _derivative_in_t)
compat.set_transpose(derivative_p, _derivative_transpose)
compat.set_batching(derivative_p, _derivative_batch)
compat.set_lowering(derivative_p, compat.lower_as(_derivative, many=False))
