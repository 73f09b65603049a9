"""What a nest means, in numpy: the reference for every pass.

In: a Func and arrays for its input parameters. Out: arrays of its outputs. Grid blocks run one
after another; inside a block statements run in order, warps in lockstep. Asynchrony is modelled by
states, not by time: what was copied but not waited for, or waited for but not yet made visible by
a barrier, must not be read; what may still be read must not be overwritten; nothing undefined is
read. Each breach is an IrError that names the statement. Three levels of synchronisation:

    none         a nest before pipelining: a statement is complete when the next begins
    pipes        Acquire, Commit, Wait, Release: chunks in order, in `stages` slots
    groups       CommitGroup, WaitGroup, Barrier: as cp.async and bar.sync
"""

from __future__ import annotations

import copy
import itertools
import random
import string
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import Affine, evaluate
from jaxpipe.ir.memory import Array, GlobalArray, Synchronisation, Tile
from jaxpipe.ir.nodes import (
    Acquire,
    Alloc,
    Barrier,
    Buffer,
    Commit,
    CommitGroup,
    Copy,
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
from jaxpipe.ir.ops import OPS, round_to
from jaxpipe.ir.printer import statement_text
from jaxpipe.ir.roles import Pause, RoleBody, run_side_by_side
from jaxpipe.ir.visit import Body, buffers, regions, walk, writes

Named = tuple[Array, tuple[str, ...]]  # values and the axes of their dimensions


def interpret(
    funcs: tuple[Func, ...], inputs: Mapping[str, NDArray[np.generic]], seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Run launches in order; every parameter that is written is returned, by name.

    Inputs have the logical shape of their parameter (NHWC for one with a window). Outputs start
    as NaN. `seed` decides in which order roles go on. Raises IrError at a read or write that the
    synchronisation does not allow.
    """
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in inputs.items()}
    written: dict[str, NDArray[np.float64]] = {}
    for func in funcs:
        for name in _outputs(func):
            if name not in arrays:
                shape = next(p.shape for p in func.params if p.name == name)
                arrays[name] = np.full(shape, np.nan)
            written[name] = arrays[name]
        _Machine(func, arrays, random.Random(seed)).run()
    return written


def _outputs(func: Func) -> list[str]:
    params = [p.name for p in func.params]
    touched = {r.buffer for s in walk(func.body) for r in writes(s)}
    return [name for name in params if name in touched]


class _Machine:
    """One launch: the block that runs, its memories and loop variables."""

    def __init__(self, func: Func, arrays: Mapping[str, Array], order: random.Random) -> None:
        self.buffers: dict[str, Buffer] = buffers(func)
        self.globals = {p.name: GlobalArray(p, arrays[p.name]) for p in func.params}
        self.func = func
        self.level = _level(func)
        self.env: dict[str, int] = {}
        self.warps: dict[str, int] = {}
        self.tiles: dict[tuple[str, tuple[int, ...]], list[Tile]] = {}
        self.sync = Synchronisation(self.level)
        self.order = order
        self.pause: Pause | None = None
        self.has_async_products = any(isinstance(s, WaitMma) for s in walk(func.body))

    def run(self) -> None:
        self.body(self.func.body)

    # ------------------------------------------------------------------ control
    def body(self, body: Body) -> None:
        for roles, group in itertools.groupby(body, lambda s: isinstance(s, Role)):
            if roles:
                self.side_by_side([s for s in group if isinstance(s, Role)])
                continue
            for statement in group:
                self.statement(statement)

    def side_by_side(self, roles: list[Role]) -> None:
        """Roles share memory and synchronisation; each has loop variables of its own."""

        def runner(role: Role) -> RoleBody:
            def run(pause: Pause) -> None:
                mine = copy.copy(self)
                mine.env, mine.warps, mine.pause = dict(self.env), dict(self.warps), pause
                mine.body(role.body)

            return run

        run_side_by_side([r.name for r in roles], [runner(r) for r in roles], self.order.choice)

    def statement(self, statement: Stmt) -> None:
        match statement:
            case For(kind="grid"):
                for i in range(statement.start, statement.stop):
                    self.env[statement.var] = i
                    self.tiles.clear()
                    self.sync = Synchronisation(self.level)
                    self.body(statement.body)
            case For(kind="warp"):
                self.warps[statement.var] = statement.stop
                self.body(statement.body)
                del self.warps[statement.var]
            case For():
                self.loop(statement)
            case If(conditions, body):
                if all(self.value(c.left) < self.value(c.right) for c in conditions):
                    self.body(body)
            case Alloc(buffer):
                self.allocate(buffer)
            case _:
                self.guarded(statement)

    def guarded(self, statement: Stmt) -> None:
        try:
            if isinstance(statement, Copy | Fill | Mma | Elementwise | Store):
                for _ in self.lanes(statement):
                    self.leaf(statement)
            else:
                self.synchronise(statement)
        except IrError as error:
            where = ", ".join(f"{k}={v}" for k, v in self.env.items())
            raise IrError(f"{error}; at `{statement_text(statement)}` with {where}") from None

    def loop(self, loop: For) -> None:
        for counter in loop.counters:
            self.env[counter.name] = counter.start
        for i in range(loop.start, loop.stop):
            self.env[loop.var] = i
            self.body(loop.body)
            wrapped = {"": True}
            for counter in loop.counters:
                value = self.env[counter.name] + wrapped[counter.carry]
                wrapped[counter.name] = wrapped[counter.carry] and value == counter.modulus
                self.env[counter.name] = 0 if wrapped[counter.name] else value

    def lanes(self, statement: Stmt) -> Iterator[None]:
        """Once for every warp when the leaf touches registers, else once."""
        touched = [self.buffers[r.buffer].scope for r in regions(statement)]
        if "register" not in touched:
            yield
            return
        for index in itertools.product(*(range(n) for n in self.warps.values())):
            self.env |= dict(zip(self.warps, index, strict=True))
            yield
        for name in self.warps:
            self.env.pop(name, None)

    def value(self, expr: Affine) -> int:
        return evaluate(expr, self.env)

    # ------------------------------------------------------------------ memory
    def allocate(self, buffer: Buffer) -> None:
        counts = self.warps.values() if buffer.scope == "register" else ()
        for warp in itertools.product(*(range(n) for n in counts)):
            self.tiles[buffer.name, warp] = [Tile.undefined(buffer) for _ in range(buffer.stages)]

    def tile(self, region: Region) -> Tile:
        buffer = self.buffers[region.buffer]
        is_private = buffer.scope == "register"
        warp = tuple(self.env[name] for name in self.warps) if is_private else ()
        stage = self.value(region.stage)
        if not 0 <= stage < buffer.stages:
            raise IrError(f"stage {stage} of {buffer.name}, which has {buffer.stages}")
        return self.tiles[region.buffer, warp][stage]

    def starts(self, region: Region) -> tuple[int, ...]:
        return tuple(self.value(s) for s in region.starts)

    def read(self, region: Region) -> Named:
        buffer = self.buffers[region.buffer]
        if buffer.scope == "global":
            return self.globals[region.buffer].read(
                self.starts(region), region.extents
            ), buffer.axes
        tile = self.tile(region)
        self.sync.check_read(tile)
        return tile.read(self.starts(region), region.extents), buffer.axes

    def write(self, region: Region, values: Array, *, is_async: bool = False) -> None:
        buffer = self.buffers[region.buffer]
        starts = self.starts(region)
        if buffer.scope == "global":
            rounded = round_to(buffer.dtype, values)
            self.globals[region.buffer].write(starts, region.extents, rounded)
            return
        tile = self.tile(region)
        self.sync.begin_write(tile, is_async=is_async)
        tile.write(starts, region.extents, values)

    # ------------------------------------------------------------------ leaves
    def leaf(self, statement: Stmt) -> None:
        match statement:
            case Fill(dst, value):
                self.write(dst, np.full(dst.extents, value, dtype=np.float64))
            case Copy(dst, src, mode, steps):
                moved = self.applied(self.read(src), steps)
                self.write(dst, self.aligned(moved, dst), is_async=mode == "async")
            case Mma(acc, lhs, rhs):
                self.multiply(acc, lhs, rhs)
            case Elementwise(dst, src, step):
                self.write(dst, self.aligned(self.applied(self.read(src), (step,)), dst))
            case Store(dst, src, steps):
                self.write(dst, self.aligned(self.applied(self.read(src), steps), dst))
            case _:
                raise NotImplementedError(f"no meaning for {type(statement).__name__}")

    def multiply(self, acc: Region, lhs: Region, rhs: Region) -> None:
        tile = self.tile(acc)
        total, axes = tile.read(self.starts(acc), acc.extents), self.buffers[acc.buffer].axes
        (a, a_axes), (b, b_axes) = self.read(lhs), self.read(rhs)
        kept = tuple(x for x in axes if x in a_axes or x in b_axes)
        letters = dict(zip(dict.fromkeys((*a_axes, *b_axes)), string.ascii_letters, strict=False))
        spec = ["".join(letters[x] for x in names) for names in (a_axes, b_axes, kept)]
        product = np.einsum(f"{spec[0]},{spec[1]}->{spec[2]}", a, b, optimize=True)
        value = round_to(self.buffers[acc.buffer].dtype, total + product.reshape(total.shape))
        tile.write(self.starts(acc), acc.extents, value)
        if self.has_async_products:
            self.sync.product(tile, (self.tile(lhs), self.tile(rhs)))

    def applied(self, value: Named, steps: tuple[Step, ...]) -> Named:
        values, axes = value
        for step in steps:
            if step.op == "save":
                assert step.operand is not None
                self.write(step.operand, self.aligned((values, axes), step.operand))
                continue
            other = np.asarray(step.scalar, dtype=np.float64)
            if step.operand is not None:
                other = _along(self.read(step.operand), axes)
            values = OPS[step.op].apply(values, other)
        return values, axes

    def aligned(self, value: Named, region: Region) -> Array:
        """Values with the dimensions of the region: reordered by name, units added or dropped."""
        return _along(value, self.buffers[region.buffer].axes).reshape(region.extents)

    # ------------------------------------------------------------------ synchronisation
    def synchronise(self, statement: Stmt) -> None:
        if self.pause is not None:
            self.pause(lambda: self.sync.is_ready(statement, self.pipe_stages()))
        match statement:
            case Acquire() | Commit() | Wait() | Release():
                self.sync.pipe(statement, self.pipe_stages())
            case CommitGroup():
                self.sync.commit_group()
            case WaitGroup(pending):
                self.sync.wait_group(pending)
            case Barrier():
                self.sync.barrier(t for tiles in self.tiles.values() for t in tiles)
            case WaitMma(pending):
                self.sync.wait_products(pending)
            case _:
                raise NotImplementedError(f"no meaning for {type(statement).__name__}")

    def pipe_stages(self) -> int:
        return min((b.stages for b in self.buffers.values() if b.scope == "shared"), default=1)


def _level(func: Func) -> str:
    kinds = {type(s) for s in walk(func.body)}
    if kinds & {CommitGroup, WaitGroup, Barrier}:
        return "groups"
    return "pipes" if kinds & {Acquire, Commit, Wait, Release} else "none"


def _along(value: Named, axes: tuple[str, ...]) -> Array:
    """Values transposed to the order of `axes`; missing ones get size 1, units of others go."""
    values, own = value
    for position in reversed(range(len(own))):
        if own[position] not in axes:
            assert values.shape[position] == 1, f"axis {own[position]} cannot be dropped"
            values = np.squeeze(values, position)
    left = [a for a in own if a in axes]
    order = [left.index(a) for a in axes if a in left]
    shaped = np.transpose(values, order)
    for position, axis in enumerate(axes):
        if axis not in left:
            shaped = np.expand_dims(shaped, position)
    return shaped
