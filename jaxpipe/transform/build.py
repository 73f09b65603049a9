"""A problem as a loop nest: one product of whole matrices, then one statement a step.

In: Matmul or Conv2d. Out: a Func whose only loop is the batch. Nothing is tiled, staged or fused
here; every later decision is a pass. It must not know schedules or targets.
"""

from __future__ import annotations

import math

from jaxpipe import dynamic
from jaxpipe.dtypes import DTYPES
from jaxpipe.epilogue import Epilogue
from jaxpipe.ir.affine import ZERO, Affine, var
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
    Window,
)
from jaxpipe.kernel import BufferRole
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem, as_matmul

BATCH_AXES = ("b0", "b1", "rows")  # rows: of the batch entries before, where m is dynamic


def build(problem: Problem) -> Func:
    """The nest of `problem`:

    for b in grid(batch)
      fill acc = 0
      mma acc += lhs[b] @ rhs[b]
      map scaled = acc * alpha ; map biased = scaled + bias ; ...
      store out[b] <- last

    Dynamic sizes are at their largest value, and the buffers name the parameter for rows.
    """
    problem = dynamic.bounded(problem)
    match problem:
        case Matmul():
            return _nest(problem, _matmul_operands(problem), problem.batch)
        case Conv2d() if problem.is_pointwise:
            return build(as_matmul(problem))
        case Conv2d():
            return _nest(problem, _conv_operands(problem), ())


def whole(buffer: Buffer, batch: tuple[int, ...] = ()) -> Region:
    """All of one batch entry of a buffer."""
    starts, extents = [], []
    for axis, size in zip(buffer.axes, buffer.shape, strict=True):
        is_batch = axis in BATCH_AXES
        starts.append(_batch_index(axis, batch) if is_batch else ZERO)
        extents.append(1 if is_batch else size)
    return Region(buffer.name, tuple(starts), tuple(extents))


def _batch_index(axis: str, batch: tuple[int, ...]) -> Affine:
    """The index along b0 or b1 of the flat batch index b (b1 is the faster one)."""
    if axis == "rows":
        return var(dynamic.BATCH_ROWS)
    if len(batch) == 1:
        return var("b")
    return var("b") // batch[1] if axis == "b0" else var("b") % batch[1]


# ---------------------------------------------------------------------- operands
def _matmul_operands(problem: Matmul) -> tuple[Buffer, Buffer]:
    lhs = _operand(
        problem, "lhs", problem.lhs, ("m", "k"), (problem.m, problem.k),
        problem.lhs_ld, problem.lhs_batch_strides,
    )  # fmt: skip
    rhs = _operand(
        problem, "rhs", problem.rhs, ("k", "n"), (problem.k, problem.n),
        problem.rhs_ld, problem.rhs_batch_strides,
    )  # fmt: skip
    return lhs, rhs


def _operand(
    problem: Matmul,
    role: BufferRole,
    layout: Layout,
    axes: tuple[str, str],
    shape: tuple[int, int],
    ld: int,
    batch_strides: tuple[int, ...],
) -> Buffer:
    if layout.transposed:
        axes, shape = (axes[1], axes[0]), (shape[1], shape[0])
    rows = _rows(problem) if role == "lhs" else ""
    batch, batch_axes = problem.batch, _batch_axes(problem.batch)
    if rows and batch and not layout.batch_strides:
        batch, batch_axes, batch_strides = _by_rows(ld)
    row_steps = (*batch_strides, ld) if shape[0] > 1 else batch_strides
    return Buffer(
        name=role,
        scope="global",
        dtype=problem.dtype,
        axes=(*batch_axes, *axes),
        shape=(*batch, *shape),
        strides=(*batch_strides, ld, 1),
        role=role,
        align_bytes=_alignment(problem.dtype, row_steps),
        rows=rows,
    )


def _rows(problem: Problem) -> str:
    return dynamic.ROWS if dynamic.has_rows(problem) else ""


def _batch_axes(batch: tuple[int, ...]) -> tuple[str, ...]:
    return BATCH_AXES[: len(batch)]


def _by_rows(ld: int) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
    """Shape, axes and strides of the batch of a dense buffer whose rows are dynamic."""
    return (dynamic.LIMIT,), ("rows",), (ld,)


def _alignment(dtype: str, row_steps: tuple[int, ...]) -> int:
    """Largest power of two up to 16 that divides every row's address (bases are 16-aligned)."""
    return math.gcd(16, *(step * DTYPES[dtype].size_bytes for step in row_steps))


def _conv_operands(problem: Conv2d) -> tuple[Buffer, Buffer]:
    kh, kw = problem.kernel
    c, n = problem.in_channels, problem.out_channels
    image_strides = (problem.height * problem.width * c, problem.width * c, c, 1)
    window = Window(
        problem.height, problem.width, problem.out_height, problem.out_width,
        problem.stride, problem.dilation, (problem.padding[0][0], problem.padding[1][0]),
    )  # fmt: skip
    lhs = Buffer(
        "lhs", "global", problem.dtype, ("m", "kh", "kw", "k"), (problem.m, kh, kw, c),
        strides=image_strides, role="lhs", window=window,
        align_bytes=_alignment(problem.dtype, (c,)), rows=_rows(problem),
    )  # fmt: skip
    rhs = Buffer(
        "rhs", "global", problem.dtype, ("kh", "kw", "k", "n"), (kh, kw, c, n),
        strides=(kw * c * n, c * n, n, 1), role="rhs", align_bytes=_alignment(problem.dtype, (n,)),
    )  # fmt: skip
    return lhs, rhs


