"""Finds what one kernel can do: a product and the epilogue that follows it in the program.

In: a graph, one of its products. Out: a `Group`. The chain that is looked for is

    product -> scale by a number -> + bias -> activation -> + residual     (each step optional)
    product -> scale by a number -> + bias and + residual -> activation    (in residual networks)
    product -> scale by a number -> times an activation's derivative       (in gradients)

with casts between floating-point types anywhere, and before it a float32 weight that is rounded
for this product alone. A step joins only when its value has no other use. The pre-activation alone
may have others: the kernel then writes it as a second result. The whole chain is summed and
computed in float32 and rounded once, to the type of its last value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import jax.numpy as jnp
import numpy as np

from jaxpipe.ops import compat
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.rounded_spec import ROUNDED, RoundedSpec
from jaxpipe.ops.specs import Spec
from jaxpipe.rewrite.activations import find_activation
from jaxpipe.rewrite.graph import Atom, Constant, Graph, Op, Value, descends_from

FUSED_DTYPES = ("float32", "bfloat16", "float16")
ADDS = ("add", "add_any")


@dataclass(slots=True, eq=False)
class Group:
    """A product with its epilogue: operands, what it computes, the values that it stands for.

    result is the chain's last value; preactivation is None unless something else needs it; weight
    is what rhs is rounded from, if it is.
    """

    op: Op
    spec: Spec
    fusion: Fusion
    result: Value
    bias: Value | None = None
    residual: Value | None = None
    preactivation: Value | None = None
    weight: Value | None = None
    steps: list[str] = field(default_factory=list)
    stopped: str = ""

    @property
    def operands(self) -> list[Atom]:
        """lhs, rhs and the fused operands."""
        extras = [x for x in (self.bias, self.residual) if x is not None]
        lhs, rhs = self.op.ins[:2]
        return [lhs, self.weight or rhs, *extras]

    @property
    def final_spec(self) -> Spec:
        """The spec whose result has the type of the chain's last value."""
        wanted, spec = np.dtype(self.result.aval.dtype), self.spec
        if wanted != np.dtype(self.op.outs[0].aval.dtype):
            spec = replace(spec, preferred_element_type=wanted)
        if self.weight is None or not isinstance(spec, DotSpec):
            return spec
        return RoundedSpec(spec, np.dtype(self.op.ins[1].aval.dtype).name)


def grow(graph: Graph, op: Op, spec: Spec, claimed: set[int]) -> Group:
    """The longest chain after product `op`; `claimed` holds operations that other groups took."""
    group = Group(op, spec, Fusion(), op.outs[0], weight=_rounded_from(op, spec))
    if np.dtype(op.outs[0].aval.dtype).name not in FUSED_DTYPES:
        group.stopped = f"a {op.outs[0].aval.dtype} result takes no epilogue"
        return group
    _cast(graph, group, claimed)
    for step in (_scale, _add_bias, _add_residual, _add_bias, _activate, _add_residual):
        step(graph, group, claimed)
        if step is _scale and _derive(group, claimed):
            break
        _cast(graph, group, claimed)
    _drop_widening_end(group, claimed)
    return group


def _rounded_from(op: Op, spec: Spec) -> Value | None:
    """The float32 value that rhs is rounded from for this product alone, to lhs's 16-bit type."""
    lhs, rhs = op.ins[:2]
    if not isinstance(rhs, Value) or rhs.producer is None:
        return None
    if not isinstance(spec, DotSpec) or spec.out_sharding is not None:
        return None
    narrow, made = np.dtype(rhs.aval.dtype), rhs.producer
    alone = len(rhs.users) == 1 and not rhs.is_output and made.name == "convert_element_type"
    if not alone or narrow.name not in ROUNDED or narrow != np.dtype(lhs.aval.dtype):
        return None
    source = made.ins[0]
    if not isinstance(source, Value) or np.dtype(source.aval.dtype) != np.float32:
        return None
    return source


def _only_user(group: Group, claimed: set[int]) -> Op | None:
    """The one operation that uses the chain's end, if nothing else does."""
    value = group.result
    if value.is_output or len(value.users) != 1 or id(value.users[0]) in claimed:
        return None
    return value.users[0]


def _take(group: Group, user: Op, step: str, claimed: set[int]) -> None:
    group.result = user.outs[0]
    group.steps.append(step)
    claimed.add(id(user))


def _cast(graph: Graph, group: Group, claimed: set[int]) -> None:
    """A conversion between floating-point types that kernels write."""
    user = _only_user(group, claimed)
    if user is None or user.name != "convert_element_type" or group.preactivation is not None:
        return
    if np.dtype(user.outs[0].aval.dtype).name in FUSED_DTYPES:
        _take(group, user, f"cast to {user.outs[0].aval.dtype}", claimed)


def _drop_widening_end(group: Group, claimed: set[int]) -> None:
    """A cast to a wider type that nothing follows is better left: the kernel would write twice the
    bytes, and XLA fuses the cast with its reader."""
    made = group.result.producer
    while made is not None and made.name == "convert_element_type":
        source = made.ins[0]
        if isinstance(source, Constant) or _bits(source) >= _bits(group.result):
            return
        claimed.discard(id(made))
        group.result, made = source, source.producer
        group.steps.pop()


