"""What a rewritten program evaluates, in which order: live operations and groups only.

In: a graph and its groups. Out: nodes, each after what it needs, near the original order. A group
stands for the operations that it took; those that something else still needs stay.
"""

from __future__ import annotations

from jaxpipe.rewrite.graph import Atom, Graph, Op, Value
from jaxpipe.rewrite.groups import Group

Node = Op | Group


def ordered(graph: Graph, groups: list[Group]) -> list[Node]:
    """Nodes that results or effects need, each after its operands."""
    makers = {id(value): op for op in graph.ops for value in op.outs} | _group_values(groups)
    roots: list[Node] = [op for op in graph.ops if op.eqn.effects]
    roots += [makers[id(v)] for v in graph.outputs if isinstance(v, Value) and id(v) in makers]
    place = {id(op): i for i, op in enumerate(graph.ops)}
    place |= {id(group): place[id(group.op)] for group in groups}
    return _depth_first(sorted(roots, key=lambda node: place[id(node)]), makers)


def _group_values(groups: list[Group]) -> dict[int, Node]:
    found: dict[int, Node] = {}
    for group in groups:
        found[id(group.result)] = group
        if group.preactivation is not None:
            found[id(group.preactivation)] = group
    return found


def _depth_first(roots: list[Node], makers: dict[int, Node]) -> list[Node]:
    """Post-order without recursion: programs are deeper than Python's stack."""
    done: list[Node] = []
    state: set[int] = set()
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(roots)]
    while stack:
        node, finished = stack.pop()
        if finished:
            done.append(node)
        elif id(node) not in state:
            state.add(id(node))
            stack.append((node, True))
            needed = [makers[id(a)] for a in _operands(node) if id(a) in makers]
            stack += [(n, False) for n in reversed(needed) if id(n) not in state]
    return done


def _operands(node: Node) -> list[Atom]:
    return node.operands if isinstance(node, Group) else node.ins
