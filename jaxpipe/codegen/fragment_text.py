"""Copies from shared memory to fragments, and products of fragments, as CUDA text.

In: Copy and Mma statements of a lowered nest with their buffers. Out: lines. It relies on the
constants of codegen/fragments.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxpipe.codegen.fragments import (
    K_BYTES,
    FragmentPlan,
    Operand,
    Tile,
    first_offset_text,
    fragment_plan,
    needs_block_offsets,
    reader,
)
from jaxpipe.codegen.instructions import MmaInstruction
from jaxpipe.codegen.swizzle import CHUNK_BYTES, NONE, swizzle
from jaxpipe.codegen.text import UNROLL, by_index, expression, indented, plus, table
from jaxpipe.dtypes import DTYPES
from jaxpipe.ir.affine import Affine
from jaxpipe.ir.nodes import Buffer, Copy, Mma, Region


@dataclass(frozen=True, slots=True)
class Fragments:
    """One operand on its way from shared memory to the tensor cores.

    shared_offset: where its ring starts; start: first row or column of the warp tile.
    """

    role: Operand
    shared: Buffer
    shared_offset: int
    tile: Tile
    start: Affine

    @property
    def registers(self) -> str:
        """Name of the register array."""
        return f"{self.role}_reg"

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of the ring."""
        return tile_bytes(self.shared)

    def declaration(self, stages: int) -> str:
        """The register array: stages, blocks of 16, four registers."""
        return f"unsigned {self.registers}[{stages}][{self.tile.blocks}][4];"

    def setup(self) -> list[str]:
        """The first shared address of every lane (of every block where it must be)."""
        name, row = f"{self.role}_fragment", f"{self.role}_fragment_row"
        per_block = needs_block_offsets(self.tile)
        block = "i" if per_block else ""
        row_text, column = first_offset_text(self.tile, expression(self.start), block)
        at = _shared_address(self.tile, self.shared_offset, row, column)
        if not per_block:
            return [f"const int {row} = {row_text};", f"const unsigned {name} = {at};"]
        return [
            f"unsigned {name}[{self.tile.blocks}];",
            UNROLL,
            f"for (int i = 0; i < {self.tile.blocks}; ++i) {{",
            f"  const int {row} = {row_text};",
            f"  {name}[i] = {at};",
            "}",
        ]


def tile_bytes(shared: Buffer) -> int:
    """Bytes of one stage of a shared buffer."""
    return shared.shape[0] * row_bytes(shared)


def row_bytes(shared: Buffer) -> int:
    """Bytes of one stored row."""
    return shared.shape[1] * DTYPES[shared.dtype].size_bytes


def fragments_of(
    role: Operand,
    shared: Buffer,
    shared_offset: int,
    source: Region,
    span: int,
    warps: tuple[int, int],
) -> Fragments:
    """Gather what the loads of one operand share; `source` is any region that they read."""
    size = DTYPES[shared.dtype].size_bytes
    is_k_major = shared.axes[-1] == "k"
    pattern = swizzle(row_bytes(shared), reader(is_k_major, size)) if shared.swizzle else NONE
    tile = Tile(role, size, is_k_major, row_bytes(shared), span, warps, pattern)
    axis = "m" if role == "lhs" else "n"
    return Fragments(role, shared, shared_offset, tile, source.starts[shared.axes.index(axis)])


