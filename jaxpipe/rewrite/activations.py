"""Recognises an activation by what is computed, not by its name.

In: a value z of a graph. Out: which activation of z is computed and where its result is. A value
that depends on z and scalars alone has an expression: primitives, parameters, operands. It is the
activation whose form, traced on the same type, has the same expression. So both
`jax.nn.gelu` and the formula written out are found, on every JAX version.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpipe.epilogue import Activation
from jaxpipe.ops import compat
from jaxpipe.ops.epilogue import ACTIVATIONS
from jaxpipe.rewrite.graph import Constant, Graph, Op, Value, graph_of

Expression = Any  # nested tuples; "z" is the leaf
COMMUTATIVE = {"add", "mul", "max", "min", "add_any"}
# Do not change what is computed.
IGNORED_PARAMS = {"sharding", "out_sharding", "name", "accuracy"}
INLINED_CALLS = {"custom_jvp_call": "call_jaxpr", "jit": "jaxpr", "pjit": "jaxpr"}
_C = math.sqrt(2 / math.pi)

# Ways in which people write them, beside JAX's own functions.
FORMS: dict[Activation, tuple[Callable[[Any], Any], ...]] = {
    "relu": (ACTIVATIONS["relu"], lambda z: jnp.maximum(z, 0)),
    "gelu_tanh": (
        ACTIVATIONS["gelu_tanh"],
        lambda z: 0.5 * z * (1.0 + jnp.tanh(_C * (z + 0.044715 * z**3))),
        lambda z: 0.5 * z * (1.0 + jnp.tanh(_C * (z + 0.044715 * z * z * z))),
        lambda z: z * 0.5 * (1.0 + jnp.tanh(_C * (z + 0.044715 * jnp.power(z, 3)))),
        lambda z: z * 0.5 * (1.0 + jnp.tanh(_C * z * (1.0 + 0.044715 * z * z))),
    ),
    "gelu_erf": (
        ACTIVATIONS["gelu_erf"],
        lambda z: 0.5 * z * (1.0 + jax.lax.erf(z / math.sqrt(2.0))),
        lambda z: z * 0.5 * (1.0 + jax.lax.erf(z / math.sqrt(2.0))),
        lambda z: 0.5 * z * (1.0 + jax.lax.erf(z * math.sqrt(0.5))),
    ),
    "silu": (ACTIVATIONS["silu"], lambda z: z * jax.nn.sigmoid(z)),
    "tanh": (jnp.tanh,),
}


@dataclass(frozen=True, slots=True)
class Found:
    """`result` is `activation` of z; `inside` are the operations between, the last one included."""

    activation: Activation
    result: Value
    inside: frozenset[int]


def find_activation(graph: Graph, z: Value) -> Found | None:
    """The activation that is computed of `z`, the furthest one when there are several."""
    forms = _forms(z.aval.shape, np.dtype(z.aval.dtype))
    if forms is None:
        return None
    known: dict[int, Expression] = {id(z): "z"}
    found = None
    for op in _from(graph, z):
        for value, expression in zip(op.outs, _express(op, known), strict=True):
            known[id(value)] = expression
            if expression in forms and value.aval.dtype == z.aval.dtype:
                found = Found(forms[expression], value, _inside(value, z))
    return found


def _from(graph: Graph, z: Value) -> list[Op]:
    """Operations that may depend on z alone: a walk over users, in program order."""
    order = {id(op): i for i, op in enumerate(graph.ops)}
    seen: dict[int, Op] = {}
    todo = list(z.users)
    while todo and len(seen) < 64:
        op = todo.pop()
        if id(op) not in seen and all(
            isinstance(atom, Constant) or atom is z or _made_by(atom, seen) for atom in op.ins
        ):
            seen[id(op)] = op
            todo.extend(user for out in op.outs for user in out.users)
    return sorted(seen.values(), key=lambda op: order[id(op)])


def _made_by(atom: Value, seen: dict[int, Op]) -> bool:
    return atom.producer is not None and id(atom.producer) in seen


def _inside(result: Value, z: Value) -> frozenset[int]:
    ops: dict[int, Op] = {}
    todo = [result]
    while todo:
        value = todo.pop()
        if value is z or value.producer is None or id(value.producer) in ops:
            continue
        ops[id(value.producer)] = value.producer
        todo.extend(atom for atom in value.producer.ins if isinstance(atom, Value))
    return frozenset(ops)


# ------------------------------------------------------------------ expressions
def _express(op: Op, known: dict[int, Expression]) -> list[Expression]:
    """Expressions of an operation's results; None for one that depends on more than z."""
    ins = [_atom(atom, known) for atom in op.ins]
    if any(part is None for part in ins):
        return [None] * len(op.outs)
    if (word := INLINED_CALLS.get(op.name)) is not None:
        return _express_call(op.params[word], ins, len(op.outs))
    if op.name in COMMUTATIVE:
        ins.sort(key=repr)
    params = tuple(
        (name, str(value)) for name, value in sorted(op.params.items())
        if name not in IGNORED_PARAMS
    )  # fmt: skip
    return [(op.name, params, tuple(ins), i) for i in range(len(op.outs))]


def _atom(atom: Value | Constant, known: dict[int, Expression]) -> Expression:
    if isinstance(atom, Value):
        return known.get(id(atom))
    value = np.asarray(atom.value)
    if value.ndim:
        return None
    return ("constant", float(value.astype(np.float64)))


def _express_call(inner: Any, ins: list[Expression], results: int) -> list[Expression]:
    """Expressions of a called jaxpr's results."""
    sub = graph_of(compat.opened(inner), compat.constants(inner))
    if sub.constants:
        return [None] * results
    known = {id(value): part for value, part in zip(sub.inputs, ins, strict=True)}
    for op in sub.ops:
        known |= zip(map(id, op.outs), _express(op, known), strict=True)
    return [_atom(atom, known) for atom in sub.outputs]


@functools.lru_cache(maxsize=1024)
def _forms(shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[Expression, Activation] | None:
    """Expression -> activation for arrays of this type; None where there is none."""
    if not jnp.issubdtype(dtype, jnp.floating):
        return None
    z = jax.ShapeDtypeStruct(shape, dtype)
    return {_trace(form, z): activation for activation, forms in FORMS.items() for form in forms}


def _trace(form: Callable[[Any], Any], z: Any) -> Expression:
    closed = jax.make_jaxpr(form)(z)
    (expression,) = _express_call(closed, ["z"], 1)
    return expression
