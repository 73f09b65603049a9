"""The epilogue of a Hopper consumer as CUDA text: registers, panel, global memory.

In: a Geometry. Out: text that finishes every accumulator (alpha, bias, activation, residual, one
rounding), writes panels with the swizzle that TMA expects and stores them; a panel is written
while the one before it is read. A thread holds, for every 8 columns of b, accumulators 0 and 1 in
row lane/4 of a and 2 and 3 eight rows further. Source: PTX ISA, wgmma accumulator fragments.
"""

from __future__ import annotations

from jaxpipe.codegen.hopper_source import ELEMENT_TYPES, indent
from jaxpipe.geometry_hopper import PANEL_BUFFERS, Geometry
from jaxpipe.kernel import BufferRole
from jaxpipe.problem import DTYPES, Conv2d, Matmul


def value_type(g: Geometry) -> str:
    """C++ type in which results are finished."""
    exact = g.wgmma.accumulator == "s32" and g.store_dtype == "int32"
    return "int" if exact else "float"


def finish_functions(g: Geometry) -> str:
    """`preactivation` and `finish`: the epilogue of one element, in the accumulator's type."""
    e, kind = g.problem.epilogue, value_type(g)
    if g.stores_partials:
        return f"""\
// Partial sums are stored as they are; the reduction finishes them.
__device__ __forceinline__ {kind} finish({kind} sum, {kind}, {kind}) {{ return sum; }}
"""
    alpha = "" if e.alpha == 1.0 else f"{_float(e.alpha)} * "
    bias = " + bias" if e.bias != "none" else ""
    residual = " + residual" if e.residual else ""
    function = {"none": "", "tanh": "tanhf"}.get(e.activation, e.activation)
    return f"""\
// {e.describe() or "the sum itself"}
__device__ __forceinline__ {kind} preactivation({kind} sum, {kind} bias) {{
  return {alpha}sum{bias};
}}
__device__ __forceinline__ {kind} finish({kind} sum, {kind} bias, {kind} residual) {{
  return {function}(preactivation(sum, bias)){residual};
}}
"""


def _float(value: float) -> str:
    text = repr(float(value))
    return (text if "." in text or "e" in text else text + ".0") + "f"


def outputs(g: Geometry) -> tuple[tuple[BufferRole, str], ...]:
    """Roles that this kernel stores, in order, with the function that makes their value."""
    if g.stores_partials:
        return (("workspace", "finish"),)
    if g.problem.epilogue.save_preactivation:
        return (("preactivation", "preactivation"), ("out", "finish"))
    return (("out", "finish"),)


def epilogue(g: Geometry) -> str:
    """The epilogue of one tile."""
    across, panels = _across(g), _panel_loop(g)
    body = _positions(g, across + panels) + across + panels
    return f"""\
// ---- epilogue: registers -> swizzled panel -> global memory
#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom) {{
{indent(body)}}}
"""


# ---------------------------------------------------------------- where a thread's results lie
def _positions(g: Geometry, text_after: str) -> str:
    """First row of a (`a_row`) of the thread, and what of the result it is."""
    own = "" if g.schedule.ping_pong else "consumer * kGroupRows + "
    text = f"const int a_row = {own}atom * 64 + quarter * 16 + lane / 4;\n"
    text = text if "a_row" in text_after else ""
    if isinstance(g.problem, Conv2d):
        offset = "" if g.schedule.ping_pong else " + consumer * kAtoms"
        text += f"const Patch patch = patch_at(tile.m0{offset} + atom);\n"
    return text


def _plane(g: Geometry) -> str:
    """Index of the result matrix: split, then batch; empty when there is one."""
    batch = g.problem.batch if isinstance(g.problem, Matmul) else ()
    text = {0: "", 1: "tile.batch0", 2: "(tile.batch0 * kBatch1 + tile.batch1)"}[len(batch)]
    if g.schedule.split_k == 1:
        return text
    split = f"tile.split * {g.problem.batch_size}" if batch else "tile.split"
    return f"({split} + {text})" if text else split


def _row_of(g: Geometry, row: str) -> str:
    """Row of the stored array (all planes) of result row `row`, 64-bit."""
    plane = _plane(g)
    return f"((long long){plane} * kM + {row})" if plane else f"(long long)({row})"


