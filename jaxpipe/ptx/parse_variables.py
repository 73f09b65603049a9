"""Declared variables of a module and their places: global, shared and local memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from jaxpipe.ptx.nodes import Variable
from jaxpipe.ptx.parse_text import FLOAT, align_up

_VARIABLE = re.compile(
    r"((?:\.extern|\.visible|\.weak|\.const|\.global|\.shared|\.local)\s+)+"
    r"(?:\.align\s+(\d+)\s+)?\.([a-z]+)(\d+)\s+([\w$]+)((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)


def type_bytes(kind: str, bits: str) -> int:
    """Bytes of one value of a type that is written as `kind` and `bits`."""
    return int(bits) // 8 if kind != "pred" else 1


@dataclass
class Locals:
    """The .local variables of an entry: offsets in the memory of one thread."""

    variables: dict[str, Variable] = field(default_factory=dict)
    size: int = 0

    def declare(self, name: str, size: int, align: int) -> None:
        """Places one."""
        offset = align_up(self.size, align)
        self.variables[name] = Variable("local", offset, size, align)
        self.size = offset + size


@dataclass
class Variables:
    """The variables of a module; an entry adds its .local ones."""

    globals: dict[str, Variable] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    shared_bytes: int = 0
    extern_shared: list[tuple[str, int]] = field(default_factory=list)

    def declare(self, statement: str, local: Locals | None) -> bool:
        """Declares a variable of any space; False when the statement is none."""
        match = _VARIABLE.match(statement.strip())
        if match is None:
            return False
        words = statement.split()
        align = int(match.group(2) or type_bytes(match.group(3), match.group(4)))
        name = match.group(5)
        size = type_bytes(match.group(3), match.group(4))
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
        offset = align_up(self.shared_bytes, align)
        self.shared[name] = Variable("shared", offset, size, align)
        self.shared_bytes = offset + size

    def place_extern(self) -> int:
        """Places the .extern .shared variables behind the others; returns where they begin."""
        base = self.shared_bytes
        for name, align in self.extern_shared:
            base = align_up(base, align)
            self.shared[name] = Variable("shared", base, 0, align)
        return base


def _initialiser(text: str | None, kind: str, bits: str, size: int) -> bytes:
    if text is None:
        return bytes(size)
    words = [w.strip() for w in text.replace("{", "").replace("}", "").split(",") if w.strip()]
    width = int(bits) // 8
    data = b""
    for word in words:
        if match := FLOAT.match(word):
            value = int(match.group(1) or match.group(2), 16)
        else:
            value = int(word.rstrip("uU"), 0)
        data += (value % (1 << (8 * width))).to_bytes(width, "little")
    return data.ljust(size, b"\0")
