"""The loop IR as text: one statement a line, for people, dumps and golden files."""

from __future__ import annotations

from collections.abc import Iterator

from jaxpipe.ir.affine import Affine
from jaxpipe.ir.nodes import (
    Acquire,
    Alloc,
    Barrier,
    Buffer,
    Commit,
    CommitGroup,
    Copy,
    Counter,
    Elementwise,
    Fill,
    For,
    Func,
    If,
    Mma,
    Region,
    Release,
    Role,
    Step,
    Stmt,
    Store,
    Wait,
    WaitGroup,
    WaitMma,
)


def to_text(func: Func) -> str:
    """The whole nest, parameters first."""
    lines = [f"func {func.name}"]
    lines += [f"  param {_buffer(buffer)}" for buffer in func.params]
    lines += [f"  {line}" for statement in func.body for line in _lines(statement)]
    return "\n".join(lines) + "\n"


def _lines(statement: Stmt) -> Iterator[str]:
    match statement:
        case For(body=body):
            yield _loop(statement)
            yield from _indented(body)
        case If(conditions, body):
            yield f"if {' and '.join(map(str, conditions))}"
            yield from _indented(body)
        case Role(name, body):
            yield f"role {name}"
            yield from _indented(body)
        case _:
            yield statement_text(statement)


def _indented(body: tuple[Stmt, ...]) -> Iterator[str]:
    for statement in body:
        for line in _lines(statement):
            yield f"  {line}"


def _loop(loop: For) -> str:
    span = f"{loop.stop}" if loop.start == 0 else f"{loop.start}, {loop.stop}"
    return f"for {loop.var} in {loop.kind}({span}){''.join(map(_counter, loop.counters))}"


def _counter(counter: Counter) -> str:
    wrap = f" mod {counter.modulus}" if counter.modulus else ""
    carry = f" with {counter.carry}" if counter.carry else ""
    return f", {counter.name} from {counter.start}{wrap}{carry}"


def statement_text(statement: Stmt) -> str:
    """One leaf as a line of text."""
    match statement:
        case Alloc(buffer):
            return f"alloc {_buffer(buffer)}"
        case Fill(dst, value):
            return f"fill {region_text(dst)} = {value:g}"
        case Copy(dst, src, mode, steps):
            return f"copy {region_text(dst)} <- {region_text(src)}{_steps(steps)} ({mode})"
        case Mma(acc, lhs, rhs):
            return f"mma {region_text(acc)} += {region_text(lhs)} @ {region_text(rhs)}"
        case Elementwise(dst, src, step):
            return f"map {region_text(dst)} = {region_text(src)}{_steps((step,))}"
        case Store(dst, src, steps):
            return f"store {region_text(dst)} <- {region_text(src)}{_steps(steps)}"
        case _:
            return _synchronisation(statement)


def _synchronisation(statement: Stmt) -> str:
    match statement:
        case Acquire(pipe) | Commit(pipe) | Wait(pipe) | Release(pipe):
            return f"{type(statement).__name__.lower()} {pipe}"
        case CommitGroup():
            return "commit_group"
        case WaitGroup(pending):
            return f"wait_group {pending}"
        case Barrier():
            return "barrier"
        case WaitMma(pending):
            return f"wait_mma {pending}"
        case _:
            raise NotImplementedError(f"no text for {type(statement).__name__}")


def _steps(steps: tuple[Step, ...]) -> str:
    return "".join(f" | {_step(step)}" for step in steps)


def _step(step: Step) -> str:
    operand = f" {region_text(step.operand)}" if step.operand is not None else ""
    scalar = f" {step.scalar:g}" if step.scalar else ""
    return step.op + operand + scalar


def region_text(region: Region) -> str:
    """`lhs_shared{ko % 4}[0:128, ko * 32 + 0:32]`: stage in braces, start:+extent per axis."""
    spans = ", ".join(_span(s, e) for s, e in zip(region.starts, region.extents, strict=True))
    is_staged = not region.stage.is_constant or region.stage.constant != 0
    stage = f"{{{region.stage}}}" if is_staged else ""
    return f"{region.buffer}{stage}[{spans}]"


def _span(start: Affine, extent: int) -> str:
    return f"{start}" if extent == 1 else f"{start} :+ {extent}"


def _buffer(buffer: Buffer) -> str:
    shape = ", ".join(f"{a}={s}" for a, s in zip(buffer.axes, buffer.shape, strict=True))
    text = f"{buffer.name}: {buffer.scope} {buffer.dtype}[{shape}]"
    if buffer.stages > 1:
        text += f" x {buffer.stages} stages"
    if buffer.swizzle:
        text += ", swizzled"
    if buffer.scope == "global":
        text += f" strides {buffer.strides}, rows aligned to {buffer.align_bytes}"
    if buffer.window is not None:
        text += ", window"
    return text
