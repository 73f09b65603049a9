"""The statements between the braces of one entry: labels, registers, instructions."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from jaxpipe.errors import PtxError
from jaxpipe.ptx.nodes import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Source,
    Special,
    Symbol,
    Vector,
)
from jaxpipe.ptx.parse_text import FLOAT, PtxText, split_operands
from jaxpipe.ptx.parse_variables import Locals, Variables

_LABEL = re.compile(r"([$%\w]+)\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(loc|file)\b([^\n]*)")
_LOC = re.compile(r"\s*(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+\d+\s+(\d+))?")
_OPCODE = re.compile(r"[a-z]\w*(?:(?:\.|::)\w+)*")
_REGISTERS = re.compile(r"(%?[\w$]+)<(\d+)>$")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?$")
_OFFSET = re.compile(r"(.+?)\s*([+-])\s*(-?\w+)$")


@dataclass
class _Scope:
    """Names declared inside one pair of braces, and its labels."""

    registers: dict[str, Register] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


class Body:
    """The statements between the braces of one entry."""

    def __init__(self, source: PtxText, variables: Variables, start: int, end: int) -> None:
        self.ptx = source
        self.variables = variables
        self.text = source.text
        self.at = start
        self.end = end
        self.scopes = [_Scope()]
        self.registers: list[Register] = []
        self.instructions: list[Instruction] = []
        self.pending: list[tuple[tuple[str, ...], tuple[_Scope, ...]]] = []
        self.tables: dict[str, tuple[str, ...]] = {}
        self.local = Locals()
        self.source: Source | None = None
        self.unique = 0

    def parse(self) -> None:
        """Reads all statements."""
        while True:
            self.at = self.ptx.skip(self.at)
            if self.at >= self.end:
                return
            char = self.text[self.at]
            if char == "{":
                self.scopes.append(_Scope())
                self.at += 1
            elif char == "}":
                self.scopes.pop()
                self.at += 1
            elif match := _LINE_DIRECTIVE.match(self.text, self.at):
                if match.group(1) == "loc":
                    self._loc(match.group(2))
                self.at = match.end()
            elif match := _LABEL.match(self.text, self.at):
                self.at = match.end()
                self._label(match.group(1))
            else:
                self._statement()

    def _label(self, name: str) -> None:
        start = self.ptx.skip(self.at)
        if self.text.startswith(".branchtargets", start):
            end = self.text.index(";", start)
            names = self.text[start + len(".branchtargets") : end]
            self.tables[name] = tuple(n.strip() for n in names.split(","))
            self.at = end + 1
        else:
            self.scopes[-1].labels[name] = len(self.instructions)

    def _loc(self, text: str) -> None:
        if match := _LOC.match(text):
            file = self.ptx.files.get(match.group(1), match.group(1))
            self.source = Source(file, int(match.group(2)), int(match.group(3) or 0))

    def _statement(self) -> None:
        start = self.at
        end = self.text.find(";", start, self.end)
        if end < 0:
            raise self.ptx.fail(start, "a statement is not closed", self.text[start : self.end])
        self.at = end + 1
        statement = " ".join(self.text[start:end].split())
        if statement.startswith(".reg"):
            self._declare_registers(statement, start)
        elif statement.startswith("."):
            known = statement.startswith(".pragma") or self.variables.declare(statement, self.local)
            if not known:
                raise self.ptx.fail(start, "cannot read", statement)
        elif statement:
            self._instruction(statement, start)

    def _declare_registers(self, statement: str, start: int) -> None:
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)$", statement)
        if match is None:
            raise self.ptx.fail(start, "cannot read", statement)
        for name in split_operands(match.group(2)):
            if many := _REGISTERS.match(name):
                names = [f"{many.group(1)}{i}" for i in range(int(many.group(2)))]
            else:
                names = [name]
            for single in names:
                unique = single
                if len(self.scopes) > 1:
                    self.unique += 1
                    unique = f"{single}.{self.unique}"
                register = Register(unique, match.group(1))
                self.scopes[-1].registers[single] = register
                self.registers.append(register)

    def _find(self, name: str) -> Register | None:
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return scope.registers[name]
        return None

    def _instruction(self, statement: str, start: int) -> None:
        rest, guard, negated = statement, None, False
        if rest.startswith("@"):
            word, rest = rest[1:].split(None, 1)
            negated = word.startswith("!")
            guard = self._find(word.lstrip("!"))
            if guard is None:
                raise self.ptx.fail(start, f"unknown predicate {word}", statement)
        match = _OPCODE.match(rest)
        if match is None:
            raise self.ptx.fail(start, "cannot read", statement)
        opcode = tuple(match.group(0).split("."))
        try:
            operands = tuple(self._operand(piece) for piece in split_operands(rest[match.end() :]))
        except (ValueError, IndexError) as error:
            raise self.ptx.fail(start, str(error), statement) from None
        self.pending.append((self._branch_labels(opcode, operands), tuple(self.scopes)))
        self.instructions.append(
            Instruction(opcode, operands, guard, negated, statement,
                        self.ptx.line_at(start), self.source)
        )  # fmt: skip

    def _branch_labels(self, opcode: tuple[str, ...], operands: tuple[Operand, ...]
                       ) -> tuple[str, ...]:  # fmt: skip
        if opcode[0] == "bra" and isinstance(operands[0], Symbol):
            return (operands[0].name,)
        if opcode[0] == "brx" and isinstance(operands[1], Symbol):
            return self.tables.get(operands[1].name, (operands[1].name,))
        return ()

    def resolved(self) -> list[Instruction]:
        """The instructions, branch targets as indices. An exit is appended for a falling end."""
        end = len(self.instructions)
        out = []
        for instruction, (labels, scopes) in zip(self.instructions, self.pending, strict=True):
            if not labels:
                out.append(instruction)
                continue
            targets = tuple(self._target(label, scopes, instruction) for label in labels)
            out.append(
                Instruction(instruction.opcode, instruction.operands, instruction.guard,
                            instruction.guard_negated, instruction.text, instruction.ptx_line,
                            instruction.source, targets[0], targets)
            )  # fmt: skip
        out.append(Instruction(("ret",), (), None, False, "ret (end of the kernel)",
                               self.ptx.line_at(self.end), self.source))  # fmt: skip
        assert len(out) == end + 1
        return out

    def _target(self, label: str, scopes: tuple[_Scope, ...], instruction: Instruction) -> int:
        for scope in reversed(scopes):
            if label in scope.labels:
                return scope.labels[label]
            if label in self.tables:
                return self._target(self.tables[label][0], scopes, instruction)
        raise PtxError(
            f"PTX line {instruction.ptx_line}: label {label} is not defined: `{instruction.text}`"
        )

    def _operand(self, text: str) -> Operand:
        if text[0] == "{":
            return Vector(tuple(self._operand(piece) for piece in split_operands(text[1:-1])))
        if text[0] == "[":
            return self._address(text[1:-1].strip())
        if text[0] == "!":
            register = self._find(text[1:].strip())
            if register is None:
                raise ValueError(f"unknown predicate {text}")
            return Negated(register)
        if "|" in text:
            first, second = (piece.strip() for piece in text.split("|", 1))
            return Pair(self._operand(first), self._operand(second))
        if register := self._find(text):
            return register
        return _literal(text)

    def _address(self, text: str) -> Address:
        first, *rest = split_operands(text)
        base, offset = first, 0
        if first[0] != "{" and (match := _OFFSET.match(first)):
            base = match.group(1)
            offset = int(match.group(3), 0) * (-1 if match.group(2) == "-" else 1)
        return Address(self._operand(base), offset, tuple(self._operand(piece) for piece in rest))


def _literal(text: str) -> Operand:
    if text == "_":
        return Sink()
    if text[0] == "%":
        return Special(text[1:])
    if match := FLOAT.match(text):
        return Immediate(int(match.group(1) or match.group(2), 16))
    if _INTEGER.match(text):
        return Immediate(int(text.rstrip("uU"), 0))
    if re.fullmatch(r"-?\d+\.\d+(?:[eE][+-]?\d+)?", text):
        return Immediate(int.from_bytes(struct.pack("<f", float(text)), "little"))
    if re.fullmatch(r"[A-Za-z_$][\w$.]*", text):
        return Symbol(text)
    raise ValueError(f"cannot read the operand {text}")
