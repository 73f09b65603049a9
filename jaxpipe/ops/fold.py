"""General dimension numbers -> one strided batched product, without copies where strides do.

In: operand shapes and lax dimension numbers. Out: a `Fold`: sizes, the two Layouts, and for each
operand a permutation to apply first when no stride pattern fits (None: use as it lies). The result
is always dense [batch..., lhs free..., rhs free...]. It must not know dtypes or JAX.

Sizes may be symbolic (`jax.export.symbolic_shape`): whole numbers that are only multiplied and
compared with == here, which is False where it is not known. A layout with a symbolic stride is
used where it is dense, and then says so by 0 and (); ops/sizes.py relies on it.

A group of dimensions (batch, free, contracting) can be used in place when it collapses to one
(size, stride). Contracting dimensions may be walked in any order as long as both operands use the
same; batch dimensions collapse jointly to at most two; leading free dimensions of lhs that do not
collapse become a batch dimension over which rhs is repeated (stride 0).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxpipe.problem import Layout

Dims = tuple[int, ...]
DimensionNumbers = tuple[tuple[Dims, Dims], tuple[Dims, Dims]]
MAX_BATCH = 2
# Fewer rows than this in each product: a copy of lhs costs less than products so thin.
MIN_ROWS = 16
NOMINAL = 512


@dataclass(frozen=True, slots=True)
class Operand:
    """How one operand is used: transpose by `perm` first (None: as it lies), then `layout`."""

    layout: Layout
    perm: Dims | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """`[batch, m, k] x [batch, k, n]`; `copied` counts the elements that must be moved first."""

    batch: Dims
    m: int
    n: int
    k: int
    lhs: Operand
    rhs: Operand
    copied: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    """Dimensions that are walked as one: `size` steps of `stride` elements."""

    size: int
    stride: int


def free_dims(ndim: int, contracting: Sequence[int], batch: Sequence[int]) -> Dims:
    """Dimensions that are neither contracted nor batched, in order."""
    used = {*contracting, *batch}
    return tuple(i for i in range(ndim) if i not in used)


@functools.lru_cache(maxsize=4096)
def fold(lhs: Dims, rhs: Dims, dimension_numbers: DimensionNumbers) -> Fold:
    """The cheapest fold of a product of dense row-major operands of shapes `lhs` and `rhs`."""
    return min(_folds(lhs, rhs, dimension_numbers), key=lambda f: f.copied)


def _folds(lhs: Dims, rhs: Dims, dn: DimensionNumbers) -> Iterator[Fold]:
    """Every way: which operands are copied, in whose order the contracting dims are walked."""
    (lc, rc), (lb, rb) = dn
    lf, rf = free_dims(len(lhs), lc, lb), free_dims(len(rhs), rc, rb)
    orders = {tuple(sorted(range(len(lc)), key=lc.__getitem__))}
    orders.add(tuple(sorted(range(len(rc)), key=rc.__getitem__)))
    for order, copy_lhs, copy_rhs in itertools.product(
        sorted(orders), (False, True), (False, True)
    ):
        left = _Side.of(lhs, lb, lf, tuple(lc[i] for i in order), copy_lhs)
        right = _Side.of(rhs, rb, tuple(rc[i] for i in order), rf, copy_rhs)
        if (found := _join(left, right)) is not None:
            yield found


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand as groups of runs: batch, rows, columns of the matrix that it is used as."""

    batch: tuple[_Run, ...]
    rows: tuple[_Run, ...]
    cols: tuple[_Run, ...]
    perm: Dims | None
    size: int

    @staticmethod
    def of(shape: Dims, batch: Dims, rows: Dims, cols: Dims, copy: bool) -> _Side:
        order = (*batch, *rows, *cols)
        strides = dense_strides(shape)
        if copy:
            moved = dense_strides(tuple(shape[i] for i in order))
            strides = tuple(moved[order.index(i)] for i in range(len(shape)))
        groups = [tuple(_Run(shape[i], strides[i]) for i in group) for group in (batch, rows, cols)]
        return _Side(
            groups[0], collapse(groups[1]), collapse(groups[2]), order if copy else None,
            math.prod(map(nominal, shape)),
        )  # fmt: skip


