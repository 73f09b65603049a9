"""Copies from global to shared memory as CUDA text.

In: the Copy statements of one operand in a lowered nest, each with the ranges of the loop variables
around it. Out: lines that set a thread up once, and lines for every copy. Bounds are checked only
where the ranges do not prove that the tile stays inside; rows and columns that lie outside are
filled with zeros by the copy itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxpipe.codegen.copies import CopyPlan
from jaxpipe.codegen.swizzle import CHUNK_BYTES
from jaxpipe.codegen.text import UNROLL, by_index, expression, indented, is_wide, plus, table
from jaxpipe.dtypes import DTYPES
from jaxpipe.ir.affine import ZERO, Affine, Range, bounds, const, free_variables
from jaxpipe.ir.nodes import Buffer, Copy

Ranges = Mapping[str, Range]


@dataclass(frozen=True, slots=True)
class Site:
    """One Copy that reads global memory, with the ranges of the variables in scope there."""

    copy: Copy
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand on its way from global to shared memory.

    shared_offset: where its ring starts. fixed: variables (of grid loops) that do not change
    inside a block; what depends on them only is computed once. is_staged: through registers, for
    rows aligned to less than 4 bytes. sites: all its copies.
    """

    role: str
    source: Buffer
    shared: Buffer
    shared_offset: int
    plan: CopyPlan
    fixed: frozenset[str]
    is_staged: bool
    sites: tuple[Site, ...]

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.source.dtype].size_bytes

    @property
    def row_dim(self) -> int:
        """The dimension of the source that the stored rows of the tile run along."""
        return 0 if self.source.window is not None else len(self.source.shape) - 2

    def split(self, expr: Affine) -> tuple[Affine, Affine]:
        """The part of an index that is fixed in a block, and the part that moves."""
        still = tuple(
            (a, c)
            for a, c in expr.terms
            if self.fixed.issuperset(free_variables(Affine(((a, 1),))))
        )
        fixed = Affine(still)
        return fixed, expr - fixed

    def leaves(self, site: Site, dim: int) -> bool:
        """True when a copy may reach past the end of a dimension."""
        region = site.copy.src
        high = bounds(region.starts[dim], site.ranges)[1] + region.extents[dim]
        return high > self.source.shape[dim]

    def leaves_rows(self, site: Site) -> bool:
        """True when stored rows of a copy may lie outside."""
        return self.leaves(site, self.row_dim)

    def leaves_columns(self, site: Site) -> bool:
        """True when the right end of stored rows may lie outside."""
        return self.leaves(site, len(self.source.shape) - 1)

    # ------------------------------------------------------------------ set-up
    def setup(self) -> list[str]:
        """Where a thread's first vector goes to, and its registers on the way."""
        r, plan = self.role, self.plan
        column = f"thread % {plan.across} * {plan.vector_bytes // self.size}"
        count, width = len(plan.steps), plan.vector_bytes
        lines = [
            f"// {r} -> {self.shared.name}: {count} x {width} bytes a thread",
            f"const int {r}_row = thread / {plan.across}, {r}_column = {column};",
        ]
        if plan.xors:
            to = self.shared_address(f"{r}_row", f"{r}_column * {self.size}")
            lines.append(f"const unsigned {r}_to = {to};")
        if self.is_staged:
            lines.append(f"uint4 {r}_staging[{count}];")
        return lines

    def shared_address(self, row: str, column: str) -> str:
        """Address of a position of stage 0."""
        start = plus(plus("shared", str(self.shared_offset)), f"{row} * {self.plan.row_bytes}")
        pattern = self.plan.swizzle.text(row)
        if pattern == "0":
            return f"{start} + {column}"
        return f"{start} + ({column} ^ {pattern} * {CHUNK_BYTES})"

    # ------------------------------------------------------------------ one copy
    def put(self, copy: Copy) -> list[str]:
        """The put half of a staged copy: registers to shared memory."""
        tables, to = self.destination(copy)
        return self.block([], tables, f"store_shared({to}, {self.role}_staging[i]);")

    def issue(self, site: Site, source: Source) -> list[str]:
        """The copy with cp.async, or the load half of a staged one."""
        if self.is_staged:
            return self.block(source.lines, source.tables, self._staged_load(source))
        width = self.plan.vector_bytes
        tables, to = self.destination(site.copy)
        kept = f"{source.inside} ? {source.keep} : 0" if source.inside else source.keep
        checked = "" if kept == str(width) else f", {kept}"
        text = f"copy_async<{width}>({to}, {source.address}{checked});"
        return self.block(source.lines, {**tables, **source.tables}, text)

    def _staged_load(self, source: Source) -> str:
        """The load half of a staged copy: whole vectors, or those cut at the end of a row."""
        target = f"{self.role}_staging[i]"
        if source.keep == str(self.plan.vector_bytes):
            inside = source.inside or "true"
            return f"{target} = load_unaligned_or_zero({source.address}, {inside});"
        kept = f"{source.inside} ? {source.keep} : 0" if source.inside else source.keep
        return f"{target} = load_unaligned({source.address}, {kept});"

    def destination(self, copy: Copy) -> tuple[dict[str, str], str]:
        """Tables and the shared address of step i in the copy's stage."""
        plan = self.plan
        stage = expression(copy.dst.stage * (plan.rows * plan.row_bytes))
        if not plan.xors:
            tables, (row, column) = self.position()
            return tables, plus(self.shared_address(f"({row})", f"({column}) * {self.size}"), stage)
        base = plus(f"{self.role}_to", stage)
        xors, xor = indexed("kXor", plan.xors)
        adds, add = indexed("kAdd", plan.adds)
        xored = base if xor == "0" else f"(({base}) ^ ({xor}))"
        return xors | adds, plus(xored, add)

    def position(self) -> tuple[dict[str, str], tuple[str, str]]:
        """Tables, and row and element column of step i in the tile."""
        downs, down = indexed("kDown", [s.rows for s in self.plan.steps])
        width = self.plan.vector_bytes // self.size
        rights, right = indexed("kRight", [s.vectors * width for s in self.plan.steps])
        return downs | rights, (plus(f"{self.role}_row", down), plus(f"{self.role}_column", right))

    def block(self, lines: Sequence[str], tables: Mapping[str, str], text: str) -> list[str]:
        """The loop over steps, in braces, with the guards that the plan needs."""
        plan, guards = self.plan, []
        more, (row, column) = self.position()
        if plan.active < plan.threads:
            guards.append(f"thread < {plan.active}")
        if plan.has_row_guard:
            guards.append(f"{row} < {plan.rows}")
        if plan.has_vector_guard:
            guards.append(f"{column} < {plan.row_bytes // self.size}")
        needed = dict(tables) | (more if plan.has_row_guard or plan.has_vector_guard else {})
        guarded = f"if ({' && '.join(guards)}) {text}" if guards else text
        loop = [UNROLL, f"for (int i = 0; i < {len(plan.steps)}; ++i)", f"  {guarded}"]
        return ["{", *indented([*lines, *needed.values(), *loop]), "}"]


