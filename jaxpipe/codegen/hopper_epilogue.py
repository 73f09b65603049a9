"""The epilogue of a Hopper consumer as CUDA text: registers, panel, global memory.

In: the nest, whose Store carries the steps, and its Geometry. Out: text that finishes every
accumulator in the order of the steps with one rounding, writes panels with the swizzle that TMA
expects and stores them; a panel is written while the one before it is read. A thread holds, for
every 8 columns of b, accumulators 0 and 1 in row lane/4 of a and 2 and 3 eight rows further.
Source: PTX ISA, wgmma accumulator fragments.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.codegen.hopper_maps import store_coordinates
from jaxpipe.codegen.hopper_nest import Nest, Results
from jaxpipe.codegen.hopper_source import ELEMENT_TYPES, indent
from jaxpipe.codegen.text import expression
from jaxpipe.geometry_hopper import PANEL_BUFFERS, Geometry
from jaxpipe.ir.nodes import Buffer, Region, Step
from jaxpipe.problem import DTYPES

FUNCTIONS = {"tanh": "tanhf"}  # steps whose device function has another name


@dataclass(frozen=True, slots=True)
class Output:
    """One result: where it goes, its buffer, and the steps from the accumulator to it."""

    region: Region
    buffer: Buffer
    steps: tuple[Step, ...]
    function: str


def outputs(results: Results) -> tuple[Output, ...]:
    """What the store writes, in order: saved values, then the result."""
    store = results.store
    found = []
    for position, step in enumerate(store.steps):
        if step.op == "save":
            assert step.operand is not None
            earlier = store.steps[:position]
            found.append(_output(results, step.operand, earlier))
    return (*found, _output(results, store.dst, store.steps))


def _output(results: Results, region: Region, steps: tuple[Step, ...]) -> Output:
    kept = tuple(s for s in steps if s.op != "save")
    buffer = results.buffers[region.buffer]
    return Output(region, buffer, kept, f"finish_{buffer.name}")


def operands(results: Results) -> tuple[Buffer, ...]:
    """Buffers that the steps read, in order: bias, residual."""
    steps = [s for s in results.store.steps if s.op != "save"]
    return tuple(results.buffers[s.operand.buffer] for s in steps if s.operand is not None)


def value_type(g: Geometry, stored: str = "") -> str:
    """C++ type in which results of dtype `stored` (default: this kernel's) are finished: sums of
    integers that stay integers are never turned into floats."""
    exact = g.wgmma.accumulator == "s32" and (stored or g.store_dtype) == "int32"
    return "int" if exact else "float"


# ---------------------------------------------------------------- one element
def finish_functions(kind: str, results: Results) -> str:
    """A device function an output: its steps on one element of C++ type `kind`."""
    return "\n".join(_finish(kind, results, output) for output in outputs(results))


def _finish(kind: str, results: Results, output: Output) -> str:
    read = [results.buffers[s.operand.buffer] for s in output.steps if s.operand is not None]
    parameters = [f"{kind} x", *(f"{kind} {b.name}" for b in read)]
    lines = [f"  x = {_step(results, step)};\n" for step in output.steps]
    words = ", ".join(step.op for step in output.steps) or "the sum itself"
    return f"""\
// {output.buffer.name}: {words}
__device__ __forceinline__ {kind} {output.function}({", ".join(parameters)}) {{
{"".join(lines)}  return x;
}}
"""


def _step(results: Results, step: Step) -> str:
    match step.op:
        case "scale":
            return f"x * {float_text(step.scalar)}"
        case "add":
            assert step.operand is not None
            return f"x + {results.buffers[step.operand.buffer].name}"
        case _:
            return f"{FUNCTIONS.get(step.op, step.op)}(x)"


def float_text(value: float) -> str:
    """A float literal."""
    literal = repr(float(value))
    return (literal if "." in literal or "e" in literal else literal + ".0") + "f"


def epilogue(g: Geometry, nest: Nest) -> str:
    """The epilogue of one tile."""
    across, panels = _across(g, nest), _panel_loop(g, nest)
    body = _positions(g, nest, across + panels) + across + panels
    return f"""\
// ---- epilogue: registers -> swizzled panel -> global memory
#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom) {{
{indent(body)}}}
"""


# ---------------------------------------------------------------- where a thread's results lie
def _first(nest: Nest, axis: str) -> str:
    """First row or column of the tile."""
    return expression(nest.starts(nest.store.dst)[axis])


def _positions(g: Geometry, nest: Nest, text_after: str) -> str:
    """Row of a of the thread's first accumulator, and the patch of a convolution."""
    own = "" if g.schedule.ping_pong else "consumer * kGroupRows + "
    lines = f"const int a_row = {own}atom * 64 + quarter * 16 + lane / 4;\n"
    lines = lines if "a_row" in text_after else ""
    if g.patch is not None:
        offset = "" if g.schedule.ping_pong else " + consumer * kAtoms"
        first = expression(nest.starts(nest.store.dst)["m"] // 64)
        lines += f"const Patch patch = patch_at({first}{offset} + atom);\n"
    return lines


def _pixel(row: str) -> tuple[str, str]:
    """Linear pixel of row `row` of a patch, and whether it exists."""
    x = f"(patch.x + ({row}) % kPatchWidth)"
    y = f"(patch.y + ({row}) / kPatchWidth % kPatchHeight)"
    image = f"(patch.image + ({row}) / (kPatchWidth * kPatchHeight))"
    inside = f"({x} < kOutWidth && {y} < kOutHeight && {image} < kImages)"
    return f"(({image} * kOutHeight + {y}) * kOutWidth + {x})", inside


def _offset(nest: Nest, region: Region, row: str, column: str) -> str:
    """Element offset of a result row and column, 64-bit: the batch is the region's."""
    buffer = nest.buffers[region.buffer]
    terms = [
        f"({expression(start)}) * {stride}ll"
        for start, stride in zip(region.starts[:-2], buffer.strides, strict=False)
    ]
    return " + ".join([*terms, f"({row}) * {buffer.strides[-2]}ll", column])


def _operand_step(nest: Nest, axes: tuple[str, ...]) -> Step | None:
    """The step that adds a buffer with these axes."""
    for step in nest.store.steps:
        if step.op == "add" and step.operand is not None:
            own = tuple(a for a in nest.buffers[step.operand.buffer].axes if a in ("m", "n"))
            if own == axes:
                return step
    return None


def _across(g: Geometry, nest: Nest) -> str:
    """What is fixed along an atom: the two lines of a, their bounds, and the bias along them."""
    swapped = g.schedule.swap_operands
    bias = _operand_step(nest, ("n",) if swapped else ("m",))
    residual = _operand_step(nest, ("m", "n"))
    if bias is None and residual is None:
        return ""
    if swapped:
        ragged = g.problem.n % g.schedule.block_n != 0
        lines = _two_lines(f"{_first(nest, 'n')} + a_row", g.problem.n, ragged)
    elif g.patch is not None:
        lines = []
        for i in range(2):
            index, inside = _pixel(f"quarter * 16 + lane / 4 + {8 * i}")
            lines += [f"const int line{i} = {index};", f"const bool inside{i} = {inside};"]
    else:
        ragged = g.problem.m % g.schedule.block_m != 0
        lines = _two_lines(f"{_first(nest, 'm')} + a_row", g.problem.m, ragged)
    if bias is not None:
        lines += [
            f"const {value_type(g)} bias{i} = {_load(g, f'bias + line{i}', f'inside{i}')};"
            for i in range(2)
        ]
    return "".join(f"{line}\n" for line in lines)


def _two_lines(first: str, limit: int, is_ragged: bool) -> list[str]:
    inside = [f"line{i} < {limit}" if is_ragged else "true" for i in range(2)]
    return [
        f"const int line0 = {first}, line1 = line0 + 8;",
        f"const bool inside0 = {inside[0]}, inside1 = {inside[1]};",
    ]


def _load(g: Geometry, pointer: str, inside: str) -> str:
    exact = value_type(g) == "int"
    return f"{inside} ? *({pointer}) : 0" if exact else f"load_or_zero({pointer}, {inside})"


# ---------------------------------------------------------------- panels
def _panel_loop(g: Geometry, nest: Nest) -> str:
    if g.schedule.swap_operands:
        return "".join(_swapped_panel(g, nest, output) for output in outputs(nest.results))
    body = "".join(_panel(g, nest, output) for output in outputs(nest.results))
    return f"""\
#pragma unroll
for (int panel = 0; panel < kColumns / kPanelColumns; ++panel) {{
{indent(body)}}}
"""


def _panel(g: Geometry, nest: Nest, output: Output) -> str:
    """One 64-row panel: 128 bytes of n a row."""
    wide = DTYPES[g.store_dtype].size_bytes == 4
    write = _write_words(g, nest, output) if wide else _write_matrices(g, nest, output)
    own = "" if g.schedule.ping_pong else "consumer * kGroupRows + "
    row = f"{_first(nest, 'm')} + {own}atom * 64"
    column = f"{_first(nest, 'n')} + panel * kPanelColumns"
    at = _panel_coordinates(g, nest, output, column, row)
    store = f"tma_store(&{output.buffer.name}_map, buffer, {at});\n"
    return _publish(g, output, write, store, _direct_store(g, nest, output, column, row))


def _swapped_panel(g: Geometry, nest: Nest, output: Output) -> str:
    """One panel of all columns of b (rows of the result), 64 columns of the result wide."""
    wide = DTYPES[g.store_dtype].size_bytes == 4
    write = _write_swapped_words(g, nest, output) if wide else _write_swapped(g, nest, output)
    own = "" if g.schedule.ping_pong else "consumer * kGroupRows + "
    column, row = f"{_first(nest, 'n')} + {own}atom * 64", _first(nest, "m")
    store = ""
    for part in range(g.panel_parts):
        shift = f" + {part * g.panel_columns}" if part else ""
        at = _panel_coordinates(g, nest, output, column + shift, row)
        where = f"buffer + {part * g.panel_rows * 128}u" if part else "buffer"
        store += f"tma_store(&{output.buffer.name}_map, {where}, {at});\n"
    return _publish(g, output, write, store, _direct_store(g, nest, output, column, row))


def _panel_coordinates(g: Geometry, nest: Nest, output: Output, column: str, row: str) -> str:
    if g.patch is not None:
        return f"{column}, patch.x, patch.y, patch.image"
    return ", ".join(store_coordinates(nest, output.region, column, row))


def _publish(g: Geometry, output: Output, write: str, store: str, direct: str) -> str:
    """Write the buffer that no store reads any more, hand it over, store it."""
    if g.has_tma_store:
        hand_over = f"""\
fence_proxy_async();
if (leader) bulk_wait_group_read<0>();  // frees the other buffer, by the barrier for all
bar_sync_group(warpgroup);
if (leader) {{
{indent(store)}  bulk_commit_group();
}}
"""
    else:
        hand_over = f"bar_sync_group(warpgroup);\n{direct}"
    return f"""\
{{  // {output.buffer.name}
  const unsigned buffer = panels + panel_parity * kPanelBytes;
  panel_parity ^= {PANEL_BUFFERS - 1};
{indent(write)}{indent(hand_over)}}}
"""


# ---------------------------------------------------------------- values
def _values(g: Geometry, nest: Nest, output: Output, block: str) -> str:
    """`v[4]`: the finished results of the four accumulators of `block` (8 columns of b)."""
    lines = [f"const int first = ({block}) * 4;"]
    arguments: list[list[str]] = []
    for step in output.steps:
        if step.operand is not None:
            loads, names = _operand_values(g, nest, step.operand)
            lines += loads
            arguments.append(names)
    kind = value_type(g)
    convert = "(float)" if kind == "float" and g.wgmma.accumulator == "s32" else ""
    lines.append(f"{kind} v[4];")
    for i in range(4):
        values = [f"{convert}accumulators[atom][first + {i}]", *(names[i] for names in arguments)]
        lines.append(f"v[{i}] = {output.function}({', '.join(values)});")
    return "".join(f"{line}\n" for line in lines)


def _operand_values(g: Geometry, nest: Nest, region: Region) -> tuple[list[str], list[str]]:
    """Loads of an operand for the four accumulators of a block, and the names of the values."""
    buffer = nest.buffers[region.buffer]
    along = "m" if g.schedule.swap_operands else "n"  # the axis on which `column` counts
    match tuple(a for a in buffer.axes if a in ("m", "n")):
        case (axis,) if axis == along:
            return _pair(g, "along", buffer.name, "column", axis), ["along.x", "along.y"] * 2
        case (_,):
            return [], ["bias0", "bias0", "bias1", "bias1"]
        case _ if g.schedule.swap_operands:
            return _swapped_residual(g, nest, region)
        case _:
            return _residual(g, nest, region)


def _bounds(g: Geometry, axis: str) -> tuple[str, str]:
    """Whether elements `column` and `column + 1` along m or n exist."""
    sizes = {"m": (g.problem.m, g.schedule.block_m), "n": (g.problem.n, g.schedule.block_n)}
    size, block = sizes[axis]
    if size % block == 0:
        return "true", "true"
    return f"column < {size}", f"column + 1 < {size}"


def _pair(
    g: Geometry, name: str, pointer: str, index: str, axis: str, guard: str = ""
) -> list[str]:
    """Two neighbours along `axis` as `name.x` and `name.y`."""
    first, second = (f"{guard} && {b}" if guard else b for b in _bounds(g, axis))
    if value_type(g) == "int":
        return [
            f"const int2 {name} = make_int2({first} ? {pointer}[{index}] : 0, "
            f"{second} ? {pointer}[{index} + 1] : 0);"
        ]
    even = (g.problem.m if axis == "m" else g.problem.n) % 2 == 0
    return [
        f"const float2 {name} = load_pair_or_zero<{str(even).lower()}>("
        f"{pointer} + {index}, {first}, {second});"
    ]


def _residual(g: Geometry, nest: Nest, region: Region) -> tuple[list[str], list[str]]:
    name = nest.buffers[region.buffer].name
    lines = []
    for i in range(2):
        offset = _offset(nest, region, f"line{i}", "column")
        lines.append(f"const auto* {name}_line{i} = {name} + ({offset});")
        lines += _pair(g, f"{name}{i}", f"{name}_line{i}", "0", "n", f"inside{i}")
    return lines, [f"{name}0.x", f"{name}0.y", f"{name}1.x", f"{name}1.y"]


def _swapped_residual(g: Geometry, nest: Nest, region: Region) -> tuple[list[str], list[str]]:
    name = nest.buffers[region.buffer].name
    bounds, lines, names = _bounds(g, "m"), [], []
    for i in range(4):
        line, step = i // 2, i % 2
        pointer = f"{name} + ({_offset(nest, region, f'column + {step}', f'line{line}')})"
        load = _load(g, pointer, f"inside{line} && {bounds[step]}")
        lines.append(f"const {value_type(g)} {name}{i} = {load};")
        names.append(f"{name}{i}")
    return lines, names


# ---------------------------------------------------------------- registers to panel
def _column(column: str, values: str) -> str:
    """`values`, with the column in front that they use."""
    return f"const int column = {column};\n{values}" if "column" in values else values


def _write_matrices(g: Geometry, nest: Nest, output: Output) -> str:
    """16-bit results: four 8x8 matrices at a time, two neighbouring blocks of 8 columns."""
    column = f"{_first(nest, 'n')} + panel * kPanelColumns + (j + half) * 8 + lane % 4 * 2"
    values = _values(g, nest, output, "panel * 8 + j + half")
    pack = f"pack_pair<{ELEMENT_TYPES[g.store_dtype]}>"
    return f"""\
const int store_row = quarter * 16 + lane % 16;
#pragma unroll
for (int j = 0; j < 8; j += 2) {{
  unsigned packed[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {{
{indent(_column(column, values), 2)}    packed[2 * half] = {pack}(v[0], v[1]);
    packed[2 * half + 1] = {pack}(v[2], v[3]);
  }}
  const unsigned chunk = (j + lane / 16) ^ (store_row & 7);
  stmatrix_x4(buffer + store_row * 128 + chunk * 16, packed[0], packed[1], packed[2], packed[3]);
}}
"""


def _write_words(g: Geometry, nest: Nest, output: Output) -> str:
    """32-bit results: pairs, straight from the fragment."""
    column = f"{_first(nest, 'n')} + panel * kPanelColumns + j * 8 + lane % 4 * 2"
    values = _values(g, nest, output, "panel * 4 + j")
    return f"""\
const int store_row = quarter * 16 + lane / 4;
#pragma unroll
for (int j = 0; j < 4; ++j) {{
{indent(_column(column, values))}  const unsigned chunk = (j * 2 + lane % 4 / 2) ^ (store_row & 7);
  const unsigned to = buffer + store_row * 128 + chunk * 16 + lane % 2 * 8;
  st_shared_v2(to, bits_of(v[0]), bits_of(v[1]));
  st_shared_v2(to + 8 * 128, bits_of(v[2]), bits_of(v[3]));
}}
"""


def _write_swapped(g: Geometry, nest: Nest, output: Output) -> str:
    """16-bit results of swapped operands: transposed matrices, rows of the panel are rows of m."""
    blocks = g.b.tile // 8
    body = ""
    if blocks > 1:
        four = _transposed(g, nest, output, 2, "(j + lane / 16)")
        four += "stmatrix_x4_trans(to, packed[0], packed[1], packed[2], packed[3]);\n"
        body += f"""\
#pragma unroll
for (int j = 0; j + 1 < {blocks}; j += 2) {{
{indent(four)}}}
"""
    if blocks % 2:
        two = _transposed(g, nest, output, 1, "j")
        two += "stmatrix_x2_trans(to, packed[0], packed[1]);\n"
        body += f"""\
{{
  const int j = {blocks - 1};
{indent(two)}}}
"""
    return body


def _transposed(g: Geometry, nest: Nest, output: Output, count: int, block: str) -> str:
    """`packed` of `count` blocks of 8 columns of b from `j` on, and the address `to`."""
    pack = f"pack_pair<{ELEMENT_TYPES[g.store_dtype]}>"
    values = _values(g, nest, output, "j + half")
    column = f"{_first(nest, 'm')} + (j + half) * 8 + lane % 4 * 2"
    return f"""\
unsigned packed[{2 * count}];
#pragma unroll
for (int half = 0; half < {count}; ++half) {{
{indent(_column(column, values))}  packed[2 * half] = {pack}(v[0], v[1]);
  packed[2 * half + 1] = {pack}(v[2], v[3]);
}}
const int store_row = {block} * 8 + lane % 8;
const unsigned chunk = (quarter * 2 + lane / 8 % 2) ^ (lane % 8);
const unsigned to = buffer + store_row * 128 + chunk * 16;
"""


def _write_swapped_words(g: Geometry, nest: Nest, output: Output) -> str:
    """32-bit results of swapped operands: word by word, two boxes of 32 columns."""
    values = _values(g, nest, output, "j")
    column = f"{_first(nest, 'm')} + j * 8 + lane % 4 * 2"
    return f"""\
#pragma unroll
for (int j = 0; j < kColumns / 8; ++j) {{
{indent(_column(column, values))}#pragma unroll
  for (int i = 0; i < 4; ++i) {{
    const int store_row = j * 8 + lane % 4 * 2 + i % 2, word = quarter * 16 + lane / 4 + i / 2 * 8;
    const unsigned chunk = (word % 32 / 4) ^ (store_row & 7);
    const unsigned to = buffer + word / 32 * {g.panel_rows * 128}u + store_row * 128;
    st_shared(to + chunk * 16 + word % 4 * 4, bits_of(v[i]));
  }}
}}
"""


# ---------------------------------------------------------------- rows that TMA cannot store
def _direct_store(g: Geometry, nest: Nest, output: Output, column: str, row: str) -> str:
    """Panel to global memory by ordinary stores, as wide as the row pitch allows."""
    size, name = DTYPES[g.store_dtype].size_bytes, output.buffer.name
    piece = next(b for b in (8, 4, 2) if g.problem.n * size % b == 0)
    if g.patch is not None:
        index, inside = _pixel("r")
    else:
        index = f"{row} + r"
        inside = f"{row} + r < {g.problem.m}" if g.problem.m % g.schedule.block_m else "true"
    rows = g.panel_rows
    part = f" + i / {rows * 8} * {g.panel_columns}" if g.panel_parts > 1 else ""
    return f"""\
#pragma unroll 1
for (int i = threadIdx.x % 128; i < {rows * 8 * g.panel_parts}; i += 128) {{
  const int r = i / 8 % {rows}, to_column = {column}{part} + i % 8 * {16 // size};
  const int to_row = {index};
  const uint4 value = ld_shared_v4(buffer + i / 8 * 128 + ((i % 8 ^ (r & 7)) << 4));
  char* to = (char*)({name} + ({_offset(nest, output.region, "to_row", "to_column")}));
  if ({inside}) store_pieces<{piece}>(to, value, ({g.problem.n} - to_column) * {size});
}}
"""
