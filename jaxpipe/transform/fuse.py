"""Fuse element-wise statements: producers into the copy that follows, the epilogue into one store.

Where a producer is fused decides whether its buffer can still be pipelined: into a copy from
global to shared memory, the copy computes and rule 1 refuses it; into the copy to registers, the
copy before it stays pure. Hence the order cache-read, tile, pipeline, fuse (ALCOP section 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jaxpipe.ir.nodes import Copy, Elementwise, For, Func, If, Step, Stmt, Store
from jaxpipe.ir.visit import Body, rewrite, without_dead


def fuse_producers(func: Func) -> Func:
    """Inline element-wise producers into the copies that read them:

    map t = s | f           ->      copy d <- s | f
    copy d <- t
    """
    return replace(func, body=without_dead(_every_body(func.body, _fused_copies)))


def _every_body(body: Body, rule: Callable[[Body], Body]) -> Body:
    """Apply `rule` to every statement list, inner before outer."""

    def inside(statement: Stmt) -> Body:
        match statement:
            case For() | If():
                return (replace(statement, body=rule(statement.body)),)
            case _:
                return (statement,)

    return rule(rewrite(body, inside))


def _fused_copies(body: Body) -> Body:
    result: list[Stmt] = []
    produced: dict[object, Elementwise] = {}
    for statement in body:
        match statement:
            case Elementwise(dst=dst) if _is_read_by_copy(dst.buffer, body):
                produced[dst] = statement
            case Copy(src=src) if src in produced:
                producer = produced[src]
                steps = (producer.step, *statement.steps)
                result.append(replace(statement, src=producer.src, steps=steps))
            case _:
                result.append(statement)
    return tuple(result)


def _is_read_by_copy(name: str, body: Body) -> bool:
    return any(isinstance(s, Copy) and s.src.buffer == name for s in body)


def fuse_epilogue(func: Func) -> Func:
    """The chain of element-wise statements before the last store becomes its steps:

    map t = acc | f                         store out <- acc | f | save pre | g
    store pre <- t              ->
    map u = t | g
    store out <- u
    """
    return replace(func, body=without_dead(_every_body(func.body, _fused_store)))


def _fused_store(body: Body) -> Body:
    stores = [s for s in body if isinstance(s, Store)]
    if not stores:
        return body
    chain = _chain(body, stores[-1])
    side = {s.src: s for s in stores[:-1]}
    steps: list[Step] = []
    for statement in chain:
        steps.append(statement.step)
        if statement.dst in side:
            steps.append(Step("save", side[statement.dst].dst))
    first = chain[0].src if chain else stores[-1].src
    if first in side:
        steps.insert(0, Step("save", side[first].dst))
    kept = tuple(s for s in body if s not in chain and s not in stores)
    return (*kept, replace(stores[-1], src=first, steps=tuple(steps)))


def _chain(body: Body, store: Store) -> list[Elementwise]:
    """Element-wise statements that lead to the store's source, first to last."""
    chain: list[Elementwise] = []
    wanted = store.src
    for statement in reversed(body):
        match statement:
            case Elementwise(dst=dst, src=src) if dst == wanted and dst != src:
                chain.insert(0, statement)
                wanted = src
    return chain
