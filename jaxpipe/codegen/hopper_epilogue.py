"""The epilogue of a Hopper consumer as CUDA text: registers to panel to global memory.

In: the nest and its Geometry; the finished values come from hopper_values.py. Out: text that writes
panels with the swizzle that TMA expects and stores them; a panel is written while the one before it
is read. Source: PTX ISA, stmatrix, fence.proxy.async, cp.async.bulk.tensor.
"""

from __future__ import annotations

from jaxpipe.codegen.hopper_maps import store_coordinates
from jaxpipe.codegen.hopper_nest import Nest
from jaxpipe.codegen.hopper_source import ELEMENT_TYPES, indent
from jaxpipe.codegen.hopper_values import (
    Output,
    across,
    first_of,
    offset_text,
    outputs,
    pixel,
    positions,
    values,
)
from jaxpipe.dtypes import DTYPES
from jaxpipe.geometry_hopper import PANEL_BUFFERS, Geometry


def epilogue(g: Geometry, nest: Nest) -> str:
    """The epilogue of one tile."""
    fixed, panels = across(g, nest), _panel_loop(g, nest)
    body = positions(g, nest, fixed + panels) + fixed + panels
    return f"""\
// ---- epilogue: registers -> swizzled panel -> global memory
{{
  // opaque: what follows from it is computed here, not kept in registers through the main loop
  const int lane = opaque(threadIdx.x % 32);
#pragma unroll
  for (int atom = 0; atom < kAtoms; ++atom) {{
{indent(body, 2)}  }}
}}
"""


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
    row = f"{first_of(nest, 'm')} + {own}atom * 64"
    column = f"{first_of(nest, 'n')} + panel * kPanelColumns"
    at = _panel_coordinates(g, nest, output, column, row)
    store = f"tma_store(&{output.buffer.name}_map, buffer, {at});\n"
    return _publish(g, output, write, store, _direct_store(g, nest, output, column, row))


def _swapped_panel(g: Geometry, nest: Nest, output: Output) -> str:
    """One panel of all columns of b (rows of the result), 64 columns of the result wide."""
    wide = DTYPES[g.store_dtype].size_bytes == 4
    write = _write_swapped_words(g, nest, output) if wide else _write_swapped(g, nest, output)
    own = "" if g.schedule.ping_pong else "consumer * kGroupRows + "
    column, row = f"{first_of(nest, 'n')} + {own}atom * 64", first_of(nest, "m")
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
    gate = "  const float one = ld_shared_once(shared + kOne);\n" if "one * " in write else ""
    return f"""\
{{  // {output.buffer.name}
{gate}  const unsigned buffer = panels + panel_parity * kPanelBytes;
  panel_parity ^= {PANEL_BUFFERS - 1};
{indent(write)}{indent(hand_over)}}}
"""


# ---------------------------------------------------------------- registers to panel
def _column(column: str, finished: str) -> str:
    """`finished`, with the column in front that it uses."""
    return f"const int column = {column};\n{finished}" if "column" in finished else finished


def _write_matrices(g: Geometry, nest: Nest, output: Output) -> str:
    """16-bit results: four 8x8 matrices at a time, two neighbouring blocks of 8 columns.

    Addresses are one base and an exclusive or (j is even): a sum for each would be kept in a
    register from panel to panel."""
    column = f"{first_of(nest, 'n')} + panel * kPanelColumns + (j + half) * 8 + lane % 4 * 2"
    finished = values(g, nest, output, "panel * 8 + j + half")
    pack = f"pack_pair<{ELEMENT_TYPES[g.store_dtype]}>"
    return f"""\
const int store_row = quarter * 16 + lane % 16;
const unsigned to = buffer + store_row * 128 + ((lane / 16 ^ (store_row & 7)) << 4);
#pragma unroll
for (int j = 0; j < 8; j += 2) {{
  unsigned packed[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {{
{indent(_column(column, finished), 2)}    packed[2 * half] = {pack}(v[0], v[1]);
    packed[2 * half + 1] = {pack}(v[2], v[3]);
  }}
  stmatrix_x4(to ^ (j * 16), packed[0], packed[1], packed[2], packed[3]);
}}
"""


def _write_words(g: Geometry, nest: Nest, output: Output) -> str:
    """32-bit results: pairs, straight from the fragment."""
    column = f"{first_of(nest, 'n')} + panel * kPanelColumns + j * 8 + lane % 4 * 2"
    finished = _column(column, values(g, nest, output, "panel * 4 + j"))
    return f"""\
const int store_row = quarter * 16 + lane / 4;
const unsigned first_to =
    buffer + store_row * 128 + ((lane % 4 / 2 ^ (store_row & 7)) << 4) + lane % 2 * 8;
#pragma unroll
for (int j = 0; j < 4; ++j) {{
{indent(finished)}  const unsigned to = first_to ^ (j * 32);
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
    finished = values(g, nest, output, "j + half")
    column = f"{first_of(nest, 'm')} + (j + half) * 8 + lane % 4 * 2"
    return f"""\
unsigned packed[{2 * count}];
#pragma unroll
for (int half = 0; half < {count}; ++half) {{
{indent(_column(column, finished))}  packed[2 * half] = {pack}(v[0], v[1]);
  packed[2 * half + 1] = {pack}(v[2], v[3]);
}}
const int store_row = {block} * 8 + lane % 8;
const unsigned chunk = (quarter * 2 + lane / 8 % 2) ^ (lane % 8);
const unsigned to = buffer + store_row * 128 + chunk * 16;
"""


def _write_swapped_words(g: Geometry, nest: Nest, output: Output) -> str:
    """32-bit results of swapped operands: word by word, two boxes of 32 columns."""
    finished = values(g, nest, output, "j")
    column = f"{first_of(nest, 'm')} + j * 8 + lane % 4 * 2"
    return f"""\
#pragma unroll
for (int j = 0; j < kColumns / 8; ++j) {{
{indent(_column(column, finished))}#pragma unroll
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
        index, inside = pixel("r")
    else:
        index = f"{row} + r"
        inside = f"{row} + r < {g.rows}" if g.is_ragged_m else "true"
    rows = g.panel_rows
    part = f" + i / {rows * 8} * {g.panel_columns}" if g.panel_parts > 1 else ""
    return f"""\
#pragma unroll 1
for (int i = threadIdx.x % 128; i < {rows * 8 * g.panel_parts}; i += 128) {{
  const int r = i / 8 % {rows}, to_column = {column}{part} + i % 8 * {16 // size};
  const int to_row = {index};
  const uint4 value = ld_shared_v4(buffer + i / 8 * 128 + ((i % 8 ^ (r & 7)) << 4));
  char* to = (char*)({name} + ({offset_text(nest, output.region, "to_row", "to_column")}));
  if ({inside}) store_pieces<{piece}>(to, value, ({g.problem.n} - to_column) * {size});
}}
"""
