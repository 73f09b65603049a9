"""Single-line mutations of emitted PTX: what a code generator, or a compiler, might get wrong.

Each rule looks at one line and gives the lines that could stand there instead; one moves a line.
A mutation is named after the line of the CUDA source that it comes from, which is ours, not
after registers and line numbers, which belong to the compiler.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jaxpipe.kernel import CompiledKernel
from jaxpipe.ptx.parse import parse

DROPPED = (
    r"\bbar\.sync", r"cp\.async\.wait_group", r"cp\.async\.commit_group", r"wgmma\.fence",
    r"wgmma\.wait_group", r"wgmma\.commit_group", r"mbarrier\.arrive", r"mbarrier\.init",
    r"fence\.proxy\.async", r"fence\.mbarrier_init", r"cp\.async\.bulk\.wait_group",
    r"cp\.async\.bulk\.commit_group", r"cp\.async\.c[ag]\.shared", r"cp\.async\.bulk\.tensor",
)  # fmt: skip
Rule = Callable[[str], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Mutation:
    """name: what was done, to which source line, and which of several such it is."""

    name: str
    ptx: str


# ---------------------------------------------------------------- one line, another line
def drop(line: str) -> Iterator[tuple[str, str]]:
    """Leave out a wait, a barrier, a fence, an arrival, a commit, a copy."""
    if any(re.search(pattern, line) for pattern in DROPPED):
        yield "drop", ""


def weaken_wait(line: str) -> Iterator[tuple[str, str]]:
    """Wait for one group less; take any wait for an mbarrier as done."""
    pattern = r"(wait_group(?:\.read)?(?:\.sync\.aligned)?\s+)(\d+);"
    if m := re.search(pattern, line):
        yield "one group less", line.replace(m.group(0), f"{m.group(1)}{int(m.group(2)) + 1};")
    if m := re.search(r"(\S+:\s*)?mbarrier\.try_wait\S*\s+(\S+),", line):
        yield "no wait", f"{m.group(1) or ''}setp.eq.u32 {m.group(2)}, 0, 0;"


def release_early(line: str) -> Iterator[tuple[str, str]]:
    """Arrive twice: the phase ends before the last of those who read the slot is done."""
    if "mbarrier.arrive" in line:
        yield "arrive twice", f"{line} {line.strip()}"


def wrong_parity(line: str) -> Iterator[tuple[str, str]]:
    """Wait for a constant phase, or never turn the parity over."""
    if m := re.search(r"(mbarrier\.try_wait\S*\s+\S+,\s+\[[^]]+\],\s+)(%\w+);", line):
        for value in (0, 1):
            yield f"parity {value}", line.replace(m.group(0), f"{m.group(1)}{value};")
    if m := re.search(r"selp\.u32\s+(%r\d+), 1, 0, %p\d+;", line):
        yield "parity never turns", f"mov.u32 {m.group(1)}, 0;"


def wrong_count(line: str) -> Iterator[tuple[str, str]]:
    """Another number of arrivals, or of threads at a barrier."""
    if m := re.search(r"(mbarrier\.init\S*\s+\[[^]]+\],\s+)(%\w+);", line):
        for value in (2, 7):
            yield f"count {value}", line.replace(m.group(0), f"{m.group(1)}{value};")
    if "bar.sync" in line and ", 128;" in line:
        yield "barrier of 96", line.replace(", 128;", ", 96;")


def wrong_bytes(line: str) -> Iterator[tuple[str, str]]:
    """Other transaction bytes; copies of half a chunk."""
    if m := re.search(r"(expect_tx\S*\s+_, \[[^]]+\],\s+)(%\w+);", line):
        for value in (32768 - 16, 32768 + 16, 16384):
            yield f"{value} bytes", line.replace(m.group(0), f"{m.group(1)}{value};")
    if "cp.async.cg.shared" in line:
        yield "8 bytes", line.replace(".cg.", ".ca.").replace("], 16", "], 8")


def wrong_swizzle(line: str) -> Iterator[tuple[str, str]]:
    """or instead of xor; another chunk."""
    if m := re.search(r"xor\.b32\s+(%r\d+), (%r\d+), (%r\d+|\d+);", line):
        yield "or for xor", line.replace("xor.b32", "or.b32 ")
        if m.group(3).isdigit() and int(m.group(3)) >= 16:
            yield "the next chunk", line.replace(f", {m.group(3)};", f", {int(m.group(3)) ^ 16};")


def wrong_stage(line: str) -> Iterator[tuple[str, str]]:
    """A ring that wraps one stage early; a stage half as large."""
    if m := re.search(r"(setp\.eq\.s32\s+%p\d+, %r\d+, )([23]);", line):
        yield "wraps early", line.replace(m.group(0), f"{m.group(1)}{int(m.group(2)) - 1};")
    if m := re.search(r"(shl\.b32\s+%r\d+, %r\d+, )(1[0-6]|3);", line):
        yield "half a stage", line.replace(m.group(0), f"{m.group(1)}{int(m.group(2)) - 1};")


RULES: tuple[Rule, ...] = (
    drop, weaken_wait, release_early, wrong_parity, wrong_count, wrong_bytes, wrong_swizzle,
    wrong_stage,
)  # fmt: skip


# ---------------------------------------------------------------- one line, elsewhere
def moved(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """A wait behind the barrier that publishes what it waited for."""
    for at, line in enumerate(lines):
        if "cp.async.wait_group" in line and (after := _next(lines, at, "bar.sync")) is not None:
            order = [*lines[:at], *lines[at + 1 : after + 1], line, *lines[after + 1 :]]
            yield at, "wait after the barrier", order


def _next(lines: list[str], at: int, what: str) -> int | None:
    return next((i for i in range(at + 1, min(at + 6, len(lines))) if what in lines[i]), None)


# ---------------------------------------------------------------- all of them
def mutations(compiled: CompiledKernel) -> list[Mutation]:
    """Every mutation of a kernel that was compiled with line information."""
    lines = compiled.ptx.split("\n")
    where = _source_lines(compiled)
    seen: Counter[str] = Counter()
    found = []
    for at, what, changed in sorted(_all(lines), key=lambda m: (m[0], m[1])):
        name = f"{what} | {where.get(at + 1, lines[at].strip())}"
        seen[name] += 1
        found.append(Mutation(f"{name} | {seen[name]}", "\n".join(changed)))
    return found


def _all(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    for at, line in enumerate(lines):
        if line.lstrip().startswith(("//", ".")):
            continue
        for rule in RULES:
            for what, new in rule(line):
                yield at, what, [*lines[:at], new, *lines[at + 1 :]]
    yield from moved(lines)


def _source_lines(compiled: CompiledKernel) -> dict[int, str]:
    """Text of the source line in the kernel's body by line of the PTX."""
    source = compiled.kernel.source.split("\n")
    found = {}
    for entry in parse(compiled.ptx).entries.values():
        for instruction in entry.instructions:
            if instruction.source is not None:
                number = instruction.source.inlined_at or instruction.source.line
                found[instruction.ptx_line] = source[number - 1].strip()
    return found