def load_lines(copy: Copy, fragments: Fragments) -> list[str]:
    """copy reg{s} <- shared{t}[.., slice of k]."""
    tile = fragments.tile
    k_start = copy.src.starts[fragments.shared.axes.index("k")]
    assert k_start.is_constant, f"slice {k_start} of {fragments.shared.name} is not unrolled"
    plan = fragment_plan(tile, k_start.constant * tile.element_bytes // K_BYTES)
    base = f"{fragments.role}_fragment" + ("[i]" if plan.is_per_block else "")
    stage = expression(copy.src.stage * fragments.stage_bytes)
    target = f"{fragments.registers}[{expression(copy.dst.stage)}][i]"
    lines = [*_load(tile, plan, plus(base, stage), target)]
    lines += _step_lines(copy, target)
    head = [UNROLL, f"for (int i = 0; i < {tile.blocks}; ++i)"]
    if len(lines) == 1:
        return [*head[:1], f"{head[1]} {lines[0]}"]
    return [*head[:1], f"{head[1]} {{", *indented(lines), "}"]


def _load(tile: Tile, plan: FragmentPlan, base: str, target: str) -> list[str]:
    if tile.loader == "words":
        flat = [[v for row in rows for v in row] for rows in (plan.xors, plan.adds)]
        return [
            table("kXor", flat[0]),
            table("kAdd", flat[1]),
            UNROLL,
            "for (int r = 0; r < 4; ++r)",
            f"  {target}[r] = load_shared_word(({base} ^ kXor[4 * i + r]) + kAdd[4 * i + r]);",
        ]
    tables, address = _address(base, [x for (x,) in plan.xors], [a for (a,) in plan.adds])
    if tile.loader == "bytes":
        gather = f"gather_{tile.operand}_bytes({target}, {address});"
        return [*tables, gather]
    return [*tables, f"{tile.loader}({target}, {address});"]


def _address(base: str, xors: Sequence[int], adds: Sequence[int]) -> tuple[list[str], str]:
    """Tables, where constants are not linear in i, and the address of block i."""
    tables: list[str] = []
    texts = []
    for name, values in (("kXor", xors), ("kAdd", adds)):
        text = by_index(values)
        if text is None or (name == "kXor" and "+" in text):
            tables.append(table(name, values))
            text = f"{name}[i]"
        texts.append(text)
    xored = base if texts[0] == "0" else f"(({base}) ^ ({texts[0]}))"
    return tables, plus(xored, texts[1])


def _step_lines(copy: Copy, target: str) -> list[str]:
    lines: list[str] = []
    for step in copy.steps:
        assert step.op == "round_tf32", f"no fragment form of {step.op}"
        lines += [UNROLL, f"for (int r = 0; r < 4; ++r) {target}[r] = {step.op}({target}[r]);"]
    return lines


def _shared_address(tile: Tile, offset: int, row: str, column: str) -> str:
    pattern = tile.swizzle.text(row)
    head = plus(plus("shared", str(offset)), f"{row} * {tile.row_bytes}")
    if pattern == "0":
        return f"{head} + {column}"
    return f"{head} + (({column}) ^ {pattern} * {CHUNK_BYTES})"


def multiply_function(instruction: MmaInstruction, blocks: tuple[int, int]) -> str:
    """CUDA text of the product of one slice of k on a warp tile."""
    rows, columns = blocks[0], 2 * blocks[1]
    kind = instruction.accumulator
    return f"""\
// acc += lhs * rhs on a warp tile, {instruction.k} deep: {rows} x {columns} tiles of 16 x 8.
// Columns go back and forth, so that the last operand is used again.
__device__ __forceinline__ void multiply({kind} (&acc)[{rows}][{columns}][4],
                                         const unsigned (&lhs)[{rows}][4],
                                         const unsigned (&rhs)[{blocks[1]}][4]) {{
{UNROLL}
  for (int i = 0; i < {rows}; ++i)
{UNROLL}
    for (int c = 0; c < {columns}; ++c) {{
      const int j = i % 2 ? {columns - 1} - c : c;
      {instruction.name}(acc[i][j], lhs[i], rhs[j / 2][j % 2 * 2], rhs[j / 2][j % 2 * 2 + 1]);
    }}
}}
"""


def multiply_line(mma: Mma) -> str:
    """acc += lhs_reg{s} * rhs_reg{t}."""
    lhs, rhs = expression(mma.lhs.stage), expression(mma.rhs.stage)
    return f"multiply(acc, lhs_reg[{lhs}], rhs_reg[{rhs}]);"
