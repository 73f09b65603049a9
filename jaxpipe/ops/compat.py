"""The part of JAX's surface that works but is not promised, in one place.

Everything here is importable without an underscore on the supported versions (0.10 to 0.12) but is
documented nowhere or experimental: `jax.interpreters.*`, attributes of avals, of lowering contexts
and of equations. Other files of jaxpipe use the documented API and this file. Every name is
touched by tests/ops/test_compat.py, which is what to run first on a new JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p
from jax.interpreters import ad, batching, mlir, xla

JAXPR_TYPES = (Jaxpr, ClosedJaxpr)  # one class on 0.12, two on 0.10
Zero = ad.Zero

__all__ = [
    "JAXPR_TYPES",
    "ClosedJaxpr",
    "Jaxpr",
    "Literal",
    "Primitive",
    "Zero",
    "conv_general_dilated_p",
    "dot_general_p",
]


# ------------------------------------------------------------------ defining primitives
def primitive(name: str, abstract_eval: Callable[..., Any], *, many: bool = False) -> Primitive:
    """A primitive with its type rule; eager calls compile it. `many`: it returns a list."""
    new = Primitive(name)
    new.multiple_results = many
    new.def_abstract_eval(abstract_eval)
    new.def_impl(functools.partial(xla.apply_primitive, new))
    return new


def set_bilinear(p: Primitive, lhs: Callable[..., Any], rhs: Callable[..., Any]) -> None:
    """Derivatives of a product: `lhs(g, x, y, **params)` is the cotangent of x, `rhs` of y."""
    ad.defbilinear(p, lhs, rhs)


def set_jvp(p: Primitive, rule: Callable[..., Any]) -> None:
    """`rule(primals, tangents, **params) -> (results, tangents)`; a missing tangent is a `Zero`."""
    ad.primitive_jvps[p] = rule


def set_jvp_per_operand(p: Primitive, *rules: Callable[..., Any]) -> None:
    """One rule an operand: `rule(tangent, *operands, **params) -> tangent of the result`."""
    ad.defjvp(p, *rules)


def set_transpose(p: Primitive, rule: Callable[..., Any]) -> None:
    """`rule(cotangent, *operands, **params) -> cotangents`, None for what is not linear."""
    ad.primitive_transposes[p] = rule


def set_batching(p: Primitive, rule: Callable[..., Any]) -> None:
    """`rule(axis_data, operands, dims, **params) -> (results, dims)`; a dim None is not mapped."""
    batching.fancy_primitive_batchers[p] = rule


def set_lowering(p: Primitive, rule: Callable[..., Any], platform: str | None = None) -> None:
    """`rule(ctx, *values, **params)` emits the operation, for `platform` or for all others.

    Every equation is lowered by itself (JAX would lower equal equations once), so that the
    coverage ledger counts each site of a program.
    """
    mlir.register_lowering(p, rule, platform=platform, cacheable=False)


def lower_as(fun: Callable[..., Any], *, many: bool) -> Callable[..., Any]:
    """The lowering rule that traces JAX function `fun` in place; `many`: it returns a list."""
    return mlir.lower_fun(fun, multiple_results=many)  # type: ignore[no-any-return]


def axis_spec(axis_data: Any) -> Any:
    """The explicit mesh axis that a vmapped dimension is sharded over, or None."""
    return axis_data.explicit_mesh_axis


def abstract_eval(p: Primitive, *avals: Any, **params: Any) -> Any:
    """The type that `p` gives to a call: shape, dtype, sharding, varying axes; its own errors."""
    out, _ = p.abstract_eval(*avals, **params)
    return out


# ------------------------------------------------------------------ types
def is_linear_operand(x: Any) -> bool:
    """True for an operand that a transposed program is linear in: its value is not known."""
    return bool(ad.is_undefined_primal(x))


def zero_tangent(aval: Any) -> Any:
    """The symbolic zero of `aval`'s tangent type."""
    return ad.Zero(aval.to_tangent_aval())