@dataclass(frozen=True, slots=True)
class Source:
    """Lines before the loop over steps, tables, the address of step i, the bytes it keeps, and
    the condition under which its row is inside ("" for always)."""

    lines: tuple[str, ...]
    tables: Mapping[str, str]
    address: str
    keep: str
    inside: str = ""


def indexed(name: str, values: Sequence[int]) -> tuple[dict[str, str], str]:
    """A C expression for values[i]: linear in i, or an entry of a constant table `name`."""
    text = by_index(values)
    if text is not None and not (name == "kXor" and text != "0" and "i" in text):
        return {}, text
    return {name: table(name, values)}, f"{name}[i]"


# ---------------------------------------------------------------------- matrices
def matrix_setup(o: Operand) -> list[str]:
    """The address of a thread's first vector, and how far the ends of the matrix are."""
    r = o.role
    fixed = [o.split(s)[0] for s in o.sites[0].copy.src.starts]
    offset = _dot(fixed, o.source.strides)
    index = f"(long long){r}_row * {o.source.strides[-2]} + {r}_column"
    index = plus(index, expression(offset, wide=True))
    lines = [f"const char* {r}_from = (const char*){r} + ({index}) * {o.size};"]
    if any(o.leaves_rows(site) for site in o.sites):
        rows = o.source.extent(o.source.axes[-2]) - fixed[-2]
        lines.append(f"const int {r}_rows = {expression(rows)} - {r}_row;")
    if any(o.leaves_columns(site) for site in o.sites):
        columns = const(o.source.shape[-1]) - fixed[-1]
        lines.append(f"const int {r}_columns = {expression(columns)} - {r}_column;")
    return lines


def matrix_source(o: Operand, site: Site) -> Source:
    """Where a copy reads: the thread's first address, moved by the loops."""
    moving = [o.split(s)[1] for s in site.copy.src.starts]
    offset = _dot(moving, o.source.strides) * o.size
    start = plus(f"{o.role}_from", expression(offset, wide=is_wide(offset, site.ranges)))
    ld = o.source.strides[-2] * o.size
    jumps = [s.rows * ld + s.vectors * o.plan.vector_bytes for s in o.plan.steps]
    tables, jump = _wide_indexed("kJump", jumps)
    keeps, lines, keep = columns_kept(o, site, moving[-1])
    inside = ""
    if o.leaves_rows(site):
        downs, down = indexed("kDown", [s.rows for s in o.plan.steps])
        lines.append(f"const int rows = {minus(f'{o.role}_rows', moving[-2])};")
        keeps, inside = keeps | downs, f"{down} < rows"
    head = f"const char* from = {start};"
    return Source((head, *lines), tables | keeps, plus("from", jump), keep, inside)


def columns_kept(o: Operand, site: Site, column: Affine) -> tuple[dict[str, str], list[str], str]:
    """The bytes that a vector keeps before the right end of its row."""
    width = o.plan.vector_bytes
    if not o.leaves_columns(site):
        return {}, [], str(width)
    left = minus(f"{o.role}_columns", column)
    steps = [s.vectors * (width // o.size) for s in o.plan.steps]
    if not any(steps):
        line = f"const int bytes = min(max(({left}) * {o.size}, 0), {width});"
        return {}, [line], "bytes"
    tables, right = indexed("kRight", steps)
    line = f"const int columns = {left};"
    return tables, [line], f"min(max((columns - ({right})) * {o.size}, 0), {width})"


def minus(text: str, expr: Affine) -> str:
    """`text - expr` as C."""
    return text if expr == ZERO else f"{text} - ({expression(expr)})"


def _dot(parts: Sequence[Affine], strides: Sequence[int]) -> Affine:
    total = ZERO
    for part, stride in zip(parts, strides, strict=True):
        total += part * stride
    return total


def _wide_indexed(name: str, values: Sequence[int]) -> tuple[dict[str, str], str]:
    text = by_index(values)
    if text is not None and max(values) < 2**31:
        return {}, text
    listed = ", ".join(f"{v}ll" for v in values)
    return {name: f"constexpr long long {name}[] = {{{listed}}};"}, f"{name}[i]"
