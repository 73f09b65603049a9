"""Lower acquire, commit, wait and release to a scope-synchronised target (cp.async groups).

In: a pipelined nest, its inner loops unrolled. Out: the same with CommitGroup, WaitGroup and
Barrier only. Counts of pending groups and the need for barriers are derived from the positions,
not assumed.
"""

from __future__ import annotations

from dataclasses import replace

from jaxpipe.errors import IrError
from jaxpipe.ir.nodes import (
    Acquire,
    Barrier,
    Commit,
    CommitGroup,
    For,
    Func,
    If,
    Release,
    Stmt,
    Store,
    Wait,
    WaitGroup,
)
from jaxpipe.ir.visit import Body, walk

_Event = Acquire | Commit | Wait | Release


def lower_sync(func: Func) -> Func:
    """One barrier a step wherever the order of the primitives allows:

        commit  ->  commit_group                    (empty groups count, so it is unconditional)
        wait    ->  wait_group n ; barrier          n = groups committed after the awaited one
        acquire ->  barrier, only if none lies between the last release and here
        release ->  nothing
        store   ->  barrier ; store                 (its staging uses the pipeline's memory again)

    Source: PTX ISA, cp.async.wait_group; research notes cuda.md section 3.5. Raises IrError where
    a Wait precedes every Commit, or a loop does not balance them.
    """
    return replace(func, body=_Lowering().body(func.body))


class _Lowering:
    """Walks the nest in order and counts groups on the straight path."""

    def __init__(self) -> None:
        self.commits = 0
        self.waits = 0
        self.loop_events: tuple[_Event, ...] = ()

    def body(self, body: Body) -> Body:
        result: list[Stmt] = []
        for statement in body:
            result += self.statement(statement)
        return tuple(result)

    def statement(self, statement: Stmt) -> Body:
        match statement:
            case For():
                return (self.loop(statement),)
            case If(conditions, inner):
                lowered = self.body(inner)
                return (If(conditions, lowered),) if lowered else ()
            case Store():
                return (Barrier(), statement) if self.commits else (statement,)
            case _:
                return self.event(statement)

    def event(self, statement: Stmt) -> Body:
        match statement:
            case Commit():
                self.commits += 1
                return (CommitGroup(),)
            case Wait():
                self.waits += 1
                if self.waits > self.commits:
                    raise IrError("a Wait has no Commit before it that it could wait for")
                return WaitGroup(self.commits - self.waits), Barrier()
            case Acquire():
                return (Barrier(),) if self.needs_barrier() else ()
            case Release():
                return ()
            case _:
                return (statement,)

    def loop(self, loop: For) -> For:
        if loop.kind != "serial":
            return replace(loop, body=self.body(loop.body))
        before, outer = (self.commits, self.waits), self.loop_events
        self.loop_events = tuple(s for s in walk(loop.body) if isinstance(s, _Event))
        lowered = replace(loop, body=self.body(loop.body))
        self.loop_events = outer
        step = (self.commits - before[0], self.waits - before[1])
        if step[0] != step[1]:
            raise IrError(f"loop {loop.var} commits {step[0]} groups a step, waits for {step[1]}")
        return lowered

    def needs_barrier(self) -> bool:
        """True when going back around the loop from Acquire meets a Release before a Wait."""
        kinds = [type(e) for e in self.loop_events]
        if Acquire not in kinds:
            return False
        position = kinds.index(Acquire)
        for kind in reversed(kinds[position + 1 :] + kinds[:position]):
            if kind is Wait:
                return False
            if kind is Release:
                return True
        return False