def _bits(value: Value) -> int:
    return int(jnp.finfo(value.aval.dtype).bits)


def _scale(graph: Graph, group: Group, claimed: set[int]) -> None:
    """Multiplication with, or division by, a number."""
    user = _only_user(group, claimed)
    if user is None or user.name not in ("mul", "div"):
        return
    left, right = user.ins
    factor = left if right is group.result and user.name == "mul" else right
    number = _number(factor)
    if number is None or (user.name == "div" and number == 0.0):
        return
    alpha = number if user.name == "mul" else 1.0 / number
    if math.isfinite(alpha):
        group.fusion = replace(group.fusion, alpha=alpha)
        _take(group, user, f"scale {alpha:g}", claimed)


def _number(atom: Atom) -> float | None:
    """The scalar that an operand holds everywhere, or None."""
    if isinstance(atom, Constant):
        return (
            float(np.asarray(atom.value).astype(np.float64)) if np.ndim(atom.value) == 0 else None
        )
    made = atom.producer
    if made is not None and made.name in ("broadcast_in_dim", "convert_element_type"):
        return _number(made.ins[0])
    return None


def _add_bias(graph: Graph, group: Group, claimed: set[int]) -> None:
    """Addition of a value that varies along the result's trailing dimensions only."""
    user = _only_user(group, claimed)
    if group.bias is not None or user is None or user.name not in ADDS:
        return
    other = _other(user, group.result)
    shape = group.spec.bias_shape(*(atom.aval for atom in group.op.ins[:2]))
    vector = None if other is None else _vector(other, group.result.aval.shape, len(shape))
    if vector is not None and not descends_from(vector, group.op):
        group.bias = vector
        group.fusion = replace(group.fusion, bias=True)
        _take(group, user, "bias", claimed)


def _other(user: Op, value: Value) -> Value | None:
    """The other operand of a sum, when it is an array."""
    left, right = user.ins
    other = right if left is value else left
    return other if isinstance(other, Value) and other is not value else None


def _vector(value: Value, shape: tuple[int, ...], trailing: int) -> Value | None:
    """The array of `trailing` dimensions that `value` repeats over the leading ones, or None."""
    if not trailing or not jnp.issubdtype(value.aval.dtype, jnp.floating):
        return None
    lead = len(shape) - trailing
    if value.aval.shape == (1,) * lead + shape[lead:] and lead:
        return value
    made = value.producer
    if made is None or made.name != "broadcast_in_dim" or not isinstance(made.ins[0], Value):
        return None
    inner, places = made.ins[0], made.params["broadcast_dimensions"]
    sizes = {dim: inner.aval.shape[i] for i, dim in enumerate(places)}
    repeats = all(sizes.get(dim, 1) == 1 for dim in range(lead))
    varies = all(sizes.get(dim, 1) == shape[dim] for dim in range(lead, len(shape)))
    return inner if repeats and varies and lead else None


def _activate(graph: Graph, group: Group, claimed: set[int]) -> None:
    """An activation of the chain's end; other uses of it make it a second result."""
    z = group.result
    found = find_activation(graph, z)
    if found is None or found.inside & claimed:
        return
    elsewhere = z.is_output or any(id(user) not in found.inside for user in z.users)
    leaks = any(
        value.is_output or any(id(user) not in found.inside for user in value.users)
        for value in _values_inside(graph, found.inside)
        if value is not found.result
    )
    if elsewhere or leaks:
        group.preactivation = z
    first = group.fusion.residual
    group.fusion = replace(group.fusion, activation=found.activation, residual_first=first)
    group.result = found.result
    group.steps.append(found.activation)
    claimed |= found.inside


def _derive(group: Group, claimed: set[int]) -> bool:
    """The step back through an activation: derivative(z, t) with t the chain's end."""
    user = _only_user(group, claimed)
    if user is None or user.name != "jaxpipe_derivative" or user.params["order"] != 1:
        return False
    z, t = user.ins
    fits = t is group.result and isinstance(z, Value) and not descends_from(z, group.op)
    if not fits or not isinstance(z, Value):
        return False
    if z.aval.dtype != t.aval.dtype or not compat.same_sharding(z.aval, t.aval):
        return False
    group.residual = z
    activation = user.params["activation"]
    group.fusion = replace(group.fusion, residual=True, derivative=activation)
    _take(group, user, f"derivative of {activation}", claimed)
    return True


def _values_inside(graph: Graph, inside: frozenset[int]) -> list[Value]:
    return [value for op in graph.ops if id(op) in inside for value in op.outs]


def _add_residual(graph: Graph, group: Group, claimed: set[int]) -> None:
    """Addition of an array of the result's shape that does not depend on the product."""
    user = _only_user(group, claimed)
    if group.residual is not None or user is None or user.name not in ADDS:
        return
    other = _other(user, group.result)
    fits = other is not None and other.aval.shape == group.result.aval.shape
    if not fits or other is None or descends_from(other, group.op):
        return
    if np.dtype(other.aval.dtype).name in FUSED_DTYPES and compat.same_sharding(
        other.aval, group.result.aval
    ):
        group.residual = other
        group.fusion = replace(group.fusion, residual=True)
        _take(group, user, "residual", claimed)
