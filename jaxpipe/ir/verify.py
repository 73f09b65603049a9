"""What must hold of a nest, after any pass and after each named stage.

In: a Func and the name of the stage that it has reached. Out: nothing; IrError names the
statement that breaks an invariant. A breach is a fault of a pass, never of a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import Affine, Range, bounds, free_variables
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
    Mma,
    Region,
    Release,
    Role,
    Stmt,
    Wait,
)
from jaxpipe.ir.printer import region_text, statement_text
from jaxpipe.ir.visit import Body, children, counter_range, given, loop_range, refined, regions

Stage = Literal["built", "tiled", "pipelined", "lowered"]


def verify(func: Func, stage: Stage) -> Func:
    """`func` itself, when it is sound at this stage; IrError otherwise.

    Always: names are defined before use and once, loop variables are in scope, ranks agree, boxes
    of local buffers stay inside, stage indices stay below the number of stages. From "tiled" on:
    products take registers, whose copies come from shared memory. "pipelined": no unstaged use of
    a staged buffer. "lowered": none of the abstract synchronisation statements is left, no
    condition depends on an unrolled variable.
    """
    scope = _Scope(func, stage)
    scope.body(func.body, given(func))
    return func


class _Scope:
    """A walk that knows the buffers and ranges in scope."""

    def __init__(self, func: Func, stage: Stage) -> None:
        self.func = func
        self.stage = stage
        self.known: dict[str, Buffer] = {}
        for param in func.params:
            self.declare(param)

    def fail(self, statement: Stmt, reason: str) -> None:
        text = statement_text(statement) if not children(statement) else type(statement).__name__
        raise IrError(f"{self.func.name} ({self.stage}): {reason}, in `{text}`")

    def declare(self, buffer: Buffer) -> None:
        if buffer.name in self.known:
            raise IrError(f"{self.func.name} ({self.stage}): {buffer.name} is declared twice")
        if len(buffer.axes) != len(buffer.shape) or buffer.stages < 1:
            raise IrError(f"{self.func.name} ({self.stage}): {buffer.name} has unlike axes, shape")
        self.known[buffer.name] = buffer

    def body(self, body: Body, ranges: Mapping[str, Range]) -> None:
        before = dict(self.known)
        for statement in body:
            self.statement(statement, ranges)
        self.known = before

    def statement(self, statement: Stmt, ranges: Mapping[str, Range]) -> None:
        match statement:
            case For():
                self.loop(statement, ranges)
            case If(conditions, body):
                for condition in conditions:
                    self.defined(statement, condition.right - condition.left, ranges)
                self.body(body, refined(ranges, conditions))
            case Role(body=body):
                self.body(body, ranges)
            case Alloc(buffer):
                self.declare(buffer)
            case _:
                for region in regions(statement):
                    self.region(statement, region, ranges)
                self.staged_rules(statement)

    def loop(self, loop: For, ranges: Mapping[str, Range]) -> None:
        if loop.var in ranges:
            self.fail(loop, f"loop variable {loop.var} is bound twice")
        if self.stage == "lowered" and loop.kind == "unrolled":
            self.fail(loop, f"loop {loop.var} is still to be unrolled")
        if loop.kind == "grid" or loop.stop > loop.start:
            inner = {**ranges, loop.var: loop_range(loop)}
            inner |= {c.name: counter_range(c, loop) for c in loop.counters}
            self.body(loop.body, inner)

    def defined(self, statement: Stmt, expr: Affine, ranges: Mapping[str, Range]) -> None:
        for name in free_variables(expr):
            if name not in ranges:
                self.fail(statement, f"{name} is not in scope")

    def region(self, statement: Stmt, region: Region, ranges: Mapping[str, Range]) -> None:
        buffer = self.known.get(region.buffer)
        if buffer is None:
            self.fail(statement, f"{region.buffer} is not declared")
            return
        if not len(region.starts) == len(region.extents) == len(buffer.shape):
            self.fail(statement, f"{region_text(region)} has another rank than {buffer.name}")
        for expr in (*region.starts, region.stage):
            self.defined(statement, expr, ranges)
        low, high = bounds(region.stage, ranges)
        if low < 0 or high >= buffer.stages:
            self.fail(statement, f"stage {low}..{high} of {buffer.stages} of {buffer.name}")
        if buffer.scope != "global":
            self.inside(statement, region, buffer, ranges)

    def inside(
        self, statement: Stmt, region: Region, buffer: Buffer, ranges: Mapping[str, Range]
    ) -> None:
        for start, extent, size in zip(region.starts, region.extents, buffer.shape, strict=True):
            low, high = bounds(start, ranges)
            if low < 0 or high + extent > size:
                self.fail(statement, f"{region_text(region)} leaves {buffer.name}")

    def staged_rules(self, statement: Stmt) -> None:
        scopes = [self.known[r.buffer].scope for r in regions(statement)]
        match statement:
            case Mma() if self.stage != "built" and len(set(scopes[-2:]) - {"global"}) != 1:
                self.fail(statement, "operands that are not both in registers or in shared memory")
            case Copy() if self.stage == "lowered" and scopes == ["register", "global"]:
                self.fail(statement, "a copy from global memory straight into fragments")
            case Elementwise() if self.stage == "lowered" and scopes[0] != "register":
                self.fail(statement, "an element-wise result that is not in registers")
            case Acquire() | Commit() | Wait() | Release() if self.stage == "lowered":
                self.fail(statement, "abstract synchronisation after its lowering")
            case _:
                return
