"""Split an axis into tiles and give the tiles to blocks, warps or a sequential loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import ZERO, var
from jaxpipe.ir.nodes import Alloc, Buffer, For, Func, LoopKind, Region, Stmt
from jaxpipe.ir.visit import Body, buffers, children, map_regions, regions, rewrite


@dataclass(frozen=True, slots=True)
class Split:
    """One tiling: `axis` in steps of `size`, the step number in loop variable `var`.

    registers_only: the loop holds only what touches register buffers, and only those shrink (warp
    tiles and the innermost k step); else everything that has the axis.
    """

    axis: str
    size: int
    var: str
    kind: LoopKind
    registers_only: bool = False


def tile(func: Func, split: Split) -> Func:
    """Wrap the statements that have `split.axis` in a loop over its tiles:

        copy s[0:K] <- g[0:K]            for ko in serial(K / 32)
        mma acc += s[0:K] @ ...    ->      copy s[0:32] <- g[ko * 32 :+ 32]
                                           mma acc += s[0:32] @ ...

    Buffers that are local to the loop shrink to one tile; an axis of size 1 leaves them. Tiles may
    reach past the end of global buffers (reads as zero). Grid and warp loops enclose the whole
    block. Raises IrError when nothing has the axis.
    """
    pass_ = _Tiling(func, split)
    body = pass_.block(func.body) if split.kind in ("grid", "warp") else pass_.inner(func.body)
    if body is func.body:
        raise IrError(f"tile {split.axis}: no statement of {func.name} has this axis")
    return replace(func, body=rewrite(body, pass_.shrink_allocation))


class _Tiling:
    """The state of one tiling: the buffers before it, and which of them shrink."""

    def __init__(self, func: Func, split: Split) -> None:
        self.split = split
        self.buffers = buffers(func)
        scopes = ("register",) if split.registers_only else ("register", "shared")
        self.shrinking = {
            b.name for b in self.buffers.values() if b.scope in scopes and split.axis in b.axes
        }

    def block(self, body: Body) -> Body:
        match body:
            case (For(kind="grid" | "warp") as loop,) if (
                loop.kind == "grid" or self.split.kind == "warp"
            ):
                return (replace(loop, body=self.block(loop.body)),)
            case _:
                return (self._loop(body),)

    def inner(self, body: Body) -> Body:
        selected = [i for i, s in enumerate(body) if self._selected(s)]
        if not selected:
            return self._descend(body)
        first, last = selected[0], selected[-1] + 1
        return (*body[:first], self._loop(body[first:last]), *body[last:])

    def _descend(self, body: Body) -> Body:
        for i, statement in enumerate(body):
            if isinstance(statement, For):
                inside = self.inner(statement.body)
                if inside is not statement.body:
                    return (*body[:i], replace(statement, body=inside), *body[i + 1 :])
        return body

    def _selected(self, statement: Stmt) -> bool:
        """True for a leaf that has the axis, in registers if only those are tiled."""
        touched = [self.buffers[r.buffer] for r in regions(statement)]
        if self.split.registers_only and not any(b.scope == "register" for b in touched):
            return False
        return any(self.split.axis in b.axes for b in touched)

    def _loop(self, body: Body) -> For:
        extent = self._extent(body)
        trips = -(-extent // self.split.size)
        return For(self.split.var, 0, trips, self.split.kind, rewrite(body, self._leaf))

    def _extent(self, body: Body) -> int:
        for statement in body:
            if self._selected(statement):
                for region in regions(statement):
                    axes = self.buffers[region.buffer].axes
                    if self.split.axis in axes:
                        return region.extents[axes.index(self.split.axis)]
            if children(statement) and (inside := self._extent(children(statement))) >= 0:
                return inside
        return -1

    def _leaf(self, statement: Stmt) -> Body:
        if not self._selected(statement):
            return (statement,)
        return (map_regions(statement, self._region),)

    def _region(self, region: Region) -> Region:
        axes = self.buffers[region.buffer].axes
        if self.split.axis not in axes:
            return region
        i = axes.index(self.split.axis)
        starts, extents = list(region.starts), list(region.extents)
        extents[i] = self.split.size
        if region.buffer not in self.shrinking:
            starts[i] = starts[i] + var(self.split.var) * self.split.size
        elif self.split.size == 1:
            del starts[i], extents[i]
        else:
            starts[i] = ZERO
        return Region(region.buffer, tuple(starts), tuple(extents), region.stage)

    def shrink_allocation(self, statement: Stmt) -> Body:
        match statement:
            case Alloc(buffer) if buffer.name in self.shrinking:
                return (Alloc(self._shrunk(buffer)),)
            case _:
                return (statement,)

    def _shrunk(self, buffer: Buffer) -> Buffer:
        i = buffer.axes.index(self.split.axis)
        if self.split.size == 1:
            axes, shape = list(buffer.axes), list(buffer.shape)
            del axes[i], shape[i]
            return replace(buffer, axes=tuple(axes), shape=tuple(shape))
        shape = [*buffer.shape[:i], self.split.size, *buffer.shape[i + 1 :]]
        return replace(buffer, shape=tuple(shape))
