"""Unroll, partition and simplify: from guarded loops to straight, specialised ones.

In: a pipelined nest. Out: the same meaning with fewer conditions. Each function is one pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from jaxpipe.ir.affine import Affine, Range, Ranges, Var, bounds, const, free_variables, simplify
from jaxpipe.ir.nodes import Buffer, Copy, For, Func, If, Less, Region, Stmt
from jaxpipe.ir.visit import (
    Body,
    buffers,
    loop_range,
    map_regions,
    refined,
    rewrite,
    substituted,
    walk,
)


def unroll(func: Func, variables: frozenset[str] = frozenset()) -> Func:
    """Write unrolled loops, and serial loops over `variables`, as straight statements:

    for ki in unrolled(2)       ->      body[ki := 0]
      body                              body[ki := 1]
    """

    def rule(statement: Stmt) -> Body:
        match statement:
            case For(kind="unrolled" | "serial") as loop if (
                loop.kind == "unrolled" or loop.var in variables
            ):
                indices = range(loop.start, loop.stop)
                return tuple(
                    s for i in indices for s in substituted(loop.body, {loop.var: const(i)})
                )
            case _:
                return (statement,)

    return replace(func, body=rewrite(func.body, rule))


def partition(func: Func) -> Func:
    """Cut serial loops where a condition on their variable changes, so that none is left:

        for ko in serial(0, 12)             for ko in serial(0, 9)      steady state
          if ko + 2 < 12: load       ->       load ; use
          use                               for ko in serial(9, 12) ...  tail and drain

    A copy that stays inside its global buffer up to some step and reaches past it later (the k
    tail) is such a condition too.
    """
    known = buffers(func)

    def cut(body: Body, ranges: dict[str, Range]) -> Body:
        result: list[Stmt] = []
        for statement in body:
            match statement:
                case For():
                    scope = {**ranges, statement.var: loop_range(statement)}
                    inner = replace(statement, body=cut(statement.body, scope))
                    result += _pieces(inner, scope, known) if inner.kind == "serial" else [inner]
                case If():
                    result.append(replace(statement, body=cut(statement.body, ranges)))
                case _:
                    result.append(statement)
        return tuple(result)

    return replace(func, body=cut(func.body, {}))


def _pieces(loop: For, ranges: Ranges, known: dict[str, Buffer]) -> list[For]:
    points = {p for s in walk(loop.body) for p in _thresholds(s, loop.var, ranges, known)}
    inside = sorted(p for p in points if loop.start < p < loop.stop)
    edges = [loop.start, *inside, loop.stop]
    return [replace(loop, start=low, stop=high) for low, high in itertools.pairwise(edges)]


def _thresholds(
    statement: Stmt, name: str, ranges: Ranges, known: dict[str, Buffer]
) -> Iterator[int]:
    """Values of the variable from which on a condition of the statement is another."""
    match statement:
        case If(conditions):
            for condition in conditions:
                yield from _root(condition.right - condition.left - 1, name, ranges)
        case Copy(src=src) if known[src.buffer].scope == "global":
            shape = known[src.buffer].shape
            for start, extent, size in zip(src.starts, src.extents, shape, strict=True):
                yield from _root(const(size - extent) - start, name, ranges)


def _root(slack: Affine, name: str, ranges: Ranges) -> Iterator[int]:
    """The first value of the variable for which `slack`, falling in it, may be negative."""
    factor = dict(slack.terms).get(Var(name), 0)
    rest = slack - Affine(((Var(name), 1),)) * factor
    if factor >= 0 or name in free_variables(rest):
        return
    if all(v in ranges for v in free_variables(rest)):
        yield bounds(rest, ranges)[0] // -factor + 1


def simplified(func: Func) -> Func:
    """Drop what ranges decide: conditions, quotients, loops of no step; inline loops of one.

    Grid and warp loops stay, whatever their extent.
    """
    return replace(func, body=_simple_body(func.body, {}))


def _simple_body(body: Body, ranges: dict[str, Range]) -> Body:
    result: list[Stmt] = []
    for statement in body:
        match statement:
            case For():
                result += _simple_loop(statement, ranges)
            case If():
                result += _simple_if(statement, ranges)
            case _:
                result.append(map_regions(statement, lambda r: _simple_region(r, ranges)))
    return tuple(result)


def _simple_loop(loop: For, ranges: dict[str, Range]) -> Body:
    trips = loop.stop - loop.start
    if loop.kind in ("serial", "unrolled"):
        if trips <= 0:
            return ()
        if trips == 1:
            inlined = substituted(loop.body, {loop.var: const(loop.start)})
            return _simple_body(inlined, ranges)
    scope = {**ranges, loop.var: loop_range(loop)}
    return (replace(loop, body=_simple_body(loop.body, scope)),)


def _simple_if(statement: If, ranges: dict[str, Range]) -> Body:
    left: list[Less] = []
    for condition in statement.conditions:
        low, high = bounds(condition.right - condition.left, ranges)
        if high <= 0:
            return ()
        if low <= 0:
            left.append(condition)
    body = _simple_body(statement.body, refined(ranges, statement.conditions))
    if not body or not left:
        return body
    return (If(tuple(left), body),)


def _simple_region(region: Region, ranges: Ranges) -> Region:
    starts = tuple(simplify(s, ranges) for s in region.starts)
    return replace(region, starts=starts, stage=simplify(region.stage, ranges))
