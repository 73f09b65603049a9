"""Share one result tile along k between blocks: float32 partials, summed in a fixed order."""

from __future__ import annotations

from dataclasses import replace

from jaxpipe.errors import IrError
from jaxpipe.ir.affine import var
from jaxpipe.ir.nodes import (
    Alloc,
    Buffer,
    Elementwise,
    Fill,
    For,
    Func,
    Mma,
    Region,
    Step,
    Stmt,
    Store,
)
from jaxpipe.ir.visit import Body, buffers, rewrite, without_dead
from jaxpipe.transform.build import BATCH_AXES, dense, whole
from jaxpipe.transform.tile import Split, tile

SPLIT = "split"


def split_k(func: Func, splits: int, size: int) -> tuple[Func, Func]:
    """Two launches, the second after the first, from an untiled nest:

        for b: acc = 0              main:   for split in grid(splits): acc = 0
          mma acc += ...      ->              mma acc += (k from split * size, `size` long)
          store out <- acc                    store workspace[split] <- acc
                                    reduce: acc = 0 ; for split in serial: acc += workspace[split]
                                            store out <- acc

    The partials are the accumulator's dtype, so the only rounding is the last store. Splits past
    the end of k add zeros. Raises IrError when the nest has no product.
    """
    (loop,) = func.body
    assert isinstance(loop, For)
    mma = next((s for s in loop.body if isinstance(s, Mma)), None)
    if mma is None:
        raise IrError(f"split_k: {func.name} has no product")
    out = buffers(func)["out"]
    batch = tuple(s for a, s in zip(out.axes, out.shape, strict=True) if a in BATCH_AXES)
    acc = buffers(func)[mma.acc.buffer]
    workspace = _workspace(acc, batch, splits)
    position = loop.body.index(mma) + 1
    before, after = loop.body[:position], loop.body[position:]
    partial = Store(_partial(workspace, batch), mma.acc)
    operands = tuple(p for p in func.params if p.role in ("lhs", "rhs"))
    main = Func(func.name, (*operands, workspace), (replace(loop, body=(*before, partial)),))
    main = tile(main, Split("k", size, SPLIT, "grid"))
    results = tuple(p for p in func.params if p.role not in ("lhs", "rhs"))
    allocations = tuple(s for s in before if isinstance(s, Alloc))
    total = (Fill(mma.acc, 0.0), _sum(workspace, batch, mma.acc, splits))
    body = without_dead((*allocations, *total, *after))
    return _numbered(main), Func(
        f"{func.name}_reduce", (workspace, *results), (replace(loop, body=body),)
    )


def _workspace(acc: Buffer, batch: tuple[int, ...], splits: int) -> Buffer:
    m, n = acc.shape
    one = dense("workspace", acc.dtype, batch, m, n)
    entry = 1
    for size in one.shape:
        entry *= size
    return replace(
        one,
        axes=(SPLIT, *one.axes),
        shape=(splits, *one.shape),
        strides=(entry, *one.strides),
    )


def _partial(workspace: Buffer, batch: tuple[int, ...]) -> Region:
    region = whole(workspace, batch)
    starts, extents = list(region.starts), list(region.extents)
    starts[0], extents[0] = var(SPLIT), 1
    return replace(region, starts=tuple(starts), extents=tuple(extents))


def _sum(workspace: Buffer, batch: tuple[int, ...], acc: Region, splits: int) -> Stmt:
    add = Elementwise(acc, acc, Step("add", _partial(workspace, batch)))
    return For(SPLIT, 0, splits, "serial", (add,))


def _numbered(main: Func) -> Func:
    """The split loop has exactly as many steps as the workspace has entries."""
    splits = buffers(main)["workspace"].shape[0]

    def rule(statement: Stmt) -> Body:
        match statement:
            case For(var=name) if name == SPLIT:
                return (replace(statement, stop=splits),)
            case _:
                return (statement,)

    return replace(main, body=rewrite(main.body, rule))
