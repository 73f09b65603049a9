"""Stage an operand in a faster memory before it is used (TVM's cache_read; ALCOP section 2)."""

from __future__ import annotations

from dataclasses import replace

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import ZERO
from jaxpipe.ir.nodes import (
    Alloc,
    Buffer,
    Copy,
    CopyMode,
    Elementwise,
    For,
    Func,
    Mma,
    Region,
    Scope,
    Stmt,
)
from jaxpipe.ir.visit import Body, buffers, map_regions, reads, rewrite, writes
from jaxpipe.transform.build import BATCH_AXES


def cache_read(
    func: Func,
    source: str,
    name: str,
    scope: Scope,
    axes: tuple[str, ...] = (),
    mode: CopyMode = "sync",
    *,
    swizzle: bool = False,
) -> Func:
    """Read `source` through a new buffer `name` in `scope`:

        mma acc += source[r] @ ...            alloc name
                                      ->      copy name <- source[r]
                                              mma acc += name @ ...

    `axes` orders the new buffer's dimensions (default: as in `source`, without batch). Raises
    IrError when no product or element-wise statement reads `source`.
    """
    origin = buffers(func)[source]
    users = [s for s in _leaves(func) if any(r.buffer == source for r in reads(s))]
    if not users:
        raise IrError(f"cache_read of {source}: no statement of {func.name} reads it")
    region = next(r for r in reads(users[0]) if r.buffer == source)
    buffer = _cached(origin, region, name, scope, axes, swizzle)
    copied = Region(name, (ZERO,) * len(buffer.axes), buffer.shape)

    def rule(statement: Stmt) -> Body:
        if statement is not users[0]:
            return (statement,)
        return (map_regions(statement, lambda r: copied if r.buffer == source else r),)

    def rewritten(body: Body) -> Body:
        match body:
            case (For() as loop,):
                return (replace(loop, body=rewritten(loop.body)),)
            case _:
                at = _earliest(body, source, body.index(users[0]))
                return rewrite((*body[:at], Copy(copied, region, mode), *body[at:]), rule)

    return replace(func, body=hoisted(rewritten(func.body), (Alloc(buffer),)))


def _earliest(body: Body, source: str, position: int) -> int:
    """Up past element-wise statements that do not make the source: copies come first."""
    while position > 0:
        before = body[position - 1]
        makes_source = any(r.buffer == source for r in writes(before))
        if not isinstance(before, Elementwise | Alloc) or makes_source:
            break
        position -= 1
    return position


def _leaves(func: Func) -> list[Stmt]:
    found: list[Stmt] = []

    def rule(statement: Stmt) -> Body:
        if isinstance(statement, Mma | Elementwise):
            found.append(statement)
        return (statement,)

    rewrite(func.body, rule)
    return found


def _cached(
    origin: Buffer, region: Region, name: str, scope: Scope, axes: tuple[str, ...], swizzle: bool
) -> Buffer:
    extents = dict(zip(origin.axes, region.extents, strict=True))
    kept = axes or tuple(a for a in origin.axes if a not in BATCH_AXES)
    return Buffer(name, scope, origin.dtype, kept, tuple(extents[a] for a in kept), swizzle=swizzle)


def hoisted(body: Body, allocations: tuple[Stmt, ...]) -> Body:
    """`body` with allocations first in the innermost block: they live as long as the block."""
    match body:
        case (For(kind="grid" | "warp") as loop,):
            return (replace(loop, body=hoisted(loop.body, allocations)),)
        case _:
            return (*allocations, *body)
