"""PTX text to a Module: entries, parameters, shared variables, instructions with source lines.

In: what NVRTC, nvcc or Triton prints. Out: jaxpipe.ptx.nodes. The parser knows the grammar, not
the instructions: what an opcode means, and whether it is known, is the encoder's business.
Statements that it cannot read raise PtxError with line and text.
"""

from __future__ import annotations

import re

from jaxpipe.errors import PtxError
from jaxpipe.ptx.nodes import Entry, Module, Param
from jaxpipe.ptx.parse_body import Body
from jaxpipe.ptx.parse_text import PtxText, align_up, split_operands
from jaxpipe.ptx.parse_variables import Variables, type_bytes

_ENTRY = re.compile(r"(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)\s*")
_FUNCTION = re.compile(r"(?:\.visible\s+|\.extern\s+|\.weak\s+)*\.func\b")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z]+)(\d+)\s+"
    r"(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s*)?)?([\w$]+)(?:\[(\d+)\])?$"
)
_DIM3 = re.compile(r"(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def parse(text: str) -> Module:
    """The module that PTX `text` describes. Raises PtxError on what is no PTX."""
    return _ModuleParser(text).parse()


class _ModuleParser:
    """Walks the file once: directives, variables, entries."""

    def __init__(self, text: str) -> None:
        self.source = PtxText(text)
        self.text = self.source.text
        self.variables = Variables()

    def parse(self) -> Module:
        target = re.search(r"^\s*\.target\s+([\w]+)", self.text, re.M)
        entries: dict[str, Entry] = {}
        at = 0
        while True:
            at = self.source.skip(at)
            if at >= len(self.text):
                break
            if match := _ENTRY.match(self.text, at):
                entry, at = self._entry(match)
                entries[entry.name] = entry
            elif _FUNCTION.match(self.text, at):
                raise self.source.fail(
                    at, "functions are not supported, only entries", self.text[at:]
                )
            elif self.text.startswith(".section", at):
                at = self._after_block(at)
            else:
                at = self._directive(at)
        if not entries:
            raise PtxError("PTX has no .entry: nothing to run")
        return Module(
            target.group(1) if target else "", entries, self.variables.globals, self.source.original
        )

    def _after_block(self, at: int) -> int:
        return self.source.matching(self.text.index("{", at)) + 1

    def _directive(self, at: int) -> int:
        """A directive or variable at module scope; returns where it ends."""
        rest = self.text[at : at + 16]
        if rest.startswith((".version", ".target", ".address_size", ".file", ".loc")):
            end = self.text.find("\n", at)
            return len(self.text) if end < 0 else end
        end = self.text.find(";", at)
        if end < 0:
            raise self.source.fail(at, "a statement is not closed", self.text[at:])
        statement = self.text[at:end]
        if not self.variables.declare(statement, None) and not statement.startswith(".pragma"):
            raise self.source.fail(at, "cannot read", statement)
        return end + 1

    def _entry(self, match: re.Match[str]) -> tuple[Entry, int]:
        at = match.end()
        params: tuple[Param, ...] = ()
        if self.text[at] == "(":
            close = self.text.index(")", at)
            params = self._params(self.text[at + 1 : close], at)
            at = close + 1
        opening = self.text.index("{", at)
        attributes = self.text[at:opening]
        closing = self.source.matching(opening)
        body = Body(self.source, self.variables, opening + 1, closing)
        body.parse()
        static_bytes = self.variables.place_extern()
        entry = Entry(
            name=match.group(1),
            params=params,
            instructions=tuple(body.resolved()),
            registers=tuple(body.registers),
            variables=self.variables.shared | body.local.variables,
            static_shared_bytes=static_bytes,
            local_bytes=body.local.size,
            max_threads=_product(_attribute(attributes, "maxntid")),
            required_threads=_attribute(attributes, "reqntid"),
            cluster=_attribute(attributes, "reqnctapercluster"),
            max_registers=_attribute(attributes, "maxnreg")[0],
        )
        return entry, closing + 1

    def _params(self, text: str, at: int) -> tuple[Param, ...]:
        params, offset = [], 0
        for piece in split_operands(text):
            match = _PARAM.match(" ".join(piece.split()))
            if match is None:
                raise self.source.fail(at, "cannot read the parameter", piece)
            unit = type_bytes(match.group(2), match.group(3))
            size = unit * int(match.group(5) or 1)
            align = int(match.group(1) or unit)
            offset = align_up(offset, align)
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