def _pixel(row: str) -> tuple[str, str]:
    """Linear pixel of row `row` of a patch, and whether it exists."""
    x = f"(patch.x + ({row}) % kPatchWidth)"
    y = f"(patch.y + ({row}) / kPatchWidth % kPatchHeight)"
    image = f"(patch.image + ({row}) / (kPatchWidth * kPatchHeight))"
    inside = f"({x} < kOutWidth && {y} < kOutHeight && {image} < kImages)"
    return f"(({image} * kOutHeight + {y}) * kOutWidth + {x})", inside


def _needs_rows(g: Geometry) -> bool:
    e = g.problem.epilogue
    return not g.stores_partials and (e.residual or e.bias == "row")


def _across(g: Geometry) -> str:
    """What is fixed along an atom: the two lines of a, their indices, bounds and bias."""
    e = g.problem.epilogue
    if g.stores_partials:
        return ""
    swapped = g.schedule.swap_operands
    lines = ["// the two lines of this thread: index in the result, inside or not"]
    if swapped:
        lines += _two_lines("tile.n0 + a_row", "kN", g.problem.n % g.schedule.block_n != 0)
    elif g.patch is not None and _needs_rows(g):
        for i in range(2):
            index, inside = _pixel(f"quarter * 16 + lane / 4 + {8 * i}")
            lines += [f"const int line{i} = {index};", f"const bool inside{i} = {inside};"]
    elif _needs_rows(g):
        lines += _two_lines("tile.m0 + a_row", "kM", g.problem.m % g.schedule.block_m != 0)
    if e.bias == ("column" if swapped else "row"):
        lines += [
            f"const {value_type(g)} bias{i} = {_load(g, f'bias + line{i}', f'inside{i}')};"
            for i in range(2)
        ]
    return "".join(f"{line}\n" for line in lines) if len(lines) > 1 else ""


def _two_lines(first: str, limit: str, is_ragged: bool) -> list[str]:
    lines = [f"const int line0 = {first}, line1 = line0 + 8;"]
    inside = [f"line{i} < {limit}" if is_ragged else "true" for i in range(2)]
    return [*lines, f"const bool inside0 = {inside[0]}, inside1 = {inside[1]};"]


def _load(g: Geometry, pointer: str, inside: str) -> str:
    exact = value_type(g) == "int"
    return f"{inside} ? *({pointer}) : 0" if exact else f"load_or_zero({pointer}, {inside})"


# ---------------------------------------------------------------- panels
def _panel_loop(g: Geometry) -> str:
    if g.schedule.swap_operands:
        return "".join(_swapped_panel(g, role, function) for role, function in outputs(g))
    body = "".join(_panel(g, role, function) for role, function in outputs(g))
    return f"""\
#pragma unroll
for (int panel = 0; panel < kColumns / kPanelColumns; ++panel) {{
{indent(body)}}}
"""


def _panel(g: Geometry, role: BufferRole, function: str) -> str:
    """One 64-row panel: 128 bytes of n a row."""
    wide = DTYPES[g.store_dtype].size_bytes == 4
    write = _write_words(g, role, function) if wide else _write_matrices(g, role, function)
    row = "consumer * kGroupRows + " if not g.schedule.ping_pong else ""
    store = (
        f"tma_store(&{role}_map, buffer, tile.n0 + panel * kPanelColumns, "
        f"{_store_rows(g, f'tile.m0 + {row}atom * 64')});\n"
    )
    direct = _direct_store(g, role, "tile.n0 + panel * kPanelColumns", f"tile.m0 + {row}atom * 64")
    return _publish(g, role, write, store, direct)


def _swapped_panel(g: Geometry, role: BufferRole, function: str) -> str:
    """One panel of all columns of b (rows of the result), 64 columns of the result wide."""
    wide = DTYPES[g.store_dtype].size_bytes == 4
    write = _write_swapped_words(g, role, function) if wide else _write_swapped(g, role, function)
    own = "consumer * kGroupRows + " if not g.schedule.ping_pong else ""
    column = f"tile.n0 + {own}atom * 64"
    store = "".join(
        f"tma_store(&{role}_map, buffer + {part * g.panel_rows * 128}u, "
        f"{column} + {part * g.panel_columns}, {_store_rows(g, 'tile.m0')});\n"
        for part in range(g.panel_parts)
    )
    return _publish(g, role, write, store, _direct_store(g, role, column, "tile.m0"))


def _store_rows(g: Geometry, row: str) -> str:
    if g.patch is not None:
        return "patch.x, patch.y, patch.image"
    planes = g.problem.batch_size * g.schedule.split_k
    return f"{row}, {_plane(g)}" if planes > 1 else row


