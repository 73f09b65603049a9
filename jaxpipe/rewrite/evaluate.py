"""Runs a jaxpr with its products replaced: the rules for equations that hold programs.

In: a jaxpr, its constants, operands (arrays or tracers), the caller's options, a list for sites.
Out: its results. Whatever transforms the outside (grad, vmap, jit, shard_map) sees the new
equations. User rules of custom_jvp and custom_vjp are kept, and their products replaced as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxpipe.errors import JaxpipeError
from jaxpipe.ops import compat, fused
from jaxpipe.ops.conv_spec import ConvSpec
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.options import Options
from jaxpipe.ops.plan import Abilities
from jaxpipe.ops.specs import Spec
from jaxpipe.rewrite.graph import Atom, Constant, Op, graph_of, sub_jaxprs
from jaxpipe.rewrite.groups import Group, grow
from jaxpipe.rewrite.order import ordered

PRODUCTS = ("dot_general", "conv_general_dilated", "jaxpipe_dot", "jaxpipe_conv")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A product that was found: what it became, or why it was left as it was."""

    spec: Spec
    fusion: Fusion
    operands: tuple[Any, ...]
    scope: str
    steps: tuple[str, ...] = ()
    left: str = ""


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Replaces products under `options` and notes them in `found`."""

    options: Options
    found: list[Rewritten] = field(default_factory=list)

    # -------------------------------------------------------------- a program
    def run(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr, open or closed."""
        graph = graph_of(compat.opened(jaxpr), consts)
        groups = self._groups(graph)
        env: dict[int, Any] = {id(v): x for v, x in zip(graph.inputs, operands, strict=True)}
        env |= {id(value): const for value, const in graph.constants}

        def read(atom: Atom) -> Any:
            return atom.value if isinstance(atom, Constant) else env[id(atom)]

        for node in ordered(graph, groups):
            if isinstance(node, Group):
                env |= self._run_group(node, [read(atom) for atom in node.operands])
            else:
                outs = self._run_op(node, [read(atom) for atom in node.ins])
                env |= {id(value): out for value, out in zip(node.outs, outs, strict=True)}
        return [read(atom) for atom in graph.outputs]

    def traced(self, jaxpr: Any) -> Any:
        """The same jaxpr with its products replaced; of the same kind, open or closed."""
        if not has_products(jaxpr):
            return jaxpr
        inner = compat.opened(jaxpr)
        avals = [v.aval for v in inner.invars]
        closed = jax.make_jaxpr(self._runner(jaxpr))(*avals)
        types = [[str(v.aval) for v in j.outvars] for j in (inner, closed.jaxpr)]
        assert types[0] == types[1], types
        return compat.reopened(closed, jaxpr)

    # -------------------------------------------------------------- products
    def _groups(self, graph: Any) -> list[Group]:
        """Products that kernels serve, with their epilogues; later ones choose first, so that a
        sum of two products is the later one's residual."""
        claimed: set[int] = set()
        groups = []
        for op in reversed(graph.ops):
            if op.name in PRODUCTS and (spec := self._served(op)) is not None:
                groups.append(grow(graph, op, spec, claimed))
        return groups

    def _served(self, op: Op) -> Spec | None:
        """The spec of a product that some kernel could take; others are noted and left."""
        spec = spec_of(op, self.options)
        types = [atom.aval for atom in op.ins[:2]]
        try:
            spec.plan(Fusion(), types[0], types[1], None, Abilities(has_patches=True))
        except JaxpipeError as error:
            self._note(spec, Fusion(), op, tuple(types), left=str(error))
            return None
        return spec

    def _run_group(self, group: Group, operands: list[Any]) -> dict[int, Any]:
        lhs, rhs, *extras = operands
        spec, fusion = group.final_spec, group.fusion
        if group.bias is not None:
            extras[0] = extras[0].reshape(spec.bias_shape(jax.typeof(lhs), jax.typeof(rhs)))
        if group.preactivation is not None:
            fusion = fusion.saving()
        types = tuple(jax.typeof(x) for x in operands)
        self._note(spec, fusion, group.op, types, steps=tuple(group.steps))
        with compat.equation_context(group.op.eqn):
            outs = fused.product(spec, fusion, lhs, rhs, *extras)
        values = {id(group.result): outs[0]}
        if group.preactivation is not None:
            values[id(group.preactivation)] = outs[1]
        return values

    def _note(
        self, spec: Spec, fusion: Fusion, op: Op, types: tuple[Any, ...], **words: Any
    ) -> None:
        scope = compat.scope_of(op.eqn)
        self.found.append(Rewritten(spec, fusion, types, scope, **words))

    # -------------------------------------------------------------- everything else
    def _run_op(self, op: Op, operands: list[Any]) -> list[Any]:
        rule = RULES.get(op.name, Rewriter._rebind)
        if not any(has_products(inner) for inner in sub_jaxprs(op.params)):
            rule = RULES_ALWAYS.get(op.name, Rewriter._bind_as_is)
        with compat.equation_context(op.eqn):
            outs = rule(self, op.eqn, operands)
        return list(outs) if op.eqn.primitive.multiple_results else [outs]

    def _bind_as_is(self, eqn: Any, operands: list[Any]) -> Any:
        return compat.rebind(eqn, operands)

    def _rebind(self, eqn: Any, operands: list[Any]) -> Any:
        """Every jaxpr among the parameters is rewritten: jit, scan, while, cond and others."""
        params = {name: self._param(value) for name, value in eqn.params.items()}
        return compat.rebind(eqn, operands, params)

    def _param(self, value: Any) -> Any:
        if isinstance(value, compat.JAXPR_TYPES):
            return self.traced(value)
        if isinstance(value, tuple) and any(isinstance(x, compat.JAXPR_TYPES) for x in value):
            new = [self._param(x) for x in value]
            return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
        return value

    def _checkpoint(self, eqn: Any, operands: list[Any]) -> Any:
        jaxpr, params = eqn.params["jaxpr"], eqn.params
        run = self._runner(jaxpr)
        return jax.checkpoint(run, policy=params["policy"], prevent_cse=params["prevent_cse"])(
            *operands
        )

    def _shard_map(self, eqn: Any, operands: list[Any]) -> Any:
        params = eqn.params
        mapped = jax.shard_map(
            self._runner(params["jaxpr"]),
            mesh=params["mesh"],
            in_specs=tuple(params["in_specs"]),
            out_specs=list(params["out_specs"]),
            axis_names=set(params["newly_manual_axes"]),
            check_vma=params["check_vma"],
        )
        outs: list[Any] = mapped(*operands)
        return outs

    def _custom_jvp(self, eqn: Any, operands: list[Any]) -> Any:
        def original(*xs: Any) -> Any:
            return compat.rebind(eqn, xs)

        function = jax.custom_jvp(self._runner(eqn.params["call_jaxpr"]))
        function.defjvp(self._through(lambda ps, ts: jax.jvp(original, ps, ts)))
        return function(*operands)

    def _custom_vjp(self, eqn: Any, operands: list[Any]) -> Any:
        def original(*xs: Any) -> Any:
            return compat.rebind(eqn, xs)

        function = jax.custom_vjp(self._runner(eqn.params["call_jaxpr"]))
        forward = self._through(lambda *xs: jax.vjp(original, *xs))
        backward = self._through(lambda pull, g: pull(g))
        function.defvjp(forward, backward)
        return function(*operands)

    def _runner(self, jaxpr: Any) -> Callable[..., Any]:
        return lambda *xs: self.run(jaxpr, compat.constants(jaxpr), xs)

    def _through(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """`fun` of trees of arrays, with its products replaced."""

        def wrapped(*args: Any) -> Any:
            flat, tree = jax.tree.flatten(args)
            return self.call(lambda *xs: fun(*jax.tree.unflatten(tree, xs)), flat)

        return wrapped

    def call(self, fun: Callable[..., Any], flat: Sequence[Any]) -> Any:
        """`fun(*flat)` of arrays, traced and run with its products replaced."""
        trees = []

        def flattened(*xs: Any) -> tuple[Any, ...]:
            leaves, tree = jax.tree.flatten(fun(*xs))
            trees.append(tree)
            return tuple(leaves)

        closed = jax.make_jaxpr(flattened)(*flat)
        outs = self.run(closed.jaxpr, closed.consts, flat)
        return jax.tree.unflatten(trees[-1], outs)


RULES: dict[str, Callable[[Rewriter, Any, list[Any]], Any]] = {
    "remat2": Rewriter._checkpoint,
    "checkpoint": Rewriter._checkpoint,
    "shard_map": Rewriter._shard_map,
    "custom_jvp_call": Rewriter._custom_jvp,
    "custom_vjp_call": Rewriter._custom_vjp,
}
# A custom_vjp without a product may have one in its rules.
RULES_ALWAYS = {"custom_vjp_call": Rewriter._custom_vjp}


def has_products(jaxpr: Any) -> bool:
    """True when a product stands anywhere in a jaxpr."""
    return any(
        eqn.primitive.name in PRODUCTS or any(has_products(sub) for sub in sub_jaxprs(eqn.params))
        for eqn in jaxpr.eqns
    )


def spec_of(op: Op, options: Options) -> Spec:
    """What a product asks for: lax's parameters, or the spec that ours carries."""
    params = op.params
    match op.name:
        case "dot_general":
            return DotSpec(
                params["dimension_numbers"], params["precision"],
                params["preferred_element_type"], params["out_sharding"], options,
            )  # fmt: skip
        case "conv_general_dilated":
            return ConvSpec.of(params, options)
        case _:
            spec: Spec = params["spec"]
            return spec
