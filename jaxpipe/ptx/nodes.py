"""What the parser makes of PTX text: operands, instructions, entries, modules.

Plain data; nothing here knows how an instruction is executed. Registers carry their declared
type; names inside inline-assembly scopes are made unique by the parser.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """A register of a declared type: `pred`, `b16`, `b32`, `f32`, `b64`, ..."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as `tid.x`, without its percent sign."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant as its bits; a negative integer is kept negative."""

    value: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a parameter, a shared or local variable, a global constant or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """The operand `_`: a result that nobody reads."""


@dataclass(frozen=True, slots=True)
class Negated:
    """A predicate operand with `!` in front."""

    register: Register


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two results of one instruction."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, or with more operands inside the brackets, as tensor copies have."""

    base: Operand
    offset: int = 0
    rest: tuple[Operand, ...] = ()


Operand = Register | Special | Immediate | Symbol | Sink | Negated | Vector | Pair | Address


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the source, from `.loc`; `inlined_at` is where it was inlined, or 0."""

    file: str
    line: int
    inlined_at: int = 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `@!p ld.global.v2.f32 {a, b}, [c]` has opcode (ld, global, v2, f32)."""

    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    text: str
    ptx_line: int
    source: Source | None
    target: int = -1
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared array: its space, offset in that space, size and alignment, in bytes."""

    space: str
    offset: int
    size_bytes: int
    align_bytes: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an entry: offset, size and alignment in the parameter block, in bytes."""

    name: str
    offset: int
    size_bytes: int
    align_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a module. `branch targets` in instructions are instruction indices.

    static_shared_bytes is where dynamic shared memory starts. max_threads comes from .maxntid,
    required_threads from .reqntid, cluster from .reqnctapercluster, max_registers (a thread) from
    .maxnreg; zeros mean "not given".
    """

    name: str
    params: tuple[Param, ...]
    instructions: tuple[Instruction, ...]
    registers: tuple[Register, ...]
    variables: dict[str, Variable]
    static_shared_bytes: int
    local_bytes: int
    max_threads: int = 0
    required_threads: tuple[int, int, int] = (0, 0, 0)
    cluster: tuple[int, int, int] = (0, 0, 0)
    max_registers: int = 0

    @property
    def param_bytes(self) -> int:
        """Size of the parameter block."""
        return max((p.offset + p.size_bytes for p in self.params), default=0)


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A parsed PTX file. Compared and hashed by identity, so that programs are cached by it."""

    target: str
    entries: dict[str, Entry]
    globals: dict[str, Variable] = field(default_factory=dict)
    text: str = ""
