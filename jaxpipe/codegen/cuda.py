"""The frame of a kernel and its control flow as CUDA text, whatever the target.

In: a lowered nest, and a function that prints its leaves. Out: lines. Grid loops become the
position of the block, warp loops the position of the warp, serial loops are loops with their
counters. It must not know instructions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources

from jaxpipe.codegen.finish import CUDA_TYPES
from jaxpipe.codegen.text import condition, indented
from jaxpipe.dynamic import BATCH_ROWS
from jaxpipe.ir.affine import Range, Var
from jaxpipe.ir.nodes import Alloc, Buffer, Counter, For, Func, If, Stmt, Store
from jaxpipe.ir.visit import Body, counter_range, given, loop_range, refined, walk, writes

Ranges = Mapping[str, Range]
Leaf = Callable[[Stmt, Ranges], list[str]]
TILE_LOOPS = ("m0", "n0")


@functools.cache
def device_file(name: str) -> str:
    """Text of one file of codegen/device."""
    return (resources.files("jaxpipe.codegen") / "device" / name).read_text()


@dataclass(frozen=True, slots=True)
class Frame:
    """A nest without its grid and warp loops: what a block does."""

    func: Func
    grid: tuple[For, ...]
    warps: tuple[For, ...]
    body: Body

    @property
    def ranges(self) -> dict[str, Range]:
        """Ranges of the variables of grid and warp loops, and of what the call brings."""
        loops = {loop.var: loop_range(loop) for loop in (*self.grid, *self.warps)}
        return given(self.func) | loops

    @property
    def rows(self) -> str:
        """The parameter that the rows of the product are, "" for none."""
        return next((p.rows for p in self.func.params if p.rows), "")

    @property
    def has_batch_rows(self) -> bool:
        """True when buffers count the rows of the batch entries before."""
        return any("rows" in p.axes for p in self.func.params)

    @property
    def fixed(self) -> frozenset[str]:
        """Variables that do not change inside a block."""
        return frozenset({*given(self.func), *(loop.var for loop in self.grid)})

    def blocks(self, without: frozenset[str] = frozenset()) -> int:
        """Blocks of the launch, but for those along the loops named."""
        counts = (loop.stop for loop in self.grid if loop.var not in without)
        return math.prod(counts)

    @property
    def warp_counts(self) -> tuple[int, int]:
        """Warps along m and n."""
        counts = {loop.var: loop.stop for loop in self.warps}
        return counts.get("wm", 1), counts.get("wn", 1)


def frame_of(func: Func) -> Frame:
    """Take the grid and warp loops off a nest."""
    body, loops = func.body, []
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in ("grid", "warp"):
        loops.append(body[0])
        body = body[0].body
    grid = tuple(loop for loop in loops if loop.kind == "grid")
    return Frame(func, grid, tuple(loop for loop in loops if loop.kind == "warp"), body)


# ---------------------------------------------------------------------- control flow
def statements(body: Body, leaf: Leaf, ranges: Ranges) -> list[str]:
    """Lines of a statement list."""
    lines: list[str] = []
    for statement in body:
        match statement:
            case For():
                lines += _loop(statement, leaf, ranges)
            case If(conditions, inner):
                inside = statements(inner, leaf, refined(ranges, conditions))
                lines += [f"if ({condition(conditions)}) {{", *indented(inside), "}"]
            case Alloc():
                continue
            case _:
                lines += leaf(statement, ranges)
    return lines


def _loop(loop: For, leaf: Leaf, ranges: Ranges) -> list[str]:
    scope = {**ranges, loop.var: loop_range(loop)}
    scope |= {c.name: counter_range(c, loop) for c in loop.counters}
    starts = [f"{c.name} = {c.start}" for c in loop.counters]
    lines = [
        *([f"int {', '.join(starts)};"] if starts else []),
        "#pragma unroll 1",
        f"for (int {loop.var} = {loop.start}; {loop.var} < {loop.stop}; ++{loop.var}) {{",
        *indented(statements(loop.body, leaf, scope)),
        *indented(_steps(loop.counters)),
        "}",
    ]
    return ["{", *indented(lines), "}"] if starts else lines


def _steps(counters: tuple[Counter, ...]) -> list[str]:
    """The ends of an iteration: counters step, and those that carry step with them."""
    lines: list[str] = []
    for counter in counters:
        if counter.carry:
            continue
        lines += _step(counter, counters)
    return lines


def _step(counter: Counter, counters: tuple[Counter, ...]) -> list[str]:
    above = [line for c in counters if c.carry == counter.name for line in _step(c, counters)]
    if not counter.modulus:
        return [f"++{counter.name};"]
    if not above:
        last = counter.modulus - 1
        return [f"{counter.name} = {counter.name} == {last} ? 0 : {counter.name} + 1;"]
    reset = f"if (++{counter.name} == {counter.modulus}) {{"
    return [reset, *indented([f"{counter.name} = 0;", *above]), "}"]


# ---------------------------------------------------------------------- the kernel around it
def signature(func: Func, entry: str, threads: int, blocks_per_sm: int) -> list[str]:
    """The kernel's head; parameters in the order of the nest's."""
    written = {r.buffer for s in walk(func.body) for r in writes(s)}
    parameters = [_parameter(p, is_written=p.name in written) for p in func.params]
    parameters += [f"int {rows}" for rows in sorted({p.rows for p in func.params if p.rows})]
    return [
        f'extern "C" __global__ void __launch_bounds__({threads}, {blocks_per_sm})',
        f"{entry}({', '.join(parameters)}) {{",
    ]


def _parameter(buffer: Buffer, *, is_written: bool) -> str:
    qualifier = "" if is_written else "const "
    return f"{qualifier}{CUDA_TYPES[buffer.dtype]}* __restrict__ {buffer.name}"


def positions(frame: Frame, raster_group: int) -> list[str]:
    """Where this block and this warp are: batch slowest, then splits, then grouped tiles.

    Variables that can only be 0 do not occur in the nest and are not declared.
    """
    counts = {loop.var: loop.stop for loop in frame.grid}
    columns = counts["n0"]
    lines = ["const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;"]
    rows: int | str = counts["m0"]
    if frame.rows:
        rows, height = "tile_rows", _tile_height(frame)
        lines.append(f"const int tile_rows = ({frame.rows} + {height - 1}) / {height};")
    divisor = times(rows, columns)
    tiles, is_many = divisor, divisor != 1
    outer = [loop for loop in frame.grid if loop.var not in TILE_LOOPS and loop.stop > 1]
    for loop in reversed(outer):
        wrap = "" if loop is outer[0] else f" % {loop.stop}"
        lines.append(f"const int {loop.var} = blockIdx.x / {divisor}{wrap};")
        divisor = times(divisor, loop.stop)
    if frame.has_batch_rows:
        lines.append(f"const long long {BATCH_ROWS} = (long long)b * {frame.rows};")
    if is_many:
        lines.append(f"const int tile = blockIdx.x{f' % {tiles}' if outer else ''};")
        lines += _tile_position(rows, columns, raster_group)
    along_m, along_n = frame.warp_counts
    if along_m > 1:
        lines.append(f"const int wm = warp % {along_m};" if along_n > 1 else "const int wm = warp;")
    if along_n > 1:
        lines.append(f"const int wn = warp / {along_m};" if along_m > 1 else "const int wn = warp;")
    return lines


def _tile_height(frame: Frame) -> int:
    """Rows of a block's tile."""
    store = next(s for s in walk(frame.body) if isinstance(s, Store))
    out = next(p for p in frame.func.params if p.name == store.dst.buffer)
    coefficients = dict(store.dst.starts[out.axes.index("m")].terms)
    return coefficients[Var("m0")]


def times(count: int | str, factor: int) -> int | str:
    """A count times a number, as C where it is no number."""
    if isinstance(count, int):
        return count * factor
    return count if factor == 1 else f"({count} * {factor})"


def _tile_position(rows: int | str, columns: int, group: int) -> list[str]:
    """Groups of `group` tile rows are walked column by column (their operands stay in L2)."""
    if rows == 1:
        return ["const int n0 = tile;"]
    if columns == 1:
        return ["const int m0 = tile;"]
    if group <= 1:
        return [f"const int m0 = tile / {columns}, n0 = tile % {columns};"]
    if isinstance(rows, int) and group >= rows:
        return [f"const int m0 = tile % {rows}, n0 = tile / {rows};"]
    lines = [
        f"// Raster: {group} tile rows side by side.",
        f"const int group = tile / {group * columns}, inner = tile % {group * columns};",
    ]
    height = str(group)
    if isinstance(rows, str) or rows % group:
        lines.append(f"const int height = min({group}, {rows} - group * {group});")
        height = "height"
    return [
        *lines,
        f"const int m0 = group * {group} + inner % {height}, n0 = inner / {height};",
    ]