def _publish(g: Geometry, role: BufferRole, write: str, store: str, direct: str) -> str:
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
{{  // {role}
  const unsigned buffer = panels + panel_parity * kPanelBytes;
  panel_parity ^= {PANEL_BUFFERS - 1};
{indent(write)}{indent(hand_over)}}}
"""


# ---------------------------------------------------------------- values
def _values(g: Geometry, role: BufferRole, function: str, block: str, column: str) -> str:
    """`v[4]`: the finished results of the four accumulators of `block` (8 columns of b)."""
    e, kind = g.problem.epilogue, value_type(g)
    lines = [f"const int first = ({block}) * 4;"]
    bias, residual = ["0"] * 4, ["0"] * 4
    if not g.stores_partials and e.bias != "none":
        along = e.bias == ("row" if g.schedule.swap_operands else "column")
        if along:
            lines += _pair(g, "along", "bias", column, g.schedule.swap_operands)
            bias = ["along.x", "along.y"] * 2
        else:
            bias = ["bias0", "bias0", "bias1", "bias1"]
    if not g.stores_partials and e.residual and role == "out":
        loads, residual = _residual(g, column)
        lines += loads
    source = (
        "(float)accumulators"
        if kind == "float" and g.wgmma.accumulator == "s32"
        else "accumulators"
    )
    lines.append(f"{kind} v[4];")
    third = role == "preactivation"
    for i in range(4):
        args = [f"{source}[atom][first + {i}]", bias[i]] + ([] if third else [residual[i]])
        lines.append(f"v[{i}] = {function}({', '.join(args)});")
    return "".join(f"{line}\n" for line in lines)


def _bounds(g: Geometry, index: str, along_m: bool) -> tuple[str, str]:
    """Whether elements `index` and `index + 1` along m or n exist."""
    size, block, name = (
        (g.problem.m, g.schedule.block_m, "kM")
        if along_m
        else (g.problem.n, g.schedule.block_n, "kN")
    )
    if size % block == 0:
        return "true", "true"
    return f"{index} < {name}", f"{index} + 1 < {name}"


def _pair(g: Geometry, name: str, pointer: str, index: str, along_m: bool) -> list[str]:
    first, second = _bounds(g, index, along_m)
    even = (g.problem.m if along_m else g.problem.n) % 2 == 0
    if value_type(g) == "int":
        return [
            f"const int2 {name} = make_int2({first} ? {pointer}[{index}] : 0, "
            f"{second} ? {pointer}[{index} + 1] : 0);"
        ]
    return [
        f"const float2 {name} = load_pair_or_zero<{str(even).lower()}>("
        f"{pointer} + {index}, {first}, {second});"
    ]


def _residual(g: Geometry, column: str) -> tuple[list[str], list[str]]:
    """Loads of the residual at the four results of a block, and their names."""
    if g.schedule.swap_operands:
        return _swapped_residual(g, column)
    even = str(g.problem.n % 2 == 0).lower()
    first, second = _bounds(g, column, along_m=False)
    lines = []
    for i in range(2):
        row = f"(long long)line{i}" if g.patch is not None else _row_of(g, f"line{i}")
        pointer = f"residual + {row} * kN + {column}"
        if value_type(g) == "int":
            lines.append(
                f"const int2 residual{i} = make_int2(inside{i} && {first} ? ({pointer})[0] : 0, "
                f"inside{i} && {second} ? ({pointer})[1] : 0);"
            )
        else:
            lines.append(
                f"const float2 residual{i} = load_pair_or_zero<{even}>({pointer}, "
                f"inside{i} && {first}, inside{i} && {second});"
            )
    return lines, ["residual0.x", "residual0.y", "residual1.x", "residual1.y"]


def _swapped_residual(g: Geometry, column: str) -> tuple[list[str], list[str]]:
    bounds = _bounds(g, column, along_m=True)
    lines, names = [], []
    for i in range(4):
        line, step = i // 2, i % 2
        pointer = f"residual + {_row_of(g, f'{column} + {step}')} * kN + line{line}"
        lines.append(
            f"const {value_type(g)} residual{i} = "
            f"{_load(g, pointer, f'inside{line} && {bounds[step]}')};"
        )
        names.append(f"residual{i}")
    return lines, names


# ---------------------------------------------------------------- registers to panel
def _write_matrices(g: Geometry, role: BufferRole, function: str) -> str:
    """16-bit results: four 8x8 matrices at a time, two neighbouring blocks of 8 columns."""
    column = "tile.n0 + panel * kPanelColumns + (j + half) * 8 + lane % 4 * 2"
    values = _values(g, role, function, "panel * 8 + j + half", "column")
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


def _write_words(g: Geometry, role: BufferRole, function: str) -> str:
    """32-bit results: pairs, straight from the fragment."""
    column = "tile.n0 + panel * kPanelColumns + j * 8 + lane % 4 * 2"
    values = _values(g, role, function, "panel * 4 + j", "column")
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


def _write_swapped(g: Geometry, role: BufferRole, function: str) -> str:
    """16-bit results of swapped operands: transposed matrices, rows of the panel are rows of m."""
    blocks = g.b.tile // 8
    text = ""
    if blocks > 1:
        four = _transposed(g, role, function, 2, "(j + lane / 16)")
        four += "stmatrix_x4_trans(to, packed[0], packed[1], packed[2], packed[3]);\n"
        text += f"""\