def dense_strides(shape: Sequence[int]) -> Dims:
    """Row-major strides in elements."""
    steps = itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1)
    return tuple(reversed(list(steps)))[: len(shape)] if shape else ()


def collapse(runs: Sequence[_Run]) -> tuple[_Run, ...]:
    """Neighbouring runs merged where the outer steps over exactly the inner; size 1 dropped."""
    out: list[_Run] = []
    for run in runs:
        if run.size == 1:
            continue
        if out and out[-1].stride == run.size * run.stride:
            out[-1] = _Run(out[-1].size * run.size, run.stride)
        else:
            out.append(run)
    return tuple(out)


def _join(left: _Side, right: _Side) -> Fold | None:
    """The fold of two sides, or None where strides cannot say it."""
    batch = _collapse_pairs(list(zip(left.batch, right.batch, strict=True)))
    rows = left.rows
    if len(rows) == 2 and nominal(rows[-1].size) >= MIN_ROWS:
        batch.append((rows[0], _Run(rows[0].size, 0)))
        rows = rows[1:]
    if len(batch) > MAX_BATCH or max(map(len, (rows, left.cols, right.rows, right.cols))) > 1:
        return None
    m, k, n = _single(rows), _single(left.cols), _single(right.cols)
    sizes = tuple(a.size for a, _ in batch)
    lhs_layout = _layout(m, k, sizes, tuple(a.stride for a, _ in batch))
    rhs_layout = _layout(_single(right.rows), n, sizes, tuple(b.stride for _, b in batch))
    if lhs_layout is None or rhs_layout is None:
        return None
    copied = sum(s.size for s in (left, right) if s.perm is not None)
    return Fold(
        sizes, m.size, n.size, k.size,
        Operand(lhs_layout, left.perm), Operand(rhs_layout, right.perm), copied,
    )  # fmt: skip


def _collapse_pairs(pairs: list[tuple[_Run, _Run]]) -> list[tuple[_Run, _Run]]:
    """Batch runs merged where they merge in both operands; size 1 dropped."""
    out: list[tuple[_Run, _Run]] = []
    for a, b in pairs:
        if a.size == 1:
            continue
        merges = out and all(
            p.stride == q.size * q.stride for p, q in zip(out[-1], (a, b), strict=True)
        )
        if merges:
            size = out[-1][0].size * a.size
            out[-1] = (_Run(size, a.stride), _Run(size, b.stride))
        else:
            out.append((a, b))
    return out


def _single(runs: tuple[_Run, ...]) -> _Run:
    return runs[0] if runs else _Run(1, 1)


def _layout(rows: _Run, cols: _Run, batch: Dims, batch_strides: Dims) -> Layout | None:
    """Stored [rows][cols] if columns are dense, [cols][rows] if rows are, else None; None too for
    symbolic strides that are not dense."""
    if cols.stride == 1 or cols.size == 1:
        transposed, outer, inner = False, rows, cols
    elif rows.stride == 1 or rows.size == 1:
        transposed, outer, inner = True, cols, rows
    else:
        return None
    ld = _spacing(outer, inner, transposed)
    *dense, _, _ = dense_strides((*batch, outer.size, inner.size))
    if not is_known(*batch_strides) and ld in (0, inner.size) and batch_strides == tuple(dense):
        ld, batch_strides = 0, ()
    elif ld == inner.size:
        ld = 0
    return Layout(transposed, ld, batch_strides) if is_known(ld, *batch_strides) else None


def _spacing(outer: _Run, inner: _Run, transposed: bool) -> int:
    """Elements between stored rows; 0 where there is one that is its own column."""
    if outer.size == 1 and not transposed:
        return 0
    if is_known(outer.stride, inner.size):
        return max(outer.stride, inner.size)
    return inner.size if outer.size == 1 else outer.stride


def is_known(*sizes: int) -> bool:
    """True when none is symbolic."""
    return all(isinstance(size, int) for size in sizes)


def nominal(size: int) -> int:
    """The size, or what a symbolic one is taken for where a number has to be chosen."""
    return size if isinstance(size, int) else NOMINAL
