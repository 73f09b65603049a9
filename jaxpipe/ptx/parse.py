"""PTX text to a Module: entries, parameters, shared variables, instructions with source lines.

In: what NVRTC, nvcc or Triton prints. Out: jaxpipe.ptx.nodes. The parser knows the grammar, not
the instructions: what an opcode means, and whether it is known, is the encoder's business.
Statements that it cannot read raise PtxError with line and text.
"""

from __future__ import annotations

import bisect
import re
import struct
from dataclasses import dataclass, field

from jaxpipe.errors import PtxError
from jaxpipe.ptx.nodes import (
    Address,
    Entry,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    Param,
    Register,
    Sink,
    Source,
    Special,
    Symbol,
    Variable,
    Vector,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"([$%\w]+)\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(loc|file)\b([^\n]*)")
_LOC = re.compile(r"\s*(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+\d+\s+(\d+))?")
_FILE = re.compile(r'\s*(\d+)\s+"([^"]*)"')
_ENTRY = re.compile(r"(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)\s*")
_FUNCTION = re.compile(r"(?:\.visible\s+|\.extern\s+|\.weak\s+)*\.func\b")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z]+)(\d+)\s+"
    r"(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s*)?)?([\w$]+)(?:\[(\d+)\])?$"
)
_VARIABLE = re.compile(
    r"((?:\.extern|\.visible|\.weak|\.const|\.global|\.shared|\.local)\s+)+"
    r"(?:\.align\s+(\d+)\s+)?\.([a-z]+)(\d+)\s+([\w$]+)((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)
_OPCODE = re.compile(r"[a-z]\w*(?:(?:\.|::)\w+)*")
_REGISTERS = re.compile(r"(%?[\w$]+)<(\d+)>$")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?$")
_OFFSET = re.compile(r"(.+?)\s*([+-])\s*(-?\w+)$")
_DIM3 = re.compile(r"(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def parse(text: str) -> Module:
    """The module that PTX `text` describes. Raises PtxError on what is no PTX."""
    return _ModuleParser(text).parse()


def split_operands(text: str) -> list[str]:
    """`a, {b, c}, [d, e]` -> three pieces: commas inside brackets do not split."""
    pieces, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:at].strip())
            start = at + 1
    if last := text[start:].strip():
        pieces.append(last)
    return pieces


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group(0))


