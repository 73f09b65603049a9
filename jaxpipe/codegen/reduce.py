"""The kernel that sums the partial products of split-K, in fixed order, and finishes them.

In: the lowered nest of a reduction. Out: its lines. A warp takes a row of the result tile, a lane
a vector of neighbours in it.
"""

from __future__ import annotations

from jaxpipe.codegen.cuda import Frame
from jaxpipe.codegen.finish import CUDA_TYPES, Finish, inside_text
from jaxpipe.codegen.text import UNROLL, expression, indented, plus
from jaxpipe.dtypes import DTYPES
from jaxpipe.ir.affine import Affine, bounds, var
from jaxpipe.ir.nodes import Buffer, Elementwise, For, Region, Store
from jaxpipe.ir.visit import buffers, walk
from jaxpipe.schedule import row_vector


def reduce_lines(frame: Frame) -> list[str]:
    """What one block does: sum over the splits, then the steps of the store."""
    known = buffers(frame.func)
    store = next(s for s in walk(frame.body) if isinstance(s, Store))
    out = known[store.dst.buffer]
    vector = row_vector(out.size("n"), DTYPES[out.dtype].size_bytes)
    finish = Finish(store, known, vector)
    axes = {a: i for i, a in enumerate(out.axes)}
    row, column = (store.dst.starts[axes[a]] for a in ("m", "n"))
    inside = inside_text(finish, _inside(frame, store, out))
    work = [*_sums(frame, known, finish), *_finished(finish)]
    return [
        f"const int row = {expression(row)};",
        f"const int column = {plus(expression(column), f'lane * {vector}')};",
        *([f"if (!({inside})) return;"] if inside else []),
        *finish.lines(),
        *work,
    ]


def _inside(frame: Frame, store: Store, out: Buffer) -> tuple[bool, bool]:
    ends = []
    for axis in ("m", "n"):
        i = out.axes.index(axis)
        high = bounds(store.dst.starts[i], frame.ranges)[1] + store.dst.extents[i]
        ends.append(high <= out.shape[i])
    return ends[0], ends[1]


def _sums(frame: Frame, known: dict[str, Buffer], finish: Finish) -> list[str]:
    """sum = 0; for every split: sum += partial."""
    kind, vector = finish.accumulator, finish.vector
    add = next(s for s in walk(frame.body) if isinstance(s, Elementwise) and s.step.op == "add")
    assert add.step.operand is not None
    region, workspace = add.step.operand, known["workspace"]
    splits = workspace.shape[0]
    loop = [
        f"{kind} partial[{vector}];",
        f"load_vector<{vector}>(partial, {_partial(region, workspace)});",
        UNROLL,
        f"for (int e = 0; e < {vector}; ++e) sum[e] += partial[e];",
    ]
    is_looped = any(isinstance(s, For) for s in walk(frame.body))
    head = f"for (int split = 0; split < {splits}; ++split) {{"
    return [
        f"{kind} sum[{vector}] = {{}};",
        *([UNROLL, head, *indented(loop), "}"] if is_looped else ["{", *indented(loop), "}"]),
    ]


def _partial(region: Region, workspace: Buffer) -> str:
    place = {"m": var("row"), "n": var("column")}
    offset = Affine()
    for axis, start, stride in zip(workspace.axes, region.starts, workspace.strides, strict=True):
        offset += place.get(axis, start) * stride
    return plus(workspace.name, expression(offset, wide=True))


def _finished(finish: Finish) -> list[str]:
    if finish.value == finish.accumulator:
        return ["finish(sum, row, column);"]
    kind = CUDA_TYPES["float32"]
    return [
        f"{kind} x[{finish.vector}];",
        UNROLL,
        f"for (int e = 0; e < {finish.vector}; ++e) x[e] = ({kind})sum[e];",
        "finish(x, row, column);",
    ]