#pragma unroll
for (int j = 0; j + 1 < {blocks}; j += 2) {{
{indent(four)}}}
"""
    if blocks % 2:
        two = _transposed(g, role, function, 1, "j")
        two += "stmatrix_x2_trans(to, packed[0], packed[1]);\n"
        text += f"""\
{{
  const int j = {blocks - 1};
{indent(two)}}}
"""
    return text


def _transposed(g: Geometry, role: BufferRole, function: str, count: int, block: str) -> str:
    """`packed` of `count` blocks of 8 columns of b from `j` on, and the address `to`."""
    pack = f"pack_pair<{ELEMENT_TYPES[g.store_dtype]}>"
    values = _values(g, role, function, "j + half", "column")
    column = "tile.m0 + (j + half) * 8 + lane % 4 * 2"
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


def _column(column: str, values: str) -> str:
    """`values`, with the column in front that they use."""
    return f"const int column = {column};\n{values}" if "column" in values else values


def _write_swapped_words(g: Geometry, role: BufferRole, function: str) -> str:
    """32-bit results of swapped operands: word by word, two boxes of 32 columns."""
    values = _values(g, role, function, "j", "column")
    return f"""\
#pragma unroll
for (int j = 0; j < kColumns / 8; ++j) {{
{indent(_column("tile.m0 + j * 8 + lane % 4 * 2", values))}#pragma unroll
  for (int i = 0; i < 4; ++i) {{
    const int store_row = j * 8 + lane % 4 * 2 + i % 2, word = quarter * 16 + lane / 4 + i / 2 * 8;
    const unsigned chunk = (word % 32 / 4) ^ (store_row & 7);
    const unsigned to = buffer + word / 32 * {g.panel_rows * 128}u + store_row * 128;
    st_shared(to + chunk * 16 + word % 4 * 4, bits_of(v[i]));
  }}
}}
"""


# ---------------------------------------------------------------- rows that TMA cannot store
def _direct_store(g: Geometry, role: BufferRole, column: str, row: str) -> str:
    """Panel to global memory by ordinary stores, as wide as the row pitch allows."""
    size = DTYPES[g.store_dtype].size_bytes
    pitch = g.problem.n * size
    piece = next(b for b in (8, 4, 2) if pitch % b == 0)
    if g.patch is not None:
        index, inside = _pixel("r")
        where = f"const long long to_row = {index};\nconst bool inside = {inside};\n"
    else:
        bound = f"{row} + r < kM" if g.problem.m % g.schedule.block_m else "true"
        where = (
            f"const long long to_row = {_row_of(g, f'{row} + r')};\nconst bool inside = {bound};\n"
        )
    rows = g.panel_rows
    part = f"i / {rows * 8} * {g.panel_columns} + " if g.panel_parts > 1 else ""
    return f"""\
#pragma unroll 1
for (int i = threadIdx.x % 128; i < {rows * 8 * g.panel_parts}; i += 128) {{
  const int r = i / 8 % {rows}, to_column = {column} + {part}i % 8 * {16 // size};
{indent(where)}  const uint4 value = ld_shared_v4(buffer + i / 8 * 128 + ((i % 8 ^ (r & 7)) << 4));
  char* to = (char*)({role} + to_row * kN + to_column);
  if (inside) store_pieces<{piece}>(to, value, (kN - to_column) * {size});
}}
"""
