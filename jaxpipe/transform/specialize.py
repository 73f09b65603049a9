"""Split a pipelined nest into a producer and a consumer that run side by side (mbarrier rings).

In: a nest that `pipeline` has treated, with one level of shared stages. Out: the same copies and
products in two roles. A target with a barrier for each slot needs no prologue and no order between
a copy and a product: the producer runs ahead as far as the ring allows. It must not know the
instructions. Source: PTX ISA, mbarrier; CUTLASS's warp-specialised kernels for the idea.
"""

from __future__ import annotations

from dataclasses import replace

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import Affine, const, var
from jaxpipe.ir.nodes import (
    Acquire,
    Alloc,
    Buffer,
    Commit,
    Copy,
    Elementwise,
    For,
    Func,
    If,
    Less,
    Mma,
    Region,
    Release,
    Role,
    Step,
    Stmt,
    Wait,
    WaitMma,
)
from jaxpipe.ir.visit import Body, map_regions, rewrite, substituted, walk, writes
from jaxpipe.transform.pipeline import PIPE


def absorb_rounding(func: Func, op: str = "round_tf32") -> Func:
    """Let the copy engine round operands as it copies them, so that the copy stays pure:

        copy s <- lhs                         copy s <- lhs
        map t = s | round_tf32        ->      mma acc += s @ ...
        mma acc += t @ ...

    The tensor map of the operand then has the rounding data type. Source: CUDA driver API,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32.
    """
    rounded: dict[str, Region] = {}

    def rule(statement: Stmt) -> Body:
        match statement:
            case Elementwise(dst, src, Step(name)) if name == op:
                rounded[dst.buffer] = src
                return ()
            case Mma():
                return (map_regions(statement, lambda r: rounded.get(r.buffer, r)),)
            case _:
                return (statement,)

    return replace(func, body=_without(rewrite(func.body, rule), frozenset(rounded)))


def _without(body: Body, names: frozenset[str]) -> Body:
    def rule(statement: Stmt) -> Body:
        match statement:
            case Alloc(buffer) if buffer.name in names:
                return ()
            case _:
                return (statement,)

    return rewrite(body, rule)


def specialize(func: Func, stages: int, in_flight: int) -> Func:
    """One producer and one consumer role, with `stages` slots and `in_flight` products unwaited:

        for fill: acquire; copy s{fill}; commit      producer: for ko: acquire
        for ko:                                                        copy s{ko % S} <- chunk ko
          wait                                                         commit
          acquire; copy s{(ko+S-1) % S}; commit  ->  consumer: for ko: wait
          mma s{ko % S}                                                mma s{ko % S}
          release                                                      wait_mma F
        store                                                          if F <= ko: release
                                                               wait_mma 0; release ...; store

    A ring may have more slots than the loop has steps: a block that computes several tiles runs on
    through it. Raises IrError when the nest has no stream of copies and products, or a second
    level of stages.
    """
    if not any(isinstance(s, Wait) for s in walk(func.body)):
        raise IrError(f"specialize: {func.name} has no pipelined loop")
    if in_flight >= stages:
        raise IrError(f"specialize: {in_flight} products in flight hold all {stages} slots")

    def rule(statement: Stmt) -> Body:
        match statement:
            case Alloc(Buffer(scope="shared") as buffer):
                return (Alloc(replace(buffer, stages=stages)),)
            case For(kind="grid") as block:
                return (replace(block, body=_roles(block.body, stages, in_flight)),)
            case _:
                return (statement,)

    return replace(func, body=rewrite(func.body, rule))


def _roles(body: Body, stages: int, in_flight: int) -> Body:
    """`body` with its stream taken apart, if it has one."""
    streams = [s for s in body if isinstance(s, For) and _is_stream(s)]
    if not streams:
        return body
    (stream,) = streams
    shared = {r.buffer for s in walk(stream.body) if isinstance(s, Copy) for r in writes(s)}
    position = body.index(stream)
    before = tuple(s for s in body[:position] if not _is_prologue(s))
    allocations = tuple(s for s in before if isinstance(s, Alloc))
    start = tuple(s for s in before if not isinstance(s, Alloc))
    ring = _Ring(stream, frozenset(shared), stages)
    consumer = (*start, *ring.consumer(in_flight), *body[position + 1 :])
    return (*allocations, Role("producer", (ring.producer(),)), Role("consumer", consumer))


def _is_stream(loop: For) -> bool:
    return loop.kind == "serial" and any(isinstance(s, Wait) for s in loop.body)


def _is_prologue(statement: Stmt) -> bool:
    return isinstance(statement, For) and any(isinstance(s, Acquire) for s in statement.body)


class _Ring:
    """A streaming loop and the slots that it fills."""

    def __init__(self, stream: For, shared: frozenset[str], stages: int) -> None:
        self.stream = stream
        self.shared = shared
        self.slot = var(stream.var) % stages

    def producer(self) -> For:
        """Chunk ko into slot ko % S, with nothing issued ahead of its own step."""
        body: list[Stmt] = []
        for statement in self.stream.body:
            match statement:
                case If(conditions=(Less(left, _),), body=inner) if self._copies(inner):
                    back = {self.stream.var: var(self.stream.var) - self._lead(left)}
                    body += substituted(inner, back)
                case Copy():
                    body.append(statement)
                case _:
                    continue
        if not body:
            raise IrError(f"specialize: loop {self.stream.var} copies nothing")
        return replace(self.stream, body=(Acquire(PIPE), *self.in_slot(tuple(body)), Commit(PIPE)))

    def _lead(self, index: Affine) -> int:
        """How many steps ahead of its use a copy is issued: ko + lead < stop guards it."""
        lead = index - var(self.stream.var)
        if not lead.is_constant:
            raise IrError(f"specialize: copies of loop {self.stream.var} are guarded by {index}")
        return lead.constant

    def consumer(self, in_flight: int) -> Body:
        """Products step by step; a slot is released when no product in flight reads it."""
        uses = tuple(s for s in self.stream.body if not self._is_producing(s))
        if not any(isinstance(s, Mma) for s in uses):
            raise IrError(f"specialize: loop {self.stream.var} multiplies nothing in its own step")
        step, stop = var(self.stream.var), self.stream.stop
        release: Stmt = Release(PIPE)
        if in_flight:
            release = If((Less(const(in_flight - 1), step),), (release,))
        body = (Wait(PIPE), *self.in_slot(uses), WaitMma(in_flight), release)
        left = min(in_flight, stop - self.stream.start)
        return replace(self.stream, body=body), WaitMma(0), *(Release(PIPE),) * left

    def _copies(self, body: Body) -> bool:
        return any(r.buffer in self.shared for s in body for r in writes(s))

    def _is_producing(self, statement: Stmt) -> bool:
        match statement:
            case Acquire() | Commit() | Wait() | Release():
                return True
            case If(body=inner):
                return self._copies(inner)
            case _:
                return self._copies((statement,))

    def in_slot(self, body: Body) -> Body:
        """`body` with the shared buffers in the slot of the step."""

        def change(region: Region) -> Region:
            return replace(region, stage=self.slot) if region.buffer in self.shared else region

        return rewrite(body, lambda statement: (map_regions(statement, change),))
