"""A jaxpr as a graph of values: who makes a value, who uses it, in one place to match patterns on.

In: a jaxpr with its constants. Out: a `Graph`. Plain `jax.jit` equations are inlined, so that a
product inside `jnp.einsum` and the bias outside are neighbours; everything else stays as it is. It
must not know products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxpipe.ops import compat


@dataclass(eq=False, slots=True)
class Value:
    """One array of the program: its type, the operation that makes it (None: given)."""

    aval: Any
    producer: Op | None = None
    users: list[Op] = field(default_factory=list)
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar written into the program."""

    aval: Any
    value: Any


Atom = Value | Constant


@dataclass(eq=False, slots=True)
class Op:
    """One equation, its operands and results as values."""

    eqn: Any
    ins: list[Atom]
    outs: list[Value]

    @property
    def name(self) -> str:
        """The primitive's name."""
        return str(self.eqn.primitive.name)

    @property
    def params(self) -> dict[str, Any]:
        """The primitive's parameters."""
        return self.eqn.params  # type: ignore[no-any-return]


@dataclass(eq=False, slots=True)
class Graph:
    """A program: given values, constants with their arrays, operations in order, results."""

    inputs: list[Value]
    constants: list[tuple[Value, Any]]
    ops: list[Op]
    outputs: list[Atom]


def graph_of(jaxpr: Any, consts: Sequence[Any]) -> Graph:
    """The graph of a jaxpr (open or closed) with `consts` for its constvars."""
    inputs = [Value(v.aval) for v in jaxpr.invars]
    constants = [Value(v.aval) for v in jaxpr.constvars]
    graph = Graph(inputs, list(zip(constants, consts, strict=True)), [], [])
    env: dict[Any, Atom] = dict(zip(jaxpr.invars, inputs, strict=True))
    env |= zip(jaxpr.constvars, constants, strict=True)
    graph.outputs = _add(graph, jaxpr, env)
    for atom in graph.outputs:
        if isinstance(atom, Value):
            atom.is_output = True
    return graph


def _add(graph: Graph, jaxpr: Any, env: dict[Any, Atom]) -> list[Atom]:
    """Append jaxpr's equations, reading names from `env`; returns its results."""
    for eqn in jaxpr.eqns:
        ins = [_read(atom, env) for atom in eqn.invars]
        if (inner := inlinable(eqn)) is not None:
            outs = _inline(graph, inner, ins)
        else:
            op = Op(eqn, ins, [])
            op.outs = [Value(v.aval, op) for v in eqn.outvars]
            graph.ops.append(op)
            for atom in ins:
                if isinstance(atom, Value):
                    atom.users.append(op)
            outs = list(op.outs)
        env |= zip(eqn.outvars, outs, strict=True)
    return [_read(atom, env) for atom in jaxpr.outvars]


def _read(atom: Any, env: dict[Any, Atom]) -> Atom:
    return Constant(atom.aval, atom.val) if isinstance(atom, compat.Literal) else env[atom]


def _inline(graph: Graph, inner: Any, ins: list[Atom]) -> list[Atom]:
    jaxpr = compat.opened(inner)
    env: dict[Any, Atom] = dict(zip(jaxpr.invars, ins, strict=True))
    for var, const in zip(jaxpr.constvars, compat.constants(inner), strict=True):
        value = Value(var.aval)
        graph.constants.append((value, const))
        env[var] = value
    return _add(graph, jaxpr, env)


def inlinable(eqn: Any) -> Any:
    """The closed jaxpr of a jit equation that says nothing of shardings or layouts, else None."""
    if eqn.primitive.name not in ("jit", "pjit"):
        return None
    words = ("in_shardings", "out_shardings", "in_layouts", "out_layouts")
    said = [entry for word in words for entry in eqn.params.get(word, ())]
    if any(not _is_unspecified(entry) for entry in said) or any(eqn.params["donated_invars"]):
        return None
    inner = eqn.params["jaxpr"]
    return None if inner.effects else inner


def _is_unspecified(entry: Any) -> bool:
    """JAX has no public name for "not specified"."""
    return entry is None or type(entry).__name__ == "UnspecifiedValue"


def sub_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Jaxprs among an equation's parameters, also inside tuples."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, compat.JAXPR_TYPES):
                yield item


def descends_from(value: Atom, ancestor: Op) -> bool:
    """True when `value` is computed from a result of `ancestor`."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        atom = todo.pop()
        if isinstance(atom, Constant) or atom.producer is None or id(atom) in seen:
            continue
        seen.add(id(atom))
        if atom.producer is ancestor:
            return True
        todo.extend(atom.producer.ins)
    return False
