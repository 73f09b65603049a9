"""From accumulator fragments to rows: the staging of results through shared memory.

In: a Store from fragments, warp tile. Out: CUDA lines and the shared bytes that they use. Every
warp stages 16 rows of its own tile at a time (no barrier, only __syncwarp) and reads them back a
vector a lane, so that global accesses are whole 16-byte pieces of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.codegen.finish import Finish, inside_text
from jaxpipe.codegen.text import UNROLL, expression, indented, plus
from jaxpipe.ir.affine import Affine
from jaxpipe.schedule import staging_layout

WARP_LANES = 32
ROWS = 16


@dataclass(frozen=True, slots=True)
class Results:
    """A warp tile of accumulators on its way out.

    row, column: where the warp tile starts in the result. is_permuted: rows, columns of each 16
    come even ones first (operands of 8-bit elements stored along m or n). rows_inside,
    columns_inside: tiles never leave the result on that side.
    """

    finish: Finish
    warp_m: int
    warp_n: int
    row: Affine
    column: Affine
    is_permuted: tuple[bool, bool]
    rows_inside: bool
    columns_inside: bool

    @property
    def _layout(self) -> tuple[int, int, int]:
        """Interleaved groups of four-word chunks, words of a group, words of a row."""
        return staging_layout(self.warp_n, self.finish.vector)

    def lines(self) -> list[str]:
        """The whole epilogue after the barrier that frees shared memory."""
        bytes_a_warp = 4 * ROWS * self._layout[2]
        return [
            f"const unsigned staging = shared + warp * {bytes_a_warp};",
            f"const int first_row = {expression(self.row)};",
            f"const int first_column = {expression(self.column)};",
            *self.finish.lines(),
            UNROLL,
            f"for (int i = 0; i < {self.warp_m // ROWS}; ++i) {{",
            *indented(["__syncwarp();", *self._stage(), "__syncwarp();", *self._drain()]),
            "}",
        ]

    # ------------------------------------------------------------------ fragments to shared
    def _stage(self) -> list[str]:
        """Accumulators (g, 2t), (g, 2t + 1) and row g + 8 of every 16x8 tile."""
        pitch = self._layout[2]
        half = pitch if self.is_permuted[0] else 8 * pitch
        step = 2 if self.is_permuted[0] else 1
        lane_row = f"lane / 4 * {step * pitch * 4}"
        body = self._quads() if self.is_permuted[1] else self._pairs()
        count = self.warp_n // (16 if self.is_permuted[1] else 8)
        return [
            UNROLL,
            f"for (int j = 0; j < {count}; ++j)",
            UNROLL,
            "  for (int h = 0; h < 2; ++h) {",
            f"    const unsigned to = staging + {lane_row} + h * {half * 4} + {self._column()};",
            *indented(body, 4),
            "  }",
        ]

    def _pairs(self) -> list[str]:
        values = "bits_of(acc[i][j][2 * h]), bits_of(acc[i][j][2 * h + 1])"
        return [f"store_shared_pair(to, {values});"]

    def _quads(self) -> list[str]:
        """Two permuted tiles interleave to four neighbours."""
        parts = [f"bits_of(acc[i][2 * j + {b}][2 * h + {e}])" for e in (0, 1) for b in (0, 1)]
        return [f"store_shared(to, make_uint4({', '.join(parts)}));"]

    def _column(self) -> str:
        """Byte offset of a lane's columns of tile j: chunks of four words, dealt to groups."""
        groups, group_words, _ = self._layout
        if self.is_permuted[1]:  # chunk 4 * j + t
            chunk = "(4 * j + lane % 4)"
            inner = "0"
        else:  # chunk 2 * j + t / 2, words 2 * (t % 2)
            chunk, inner = "(2 * j + lane % 4 / 2)", "lane % 2 * 8"
        if groups == 1:
            return plus(f"{chunk} * 16", inner)
        at = f"{chunk} % {groups} * {group_words * 4} + {chunk} / {groups} * 16"
        return plus(at, inner)

    # ------------------------------------------------------------------ shared to global
    def _drain(self) -> list[str]:
        vector = self.finish.vector
        across = self.warp_n // vector
        total = ROWS * across
        passes = -(-total // WARP_LANES)
        inside = inside_text(self.finish, (self.rows_inside, self.columns_inside))
        guards = [f"index < {total}"] if total % WARP_LANES else []
        guards += [inside] if inside else []
        work = [f"{self.finish.value} x[{vector}];", *self._load(), "finish(x, row, column);"]
        body = [
            f"const int index = v * {WARP_LANES} + lane, down = {_row_of('index', across)};",
            f"const int row = first_row + i * {ROWS} + down;",
            f"const int right = index % {across}, column = first_column + right * {vector};",
            *([f"if ({' && '.join(guards)}) {{", *indented(work), "}"] if guards else work),
        ]
        unroll = f"{UNROLL} 1" if self.finish.is_heavy else UNROLL
        return [unroll, f"for (int v = 0; v < {passes}; ++v) {{", *indented(body), "}"]

    def _load(self) -> list[str]:
        """A lane's neighbours, back from shared memory."""
        groups, group_words, pitch = self._layout
        vector = self.finish.vector
        from_ = f"staging + down * {pitch * 4}"
        if vector < 4:
            word = f"load_shared_word({from_} + (right * {vector} + e) * 4)"
            return [UNROLL, f"for (int e = 0; e < {vector}; ++e) {self._value('x[e]', word)};"]
        at = (
            f"{from_} + q * {group_words * 4} + right * 16"
            if groups > 1
            else f"{from_} + right * 16"
        )
        parts = ("x", "y", "z", "w")
        values = [f"{self._value(f'x[4 * q + {k}]', f'four.{p}')};" for k, p in enumerate(parts)]
        return [
            UNROLL,
            f"for (int q = 0; q < {vector // 4}; ++q) {{",
            f"  const uint4 four = load_shared({at});",
            *indented(values),
            "}",
        ]

    def _value(self, to: str, bits: str) -> str:
        if self.finish.accumulator == "float":
            return f"{to} = __uint_as_float({bits})"
        return f"{to} = ({self.finish.value})(int){bits}"


def _row_of(index: str, across: int) -> str:
    """Row of the lane at `index`, `across` lanes a row.

    Rows lie 8 banks apart (`staging_layout`), and eight lanes read at once: four in each of two
    rows. Rows 1 and 2 of every four change places, so that those two are 16 banks apart.
    """
    if across != 4:
        return f"{index} / {across}"
    return f"{index} / 16 * 4 + {index} / 4 % 2 * 2 + {index} / 8 % 2"