def _align(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment


def _width(kind: str, bits: str) -> int:
    return int(bits) // 8 if kind != "pred" else 1


@dataclass
class _Scope:
    """Names declared inside one pair of braces, and its labels."""

    registers: dict[str, Register] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


class _ModuleParser:
    """Walks the file once: directives, variables, entries."""

    def __init__(self, text: str) -> None:
        self.original = text
        # Comments become blanks, so that offsets and line numbers stay.
        self.text = _COMMENT.sub(_blank, text)
        self.newlines = [m.start() for m in re.finditer("\n", self.text)]
        self.files: dict[str, str] = {}
        for match in re.finditer(r"^\s*\.file\b([^\n]*)", self.text, re.M):
            if found := _FILE.match(match.group(1)):
                self.files[found.group(1)] = found.group(2)
        self.globals: dict[str, Variable] = {}
        self.shared: dict[str, Variable] = {}
        self.shared_bytes = 0
        self.extern_shared: list[tuple[str, int]] = []

    def line_at(self, offset: int) -> int:
        return bisect.bisect_left(self.newlines, offset) + 1

    def fail(self, offset: int, why: str, text: str) -> PtxError:
        shown = " ".join(text.split())[:200]
        return PtxError(f"PTX line {self.line_at(offset)}: {why}: `{shown}`")

    def parse(self) -> Module:
        target = re.search(r"^\s*\.target\s+([\w]+)", self.text, re.M)
        entries: dict[str, Entry] = {}
        at = 0
        while True:
            at = self._skip(at)
            if at >= len(self.text):
                break
            if match := _ENTRY.match(self.text, at):
                entry, at = self._entry(match)
                entries[entry.name] = entry
            elif _FUNCTION.match(self.text, at):
                raise self.fail(at, "functions are not supported, only entries", self.text[at:])
            elif self.text.startswith(".section", at):
                at = self._after_block(at)
            else:
                at = self._directive(at)
        if not entries:
            raise PtxError("PTX has no .entry: nothing to run")
        return Module(target.group(1) if target else "", entries, self.globals, self.original)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _after_block(self, at: int) -> int:
        return self._matching(self.text.index("{", at)) + 1

    def _matching(self, opening: int) -> int:
        depth = 0
        for match in re.compile(r"[{}]").finditer(self.text, opening):
            depth += 1 if match.group(0) == "{" else -1
            if depth == 0:
                return match.start()
        raise self.fail(opening, "a brace is not closed", self.text[opening : opening + 80])

    def _directive(self, at: int) -> int:
        """A directive or variable at module scope; returns where it ends."""
        rest = self.text[at : at + 16]
        if rest.startswith((".version", ".target", ".address_size", ".file", ".loc")):
            end = self.text.find("\n", at)
            return len(self.text) if end < 0 else end
        end = self.text.find(";", at)
        if end < 0:
            raise self.fail(at, "a statement is not closed", self.text[at:])
        statement = self.text[at:end]
        if not self.declare(statement, None) and not statement.startswith(".pragma"):
            raise self.fail(at, "cannot read", statement)
        return end + 1

    def declare(self, statement: str, local: _Locals | None) -> bool:
        """Declares a variable of any space; False when the statement is none."""
        match = _VARIABLE.match(statement.strip())
        if match is None:
            return False
        words = statement.split()
        align = int(match.group(2) or _width(match.group(3), match.group(4)))
        name = match.group(5)
        size = _width(match.group(3), match.group(4))
        for dim in re.findall(r"\[(\d*)\]", match.group(6)):
            size *= int(dim or 0)
        if ".shared" in words:
            self._declare_shared(name, size, align, ".extern" in words)
        elif ".local" in words and local is not None:
            local.declare(name, size, align)
        else:
            data = _initialiser(match.group(7), match.group(3), match.group(4), size)
            self.globals[name] = Variable("global", 0, size, align, data)
        return True

    def _declare_shared(self, name: str, size: int, align: int, extern: bool) -> None:
        if extern:
            self.extern_shared.append((name, align))
            return
        offset = _align(self.shared_bytes, align)
        self.shared[name] = Variable("shared", offset, size, align)
        self.shared_bytes = offset + size

    def _entry(self, match: re.Match[str]) -> tuple[Entry, int]:
        at = match.end()
        params: tuple[Param, ...] = ()
        if self.text[at] == "(":
            close = self.text.index(")", at)
            params = self._params(self.text[at + 1 : close], at)
            at = close + 1
        opening = self.text.index("{", at)
        attributes = self.text[at:opening]
        closing = self._matching(opening)
        body = _Body(self, opening + 1, closing)
        body.parse()
        base = self.shared_bytes
        for name, align in self.extern_shared:
            base = _align(base, align)
            self.shared[name] = Variable("shared", base, 0, align)
        entry = Entry(
            name=match.group(1),
            params=params,
            instructions=tuple(body.resolved()),
            registers=tuple(body.registers),
            variables=self.shared | body.local.variables,
            static_shared_bytes=base,
            local_bytes=body.local.size,
            max_threads=_product(_attribute(attributes, "maxntid")),
            required_threads=_attribute(attributes, "reqntid"),
            cluster=_attribute(attributes, "reqnctapercluster"),
        )
        return entry, closing + 1

    def _params(self, text: str, at: int) -> tuple[Param, ...]:
        params, offset = [], 0
        for piece in split_operands(text):
            match = _PARAM.match(" ".join(piece.split()))
            if match is None:
                raise self.fail(at, "cannot read the parameter", piece)
            unit = _width(match.group(2), match.group(3))
            size = unit * int(match.group(5) or 1)
            align = int(match.group(1) or unit)
            offset = _align(offset, align)
            params.append(Param(match.group(4), offset, size, align))
            offset += size
        return tuple(params)


def _attribute(text: str, name: str) -> tuple[int, int, int]:
    found = re.search(rf"\.{name}\s+([\d,\s]+)", text)
    if found is None:
        return (0, 0, 0)
    dims = _DIM3.match(found.group(1))
    assert dims is not None
    x, y, z = (int(d or 1) for d in dims.groups())
    return (x, y, z)


def _product(dims: tuple[int, int, int]) -> int:
    return dims[0] * dims[1] * dims[2]


def _initialiser(text: str | None, kind: str, bits: str, size: int) -> bytes:
    if text is None:
        return bytes(size)
    words = [w.strip() for w in text.replace("{", "").replace("}", "").split(",") if w.strip()]
    width = int(bits) // 8
    data = b""
    for word in words:
        if match := _FLOAT.match(word):
            value = int(match.group(1) or match.group(2), 16)
        else:
            value = int(word.rstrip("uU"), 0)
        data += (value % (1 << (8 * width))).to_bytes(width, "little")
    return data.ljust(size, b"\0")


@dataclass
class _Locals:
    """The .local variables of an entry: offsets in the memory of one thread."""

    variables: dict[str, Variable] = field(default_factory=dict)
    size: int = 0

    def declare(self, name: str, size: int, align: int) -> None:
        offset = _align(self.size, align)
        self.variables[name] = Variable("local", offset, size, align)
        self.size = offset + size


class _Body:
    """The statements between the braces of one entry."""

    def __init__(self, module: _ModuleParser, start: int, end: int) -> None:
        self.module = module
        self.text = module.text
        self.at = start
        self.end = end
        self.scopes = [_Scope()]
        self.registers: list[Register] = []
        self.instructions: list[Instruction] = []
        self.pending: list[tuple[tuple[str, ...], tuple[_Scope, ...]]] = []
        self.tables: dict[str, tuple[str, ...]] = {}
        self.local = _Locals()
        self.source: Source | None = None
        self.unique = 0

    def parse(self) -> None:
        while True:
            self.at = self.module._skip(self.at)
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
        start = self.module._skip(self.at)
        if self.text.startswith(".branchtargets", start):
            end = self.text.index(";", start)
            names = self.text[start + len(".branchtargets") : end]
            self.tables[name] = tuple(n.strip() for n in names.split(","))
            self.at = end + 1
        else:
            self.scopes[-1].labels[name] = len(self.instructions)

    def _loc(self, text: str) -> None:
        if match := _LOC.match(text):
            file = self.module.files.get(match.group(1), match.group(1))
            self.source = Source(file, int(match.group(2)), int(match.group(3) or 0))

    def _statement(self) -> None:
        start = self.at
        end = self.text.find(";", start, self.end)
        if end < 0:
            raise self.module.fail(start, "a statement is not closed", self.text[start : self.end])
        self.at = end + 1
        statement = " ".join(self.text[start:end].split())
        if statement.startswith(".reg"):
            self._declare_registers(statement, start)
        elif statement.startswith("."):
            known = statement.startswith(".pragma") or self.module.declare(statement, self.local)
            if not known:
                raise self.module.fail(start, "cannot read", statement)
        elif statement:
            self._instruction(statement, start)

    def _declare_registers(self, statement: str, start: int) -> None:
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)$", statement)
        if match is None:
            raise self.module.fail(start, "cannot read", statement)
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
                raise self.module.fail(start, f"unknown predicate {word}", statement)
        match = _OPCODE.match(rest)
        if match is None:
            raise self.module.fail(start, "cannot read", statement)
        opcode = tuple(match.group(0).split("."))
        try:
            operands = tuple(self._operand(piece) for piece in split_operands(rest[match.end() :]))
        except (ValueError, IndexError) as error:
            raise self.module.fail(start, str(error), statement) from None
        self.pending.append((self._branch_labels(opcode, operands), tuple(self.scopes)))
        self.instructions.append(
            Instruction(opcode, operands, guard, negated, statement,
                        self.module.line_at(start), self.source)
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
                               self.module.line_at(self.end), self.source))  # fmt: skip
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
    if match := _FLOAT.match(text):
        return Immediate(int(match.group(1) or match.group(2), 16))
    if _INTEGER.match(text):
        return Immediate(int(text.rstrip("uU"), 0))
    if re.fullmatch(r"-?\d+\.\d+(?:[eE][+-]?\d+)?", text):
        return Immediate(int.from_bytes(struct.pack("<f", float(text)), "little"))
    if re.fullmatch(r"[A-Za-z_$][\w$.]*", text):
        return Symbol(text)
    raise ValueError(f"cannot read the operand {text}")
