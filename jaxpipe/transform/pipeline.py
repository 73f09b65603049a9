"""The pipelining pass: ALCOP's five steps on a tiled nest, at both memory levels.

In: a tiled nest and the verdicts on its buffers. Out: the nest with expanded buffers, shifted
copies, prologues and the four abstract synchronisation primitives (Acquire, Commit, Wait,
Release). Lowering those to a target's instructions is another pass. It must not know the target.

With S shared stages and R register stages over `for ko in E: for ki in Ei`, chunk ko:

    fill in 0..S-1:  acquire; copy chunk `fill` -> stage `fill`; commit           prologue
    wait; copy slices 0..R-2 of chunk 0 -> register stages                        inner prologue
    for ko:
      for ki:
        if ki is where the prefetch reaches chunk ko+1:  release; wait
        copy slice (ki+R-1) % Ei of chunk ko + (ki+R-1) / Ei -> register stage (ki+R-1) % R
        if ki == 0:  acquire; copy chunk ko+S-1 -> stage (ko+S-1) % S; commit
        mma on register stage ki % R
    release

The inner prologue stands outside the ko loop, so the inner pipeline never drains (ALCOP 3.2).
Two deliberate differences from the paper's artifact: past the last chunk copies are guarded off
(the artifact re-loads chunks modulo E, which costs bandwidth), and the wait precedes the issue of
the next copy when there is no inner pipeline (the artifact's order drains at two stages).
Source: ALCOP (MLSys 2023) section 3, figures 6 and 7; research notes part 1.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import ZERO, Affine, const, var
from jaxpipe.ir.nodes import (
    Acquire,
    Alloc,
    Buffer,
    Commit,
    Copy,
    For,
    Func,
    If,
    Less,
    Region,
    Release,
    Stmt,
    Wait,
)
from jaxpipe.ir.visit import (
    Body,
    buffers,
    map_regions,
    reads,
    rewrite,
    substituted,
    walk,
    with_buffer,
    writes,
)
from jaxpipe.transform.cache_read import hoisted
from jaxpipe.transform.detect import Verdict

PIPE = "smem"


@dataclass(frozen=True, slots=True)
class Level:
    """One memory level of the pipeline: its buffers and their common number of stages."""

    names: frozenset[str]
    stages: int


def pipeline(func: Func, found: tuple[Verdict, ...]) -> Func:
    """Apply the five steps to every buffer that the verdicts grant stages.

    A level with one stage is left unpipelined: acquire, copy, commit, wait, use, release in each
    step. Raises IrError when buffers of one scope were granted unlike stages.
    """
    shared, registers = _level(found, "shared"), _level(found, "register")
    for verdict in found:  # step 1: expand
        func = with_buffer(func, replace(buffers(func)[verdict.buffer], stages=verdict.granted))
    func, staging = _with_staging(func, shared)

    def rule(statement: Stmt) -> Body:
        if isinstance(statement, For) and _fills(statement.body, shared):
            return _streamed(statement, shared, registers, staging)
        return (statement,)

    return replace(func, body=rewrite(func.body, rule))


def _level(found: tuple[Verdict, ...], scope: str) -> Level:
    mine = [v for v in found if v.scope == scope]
    stages = {v.granted for v in mine} or {1}
    if len(stages) > 1:
        listed = ", ".join(f"{v.buffer}: {v.granted}" for v in mine)
        raise IrError(f"{scope} buffers with unlike stages in one pipeline ({listed})")
    return Level(frozenset(v.buffer for v in mine), stages.pop())


def _fills(body: Body, level: Level) -> bool:
    return any(_is_producer(s, level) for s in body)


def _is_producer(statement: Stmt, level: Level) -> bool:
    return any(r.buffer in level.names for r in writes(statement))


# ---------------------------------------------------------------------- copies through registers
def _with_staging(func: Func, shared: Level) -> tuple[Func, dict[str, str]]:
    """A staging buffer for every shared buffer that is filled through registers."""
    known, names, allocations = buffers(func), {}, []
    for statement in walk(func.body):
        match statement:
            case Copy(dst=dst, mode="staged") if dst.buffer in shared.names:
                target = known[dst.buffer]
                names[dst.buffer] = f"{dst.buffer}_staging"
                allocations.append(Alloc(_staging(target, names[dst.buffer])))
    return replace(func, body=hoisted(func.body, tuple(allocations))), names


def _staging(target: Buffer, name: str) -> Buffer:
    return Buffer(name, "staging", target.dtype, target.axes, target.shape)


def _issue(producers: Body, staging: dict[str, str]) -> Body:
    """The part of the copies that starts them: asynchronous copies, and loads into registers."""
    return tuple(_load(s, staging) for s in producers)


def _load(statement: Stmt, staging: dict[str, str]) -> Stmt:
    match statement:
        case Copy(dst, src, "staged"):
            return Copy(replace(dst, buffer=staging[dst.buffer], stage=ZERO), src)
        case _:
            return statement


def _finish(producers: Body, staging: dict[str, str]) -> Body:
    """The part that ends them: puts from registers into shared memory."""
    return tuple(
        Copy(s.dst, replace(s.dst, buffer=staging[s.dst.buffer], stage=ZERO))
        for s in producers
        if isinstance(s, Copy) and s.mode == "staged"
    )


# ---------------------------------------------------------------------- the shared level
@dataclass(frozen=True, slots=True)
class _Stream:
    """A streaming loop taken apart: what fills the shared buffers and what uses them."""

    loop: For
    shared: Level
    producers: Body
    consumers: Body
    staging: dict[str, str]

    @property
    def chunk(self) -> Affine:
        return var(self.loop.var)

    def prologue(self) -> For:
        """Step 4: chunks 0 .. S-2, before the loop."""
        fill = "fill"
        copies = _at(self.producers, self.loop.var, var(fill), self.shared)
        body = (
            Acquire(PIPE),
            *_issue(copies, self.staging),
            *_finish(copies, self.staging),
            Commit(PIPE),
        )
        return For(fill, 0, self.shared.stages - 1, "unrolled", body)

    def next_copies(self) -> tuple[Body, Body]:
        """Steps 2 and 3: start and end of the copy of chunk k+S-1, with one Commit."""
        ahead = self.chunk + (self.shared.stages - 1)
        copies = _at(self.producers, self.loop.var, ahead, self.shared)
        guard = (Less(ahead, const(self.loop.stop)),)
        start: Body = (Acquire(PIPE), If(guard, _issue(copies, self.staging)))
        puts = _finish(copies, self.staging)
        if not puts:
            return (*start, Commit(PIPE)), ()
        return start, (If(guard, puts), Commit(PIPE))


def _streamed(loop: For, shared: Level, registers: Level, staging: dict[str, str]) -> Body:
    producers = tuple(s for s in loop.body if _is_producer(s, shared))
    consumers = tuple(s for s in loop.body if not _is_producer(s, shared))
    stream = _Stream(loop, shared, producers, consumers, staging)
    if shared.stages == 1:
        return _unpipelined(stream, registers)
    inner = _inner_loop(consumers, registers) if registers.stages > 1 else None
    if inner is None:
        return _single_level(stream)
    return _two_level(stream, inner, registers)


def _unpipelined(stream: _Stream, registers: Level) -> Body:
    """One stage: the copy of a chunk is over before its use, which ends before the next copy."""
    body = (
        Acquire(PIPE),
        *_issue(stream.producers, stream.staging),
        *_finish(stream.producers, stream.staging),
        Commit(PIPE),
        Wait(PIPE),
        *_inner_only(stream.consumers, registers),
        Release(PIPE),
    )
    return (replace(stream.loop, body=body),)


def _single_level(stream: _Stream) -> Body:
    """Shared stages only: wait for chunk k, issue chunk k+S-1, use chunk k."""
    start, end = stream.next_copies()
    used = staged(stream.consumers, stream.shared, stream.chunk % stream.shared.stages)
    body = (Wait(PIPE), *start, *used, *end, Release(PIPE))
    return stream.prologue(), replace(stream.loop, body=body)


def _two_level(stream: _Stream, inner: For, registers: Level) -> Body:
    """Both levels: the inner pipeline prefetches across the outer step, its prologue is hoisted."""
    ahead = registers.stages - 1
    loads, uses = _inner_parts(inner, registers)
    last = const(stream.loop.stop)

    def loads_of(chunk: Affine, inner_index: Affine, stage: Affine) -> Body:
        moved = _at(loads, inner.var, inner_index, registers, stage)
        return staged(moved, stream.shared, chunk % stream.shared.stages)

    hoisted_loads = tuple(s for q in range(ahead) for s in loads_of(ZERO, const(q), const(q)))
    index = var(inner.var) + ahead
    next_chunk = stream.chunk + index // inner.stop  # the carry of the inner index
    prefetch = loads_of(next_chunk, index % inner.stop, index % registers.stages)
    start, end = stream.next_copies()
    body: Body = (
        *_when(_equal(inner, inner.stop - ahead), end),
        If(
            (*_equal(inner, inner.stop - ahead), Less(stream.chunk + 1, last)),
            (Release(PIPE), Wait(PIPE)),
        ),
        If((Less(next_chunk, last),), prefetch),
        If(_equal(inner, 0), start),
        *staged(uses, registers, var(inner.var) % registers.stages),
    )
    loop = replace(stream.loop, body=(replace(inner, body=body),))
    return stream.prologue(), Wait(PIPE), *hoisted_loads, loop, Release(PIPE)


# ---------------------------------------------------------------------- the register level
def _inner_only(consumers: Body, registers: Level) -> Body:
    """The register pipeline alone, inside one chunk: it fills and drains in every outer step."""
    inner = _inner_loop(consumers, registers) if registers.stages > 1 else None
    if inner is None:
        return consumers
    ahead = registers.stages - 1
    loads, uses = _inner_parts(inner, registers)
    index = var(inner.var) + ahead
    first = tuple(
        s for q in range(ahead) for s in _at(loads, inner.var, const(q), registers, const(q))
    )
    body = (
        If(
            (Less(index, const(inner.stop)),),
            _at(loads, inner.var, index, registers, index % registers.stages),
        ),
        *staged(uses, registers, var(inner.var) % registers.stages),
    )
    position = consumers.index(inner)
    return (
        *consumers[:position],
        *first,
        replace(inner, body=body),
        *consumers[position + 1 :],
    )


def _inner_loop(consumers: Body, registers: Level) -> For | None:
    for statement in consumers:
        if isinstance(statement, For) and _fills(statement.body, registers):
            return statement
    return None


def _inner_parts(inner: For, registers: Level) -> tuple[Body, Body]:
    """Statements that only serve to fill the level's buffers, and the others."""
    wanted = set(registers.names)
    loads: list[Stmt] = []
    for statement in reversed(inner.body):
        if any(r.buffer in wanted for r in writes(statement)):
            loads.append(statement)
            wanted |= {r.buffer for r in reads(statement)}
    return tuple(reversed(loads)), tuple(s for s in inner.body if s not in loads)


# ---------------------------------------------------------------------- small pieces
def staged(body: Body, level: Level, stage: Affine) -> Body:
    """`body` with every region of the level's buffers in this stage."""

    def change(region: Region) -> Region:
        return replace(region, stage=stage) if region.buffer in level.names else region

    return rewrite(body, lambda statement: (map_regions(statement, change),))


def _at(
    body: Body, variable: str, value: Affine, level: Level, stage: Affine | None = None
) -> Body:
    """`body` for another index of its loop, writing the stage of that index."""
    moved = substituted(body, {variable: value})
    return staged(moved, level, value % level.stages if stage is None else stage)


def _equal(loop: For, value: int) -> tuple[Less, ...]:
    """Conditions that hold where the loop's variable is `value`."""
    index = var(loop.var)
    low = () if value <= loop.start else (Less(const(value - 1), index),)
    high = () if value >= loop.stop - 1 else (Less(index, const(value + 1)),)
    return (*low, *high)


def _when(conditions: tuple[Less, ...], body: Body) -> Body:
    return (If(conditions, body),) if body else ()