# ---------------------------------------------------------------------- the nest
def _nest(problem: Problem, operands: tuple[Buffer, Buffer], batch: tuple[int, ...]) -> Func:
    acc = register("acc", problem.accumulator, ("m", "n"), (problem.m, problem.n))
    statements: list[Stmt] = [Alloc(acc), Fill(whole(acc), 0.0)]
    sources = []
    for operand in operands:
        source, producer = _rounded(problem, operand, batch)
        sources.append(source)
        statements += producer
    statements.append(Mma(whole(acc), *sources))
    results = result_buffers(problem, batch)
    statements += epilogue_chain(problem.epilogue, acc, results, batch)
    statements.sort(key=lambda s: not isinstance(s, Alloc))  # stable: allocations first
    loop = For("b", 0, problem.batch_size, "grid", tuple(statements))
    return Func(type(problem).__name__.lower(), (*operands, *results.values()), (loop,))


def register(name: str, dtype: str, axes: tuple[str, ...], shape: tuple[int, ...]) -> Buffer:
    """A register buffer."""
    return Buffer(name, "register", dtype, axes, shape)


def _rounded(
    problem: Problem, operand: Buffer, batch: tuple[int, ...]
) -> tuple[Region, list[Stmt]]:
    """The operand as the tensor core takes it, and the statements that make it so."""
    source = whole(operand, batch)
    if not (problem.dtype == "float32" and problem.precision == "tf32"):
        return source, []
    kept = [(a, s) for a, s in zip(operand.axes, operand.shape, strict=True) if a not in BATCH_AXES]
    rounded = register(
        f"{operand.name}_tf32", "float32", tuple(a for a, _ in kept), tuple(s for _, s in kept)
    )
    return whole(rounded), [
        Alloc(rounded),
        Elementwise(whole(rounded), source, Step("round_tf32")),
    ]


def result_buffers(problem: Problem, batch: tuple[int, ...]) -> dict[str, Buffer]:
    """The global buffers of the epilogue, in the order of kernel.BUFFER_ROLES."""
    epilogue, m, n, rows = problem.epilogue, problem.m, problem.n, _rows(problem)
    found: dict[str, Buffer] = {}
    if epilogue.bias != "none":
        axis, size = ("n", n) if epilogue.bias == "column" else ("m", m)
        found["bias"] = Buffer(
            "bias", "global", problem.bias_dtype, (axis,), (size,), strides=(1,), role="bias"
        )
    if epilogue.residual:
        found["residual"] = dense("residual", problem.out_dtype, batch, m, n, rows)
    found["out"] = dense("out", problem.out_dtype, batch, m, n, rows)
    if epilogue.save_preactivation:
        found["preactivation"] = dense("preactivation", problem.out_dtype, batch, m, n, rows)
    return found


def dense(
    role: BufferRole, dtype: str, batch: tuple[int, ...], m: int, n: int, rows: str = ""
) -> Buffer:
    """A dense row-major global buffer [*batch, m, n]; rows: the parameter that m is."""
    shape, axes = (*batch, m, n), _batch_axes(batch)
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if rows and batch:
        outer, axes, steps = _by_rows(n)
        shape, strides = (*outer, m, n), (*steps, n, 1)
    return Buffer(
        role, "global", dtype, (*axes, "m", "n"), shape,
        strides=strides, role=role, align_bytes=_alignment(dtype, (n,)), rows=rows,
    )  # fmt: skip


def epilogue_chain(
    epilogue: Epilogue, acc: Buffer, results: dict[str, Buffer], batch: tuple[int, ...]
) -> list[Stmt]:
    """One Elementwise a step of the epilogue, then the stores."""
    steps: list[tuple[str, Step]] = []
    residual = _residual_step(epilogue, results, batch)
    if epilogue.alpha != 1.0:
        steps.append(("scaled", Step("scale", scalar=epilogue.alpha)))
    if epilogue.bias != "none":
        steps.append(("biased", Step("add", whole(results["bias"]))))
    if epilogue.residual_first:
        steps += residual
    if epilogue.save_preactivation:
        steps.append(("", Step("save", whole(results["preactivation"], batch))))
    if epilogue.activation != "none":
        steps.append(("activated", Step(epilogue.activation)))
    if not epilogue.residual_first:
        steps += residual
    statements: list[Stmt] = []
    value = acc
    for name, step in steps:
        if step.op == "save":
            assert step.operand is not None
            statements.append(Store(step.operand, whole(value)))
            continue
        result = register(name, acc.dtype, acc.axes, acc.shape)
        statements += [Alloc(result), Elementwise(whole(result), whole(value), step)]
        value = result
    return [*statements, Store(whole(results["out"], batch), whole(value))]


def _residual_step(
    epilogue: Epilogue, results: dict[str, Buffer], batch: tuple[int, ...]
) -> list[tuple[str, Step]]:
    """What is done with the residual, and the name of its result; [] without one."""
    if not epilogue.residual:
        return []
    gated = epilogue.derivative != "none"
    name, op = ("gated", f"derivative_{epilogue.derivative}") if gated else ("summed", "add")
    return [(name, Step(op, whole(results["residual"], batch)))]