def is_zero(tangent: Any) -> bool:
    """True for a symbolic zero."""
    return isinstance(tangent, ad.Zero)


def is_symbolic_zero(tangent: Any) -> bool:
    """True for the zero tangent that `custom_jvp` hands to a rule with symbolic_zeros."""
    return isinstance(tangent, SymbolicZero)


def mesh_of(aval: Any) -> Any:
    """The abstract mesh that an aval's sharding speaks of; `.empty` without one."""
    return aval.sharding.mesh


def spec_of(aval: Any) -> tuple[Any, ...]:
    """The aval's partition spec, one entry a dimension."""
    spec: tuple[Any, ...] = tuple(aval.sharding.spec)
    return (*spec, *(None,) * (aval.ndim - len(spec)))


def same_sharding(a: Any, b: Any) -> bool:
    """True when two avals are sharded alike, as far as their types say."""
    return bool(a.sharding == b.sharding)


def varying(x: Any) -> frozenset[Any]:
    """Mesh axes of a surrounding shard_map over which `x` differs from device to device."""
    return frozenset(jax.typeof(x).manual_axis_type.varying)


def same_varying(*xs: Any) -> list[Any]:
    """The operands, each cast to vary over the axes that any of them varies over."""
    have = [varying(x) for x in xs]
    want = frozenset().union(*have)
    return [
        lax.pcast(x, tuple(sorted(want - v)), to="varying") if want - v else x
        for x, v in zip(xs, have, strict=True)
    ]


# ------------------------------------------------------------------ lowering contexts
def platforms(ctx: Any) -> tuple[str, ...]:
    """Platforms that the operation is lowered for; several only when exporting.

    JAX 0.10 and 0.12 cannot lower a primitive that has a rule per platform and is not cached for
    several platforms at once: lax.platform_dependent puts each into a branch of its own.
    """
    inside = getattr(ctx, "platforms", None) or ()  # of a branch of lax.platform_dependent
    return tuple(inside or getattr(ctx.module_context, "platforms", None) or ())


def device_count(ctx: Any) -> int | None:
    """Devices that the program is lowered for; None inside shard_map or when not known."""
    return getattr(ctx.module_context.axis_context, "num_devices", None)


def is_exporting(ctx: Any) -> bool:
    """True while `jax.export` lowers."""
    parameters = getattr(ctx.module_context, "lowering_parameters", None)
    return bool(getattr(parameters, "for_export", False))


# ------------------------------------------------------------------ jaxprs
def opened(jaxpr: Any) -> Any:
    """The jaxpr with `invars`, `eqns` and `outvars`, of a closed or an open one."""
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def reopened(closed: Any, like: Any) -> Any:
    """`closed` as the kind of jaxpr that `like` is: 0.10 holds open ones in some equations."""
    if isinstance(like, ClosedJaxpr):
        return closed
    assert not closed.consts, closed.consts
    return closed.jaxpr


def constants(jaxpr: Any) -> Sequence[Any]:
    """The constants bound to `jaxpr.constvars`; none for an open jaxpr."""
    return getattr(jaxpr, "consts", ())


def equation_context(eqn: Any) -> AbstractContextManager[Any]:
    """The mesh, compute type and metadata that `eqn` was traced under."""
    return eqn.ctx.manager  # type: ignore[no-any-return]


def scope_of(eqn: Any) -> str:
    """The named scopes that `eqn` was traced in, such as "Bert/layer_0/attention"."""
    return str(eqn.source_info.name_stack)


def rebind(eqn: Any, operands: Sequence[Any], params: dict[str, Any] | None = None) -> Any:
    """Bind `eqn`'s primitive to other operands, and other parameters if given."""
    params = eqn.params if params is None else params
    return eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(params))


def einsum_with(dot_general: Callable[..., Any]) -> Callable[..., Any]:
    """`jnp.einsum` that multiplies with `dot_general`, a module-level function."""
    return functools.partial(jnp.einsum, _dot_general=dot_general)
