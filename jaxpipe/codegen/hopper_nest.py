"""A specialised nest taken apart for printing: grid, producer stream, consumer stream, store.

In: the Func that the Hopper recipe ends with. Out: a Nest with its pieces by name, and the C++
text of index expressions. It must not know layouts or instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import Affine, free_variables
from jaxpipe.ir.nodes import (
    Alloc,
    Buffer,
    Commit,
    Copy,
    Fill,
    For,
    Func,
    Mma,
    Region,
    Release,
    Role,
    Stmt,
    Store,
    Wait,
    WaitMma,
)
from jaxpipe.ir.visit import Body, buffers, regions, walk

TILE_VARS = ("m0", "n0")


@dataclass(frozen=True, slots=True)
class Results:
    """What a kernel stores: the Store with its steps, and the buffers that it names."""

    store: Store
    buffers: dict[str, Buffer]


@dataclass(frozen=True, slots=True)
class Nest:
    """The pieces of one kernel.

    outer: grid variables other than m0 and n0 that some index uses, outermost first, with their
    extents. stream: the producer's loop over chunks. consumer: the consumer's statements.
    """

    func: Func
    buffers: dict[str, Buffer]
    outer: tuple[tuple[str, int], ...]
    stream: For
    consumer: Body

    @property
    def steps(self) -> int:
        """Chunks of one tile."""
        return self.stream.stop - self.stream.start

    @property
    def copies(self) -> tuple[Copy, ...]:
        """The copies of one chunk."""
        return tuple(s for s in self.stream.body if isinstance(s, Copy))

    def copy_of(self, role: str) -> Copy:
        """The copy that fills the shared buffer of an operand."""
        return next(c for c in self.copies if self.buffers[c.src.buffer].role == role)

    @property
    def store(self) -> Store:
        """The one store."""
        return next(s for s in self.consumer if isinstance(s, Store))

    @property
    def results(self) -> Results:
        """The store and its buffers."""
        return results_of(self.func)

    def param(self, role: str) -> Buffer:
        """The global buffer of a role."""
        return next(b for b in self.func.params if b.role == role)

    def starts(self, region: Region) -> dict[str, Affine]:
        """Start of a region by axis."""
        return dict(zip(self.buffers[region.buffer].axes, region.starts, strict=True))


def results_of(func: Func) -> Results:
    """The one store of `func`."""
    return Results(next(s for s in walk(func.body) if isinstance(s, Store)), buffers(func))


def take_apart(func: Func) -> Nest:
    """The pieces of `func`; IrError names what is not where a specialised nest has it."""
    grid, body = _grid(func.body)
    body = tuple(s for s in body if not isinstance(s, Alloc))
    match body:
        case (Role("producer", (For() as stream,)), Role("consumer", consumer)):
            _check(func, stream, consumer)
        case _:
            raise IrError(f"{func.name}: a specialised nest is one producer and one consumer")
    used = {v for s in walk(body) for r in regions(s) for e in r.starts for v in free_variables(e)}
    outer = tuple((g.var, g.stop) for g in grid if g.var not in TILE_VARS and g.var in used)
    return Nest(func, buffers(func), outer, stream, consumer)


def _grid(body: Body) -> tuple[list[For], Body]:
    match body:
        case (For(kind="grid") as loop,):
            loops, inner = _grid(loop.body)
            return [loop, *loops], inner
        case _:
            return [], body


def _check(func: Func, stream: For, consumer: Body) -> None:
    """Only statements that the emitter has a rule for, where it expects them."""
    if not isinstance(stream.body[-1], Commit):
        raise IrError(f"{func.name}: the producer's step does not end with a commit")
    for statement in consumer:
        if not isinstance(statement, Fill | For | WaitMma | Release | Store):
            raise IrError(f"{func.name}: no rule for {type(statement).__name__} in a consumer")
    loops = [s for s in consumer if isinstance(s, For)]
    if len(loops) != 1 or not all(
        any(isinstance(s, k) for s in loops[0].body) for k in (Wait, Mma)
    ):
        raise IrError(f"{func.name}: a consumer is one loop that waits and multiplies")


def consumer_loop(nest: Nest) -> For:
    """The consumer's loop over chunks."""
    return next(s for s in nest.consumer if isinstance(s, For))


def statements_after(nest: Nest) -> tuple[Stmt, ...]:
    """What the consumer does after its loop."""
    position = nest.consumer.index(consumer_loop(nest))
    return nest.consumer[position + 1 :]
