"""Walking and rebuilding nests: every pass is a rewrite of bodies through these few functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from jaxpipe.dynamic import BATCH_ROWS, LIMIT
from jaxpipe.ir.affine import Affine, Range, Var, substitute
from jaxpipe.ir.nodes import (
    Alloc,
    Buffer,
    Copy,
    Counter,
    Elementwise,
    Fill,
    For,
    Func,
    If,
    Less,
    Mma,
    Region,
    Role,
    Step,
    Stmt,
    Store,
)

Body = tuple[Stmt, ...]


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement, outer before inner, in order."""
    left = list(reversed(body))
    while left:
        statement = left.pop()
        yield statement
        left.extend(reversed(children(statement)))


def children(statement: Stmt) -> Body:
    """The statements directly inside."""
    match statement:
        case For(body=body) | If(body=body) | Role(body=body):
            return body
        case _:
            return ()


def rewrite(body: Body, rule: Callable[[Stmt], Body]) -> Body:
    """`body` with every statement, inner before outer, replaced by what `rule` gives for it."""
    result: list[Stmt] = []
    for statement in body:
        match statement:
            case For() | If() | Role():
                inner = rewrite(statement.body, rule)
                is_same = inner is statement.body
                result += rule(statement if is_same else replace(statement, body=inner))
            case _:
                result += rule(statement)
    is_same = len(result) == len(body) and all(map(operator.is_, result, body))
    return body if is_same else tuple(result)


def map_regions(statement: Stmt, change: Callable[[Region], Region]) -> Stmt:
    """A leaf with every region (operands of steps included) replaced; loops are left alone."""
    match statement:
        case Fill(dst, value):
            return Fill(change(dst), value)
        case Copy(dst, src, mode, steps):
            return Copy(change(dst), change(src), mode, _map_steps(steps, change))
        case Mma(acc, lhs, rhs):
            return Mma(change(acc), change(lhs), change(rhs))
        case Elementwise(dst, src, step):
            return Elementwise(change(dst), change(src), _map_steps((step,), change)[0])
        case Store(dst, src, steps):
            return Store(change(dst), change(src), _map_steps(steps, change))
        case _:
            return statement


def _map_steps(steps: tuple[Step, ...], change: Callable[[Region], Region]) -> tuple[Step, ...]:
    return tuple(s if s.operand is None else replace(s, operand=change(s.operand)) for s in steps)


def reads(statement: Stmt) -> tuple[Region, ...]:
    """Regions that a leaf reads."""
    match statement:
        case Copy(src=src, steps=steps) | Store(src=src, steps=steps):
            return (src, *_operands(steps, reading=True))
        case Elementwise(src=src, step=step):
            return (src, *_operands((step,), reading=True))
        case Mma(acc, lhs, rhs):
            return acc, lhs, rhs
        case _:
            return ()


def writes(statement: Stmt) -> tuple[Region, ...]:
    """Regions that a leaf writes."""
    match statement:
        case Fill(dst=dst):
            return (dst,)
        case Copy(dst=dst, steps=steps) | Store(dst=dst, steps=steps):
            return (dst, *_operands(steps, reading=False))
        case Elementwise(dst=dst, step=step):
            return (dst, *_operands((step,), reading=False))
        case Mma(acc=acc):
            return (acc,)
        case _:
            return ()


def _operands(steps: tuple[Step, ...], *, reading: bool) -> list[Region]:
    return [s.operand for s in steps if s.operand is not None and (s.op != "save") == reading]


def regions(statement: Stmt) -> tuple[Region, ...]:
    """Every region of a leaf."""
    return (*writes(statement), *reads(statement))


def substituted(body: Body, values: Mapping[str, Affine]) -> Body:
    """`body` with variables replaced in every region and condition."""

    def region(r: Region) -> Region:
        starts = tuple(substitute(s, values) for s in r.starts)
        return Region(r.buffer, starts, r.extents, substitute(r.stage, values))

    def rule(statement: Stmt) -> Body:
        match statement:
            case If(conditions, inner):
                changed = tuple(
                    Less(substitute(c.left, values), substitute(c.right, values))
                    for c in conditions
                )
                return (If(changed, inner),)
            case _:
                return (map_regions(statement, region),)

    return rewrite(body, rule)


def buffers(func: Func) -> dict[str, Buffer]:
    """Every buffer by name: parameters and allocations."""
    found = {buffer.name: buffer for buffer in func.params}
    for statement in walk(func.body):
        if isinstance(statement, Alloc):
            found[statement.buffer.name] = statement.buffer
    return found


def with_buffer(func: Func, buffer: Buffer) -> Func:
    """`func` whose allocation of `buffer.name` is this one."""

    def rule(statement: Stmt) -> Body:
        match statement:
            case Alloc(old) if old.name == buffer.name:
                return (Alloc(buffer),)
            case _:
                return (statement,)

    return replace(func, body=rewrite(func.body, rule))


def given(func: Func) -> dict[str, Range]:
    """Ranges of what is no loop variable: the rows that a call brings, and those before a batch
    entry's."""
    return {name: (0, LIMIT) for p in func.params if p.rows for name in (p.rows, BATCH_ROWS)}


def loop_range(loop: For) -> Range:
    """Smallest and largest value of a loop's variable."""
    return loop.start, max(loop.start, loop.stop - 1)


def counter_range(counter: Counter, loop: For) -> Range:
    """Smallest and largest value of a counter of `loop`."""
    if counter.modulus:
        return 0, counter.modulus - 1
    return counter.start, counter.start + loop.stop - loop.start


def ranges(func: Func) -> dict[str, Range]:
    """The range of every loop variable and counter; a name used twice gets the union."""
    found: dict[str, Range] = {}
    for statement in walk(func.body):
        if not isinstance(statement, For):
            continue
        spans = [(statement.var, loop_range(statement))]
        spans += [(c.name, counter_range(c, statement)) for c in statement.counters]
        for name, (low, high) in spans:
            before = found.get(name, (low, high))
            found[name] = (min(low, before[0]), max(high, before[1]))
    return found


def refined(ranges: Mapping[str, Range], conditions: tuple[Less, ...]) -> dict[str, Range]:
    """Ranges inside an If: a condition on one variable alone narrows it."""
    result = dict(ranges)
    for condition in conditions:
        slack = condition.right - condition.left - 1  # holds where slack >= 0
        match slack.terms:
            case ((Var(name), factor),) if name in result:
                low, high = result[name]
                if factor < 0:
                    high = min(high, slack.constant // -factor)
                else:
                    low = max(low, -(slack.constant // factor))
                result[name] = (low, max(low, high))
    return result


def without_dead(body: Body) -> Body:
    """`body` without allocations that nothing touches."""
    used = {r.buffer for s in walk(body) for r in (*reads(s), *writes(s))}

    def rule(statement: Stmt) -> Body:
        match statement:
            case Alloc(buffer) if buffer.name not in used:
                return ()
            case _:
                return (statement,)

    return rewrite(body, rule)
