"""A parsed entry to the program that csrc/ptx executes.

The rules are tables from the first word of an opcode to a function; an opcode in no table is an
error with line and text. Everything is resolved here: the core sees slots, constants and numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from jaxpipe import _native
from jaxpipe.errors import PtxError
from jaxpipe.ptx.encode_async import ASYNC_RULES
from jaxpipe.ptx.encode_control import CONTROL_RULES
from jaxpipe.ptx.encode_memory import MEMORY_RULES
from jaxpipe.ptx.encode_scalar import SCALAR_RULES
from jaxpipe.ptx.encoder import (
    GUARD_NEGATED,
    INSTRUCTION,
    NONE,
    OPERATIONS,
    Encoder,
    Row,
    fail,
)
from jaxpipe.ptx.nodes import Entry, Instruction, Module

_LONG_LIST = re.compile(r"\{\s*([^\s,{}]+)(?:\s*,\s*[^\s,{}]+){8,}\s*\}")
Rule = Callable[[Encoder, Instruction], Row]
RULES: dict[str, Rule] = {**SCALAR_RULES, **MEMORY_RULES, **CONTROL_RULES, **ASYNC_RULES}


def encode(module: Module, entry: str) -> _native.PtxProgram:
    """The executable form of `entry`. Raises PtxError on an instruction that is not known."""
    if entry not in module.entries:
        raise PtxError(f"no entry {entry!r}: the module has {sorted(module.entries)}")
    return _Assembly(module, module.entries[entry]).build()


def encode_instruction(encoder: Encoder, instruction: Instruction) -> Row:
    """The row of one instruction, its guard included."""
    rule = RULES.get(instruction.opcode[0])
    if rule is None:
        raise fail(instruction, f"unknown instruction {instruction.opcode[0]}")
    try:
        row = rule(encoder, instruction)
    except (IndexError, KeyError, ValueError) as error:
        if isinstance(error, PtxError):
            raise
        raise fail(instruction, f"cannot be encoded ({error})") from error
    return row


class _Assembly:
    """Collects rows, operand lists and source lines of one entry."""

    def __init__(self, module: Module, entry: Entry) -> None:
        self.entry = entry
        self.encoder = Encoder(entry, module.globals)
        self.lists: list[int] = []
        self.files: dict[str, int] = {}

    def build(self) -> _native.PtxProgram:
        instructions = self.entry.instructions
        table = np.zeros(len(instructions), INSTRUCTION)
        for name in ("guard", "dst", "src", "pdst", "psrc"):
            table[name] = NONE
        for index, instruction in enumerate(instructions):
            self._fill(table[index], encode_instruction(self.encoder, instruction), instruction)
        constants = self.encoder.constants
        return _native.PtxProgram(
            instructions=table.tobytes(),
            lists=self.lists,
            constants=[value for value, _ in constants],
            constant_is_wide=[int(wide) for _, wide in constants],
            register_slots=self.encoder.register_slots,
            predicate_slots=self.encoder.predicate_slots,
            static_shared_bytes=self.entry.static_shared_bytes,
            local_bytes=self.entry.local_bytes,
            param_bytes=self.entry.param_bytes,
            max_registers=self.entry.max_registers,
            lines=[self._line(i) for i in instructions],
            texts=[_shortened(i.text) for i in instructions],
            files=list(self.files),
        )

    def _fill(self, to: np.void, row: Row, instruction: Instruction) -> None:
        to["op"] = OPERATIONS[row.op]
        to["type"], to["width"], to["imm"] = row.type, row.width, row.imm
        to["dst"], to["psrc"], to["target"] = row.dst, row.psrc, row.target
        to["src"][: len(row.src)] = row.src
        to["pdst"][: len(row.pdst)] = row.pdst
        flags = row.flags
        if instruction.guard is not None:
            to["guard"], _ = self.encoder.predicate(instruction, instruction.guard)
            flags |= GUARD_NEGATED if instruction.guard_negated else 0
        to["flags"] = flags
        to["list"], to["list_size"] = len(self.lists), len(row.items)
        to["list_writes"] = row.writes
        self.lists += row.items

    def _line(self, instruction: Instruction) -> tuple[int, int, int]:
        source = instruction.source
        if source is None:
            return (instruction.ptx_line, -1, 0)
        return (instruction.ptx_line, self.files.setdefault(source.file, len(self.files)),
                source.line)  # fmt: skip


def _shortened(text: str) -> str:
    """The text with long register lists cut: reports are for people."""
    return _LONG_LIST.sub(lambda m: f"{{{m.group(1)}, ... {m.group(0).count(',') + 1}}}", text)


@functools.lru_cache(maxsize=64)
def known_opcodes() -> tuple[str, ...]:
    """The first words of all opcodes that have a rule."""
    return tuple(sorted(RULES))
