"""From operands to slots and constants: what all encoding rules share.

In: one parsed Entry. Out: rows in the layout of csrc/ptx/program.h. The rules that turn opcodes
into operations are tables in encode_scalar, encode_memory and encode_async; this file knows
registers, constants and how a row is laid out, and no opcode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from jaxpipe import _native
from jaxpipe.errors import PtxError
from jaxpipe.ptx.nodes import (
    Address,
    Entry,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

OPERATIONS: dict[str, int] = _native.ptx_operations()
NONE = -(2**31)
FALSE_SLOT, TRUE_SLOT = 0, 1

# Flags of an instruction (program.h).
GUARD_NEGATED, PSRC_NEGATED, CONVERGES, ALIGNED, SIGNED, SOURCE_SIZE = 1, 2, 4, 8, 16, 32

INSTRUCTION = np.dtype(
    [
        ("op", "<i4"), ("flags", "<i4"), ("type", "<i4"), ("width", "<i4"), ("guard", "<i4"),
        ("dst", "<i4"), ("src", "<i4", 4), ("pdst", "<i4", 2), ("psrc", "<i4"),
        ("list", "<i4"), ("list_size", "<i4"), ("list_writes", "<i4"), ("target", "<i4"),
        ("unused", "<i4"), ("imm", "<i8"),
    ]
)  # fmt: skip
assert INSTRUCTION.itemsize == 80

# In the order of SpecialSlot in program.h.
SPECIALS = (
    *(f"tid.{d}" for d in "xyz"), *(f"ctaid.{d}" for d in "xyz"), "laneid", "warpid",
    *(f"ntid.{d}" for d in "xyz"), *(f"nctaid.{d}" for d in "xyz"),
    "cluster_ctarank", "cluster_nctarank", *(f"clusterid.{d}" for d in "xyz"),
    *(f"nclusterid.{d}" for d in "xyz"), *(f"cluster_ctaid.{d}" for d in "xyz"),
    *(f"cluster_nctaid.{d}" for d in "xyz"), "lanemask_eq", "lanemask_le", "lanemask_lt",
    "lanemask_ge", "lanemask_gt", "dynamic_smem_size", "total_smem_size", "smid",
)  # fmt: skip
assert len(SPECIALS) == _native.PTX_SPECIAL_SLOTS
SPECIAL_SLOT = {name: slot for slot, name in enumerate(SPECIALS)}


def bits_of(type_: str) -> int:
    """Width of a PTX type: `f32` and `bf16x2` are 32, `pred` is 1."""
    if type_ == "pred":
        return 1
    if type_.endswith("x2"):
        return 2 * bits_of(type_[:-2])
    if type_.startswith(("e4m3", "e5m2")):
        return 8
    if type_ == "tf32":
        return 32
    digits = type_.lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits)


def fail(instruction: Instruction, why: str) -> PtxError:
    """The error for an instruction that the encoder does not know."""
    return PtxError(f"PTX line {instruction.ptx_line}: {why}: `{instruction.text}`")


class Modifiers:
    """The words after the first of an opcode; every one must be taken, or the rule fails."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.left = list(instruction.opcode[1:])

    def take(self, *words: str) -> bool:
        """Removes the first of `words` that is there; whether one was."""
        return self.choose({word: word for word in words}) is not None

    def choose(self, table: dict[str, str]) -> str | None:
        """Removes a word of `table` and returns its value, or None."""
        for word in self.left:
            if word in table:
                self.left.remove(word)
                return table[word]
        return None

    def last(self) -> str:
        """Removes and returns the last word: the type."""
        if not self.left:
            raise fail(self.instruction, "the type is missing")
        return self.left.pop()

    def ignore(self, words: Iterable[str]) -> None:
        """Removes all of `words` that are there: hints that change no result."""
        known = set(words)
        self.left = [word for word in self.left if word not in known]

    def done(self) -> None:
        """Raises when a word is left that no rule took."""
        if self.left:
            raise fail(self.instruction, f"unknown modifier .{self.left[0]}")


@dataclass(slots=True)
class Row:
    """One instruction before it is laid out; names as in program.h."""

    op: str
    dst: int = NONE
    src: tuple[int, ...] = ()
    pdst: tuple[int, ...] = ()
    psrc: int = NONE
    flags: int = 0
    type: int = 0
    width: int = 0
    items: tuple[int, ...] = ()
    writes: int = 0
    target: int = 0
    imm: int = 0


@dataclass
class Encoder:
    """Slots of one entry's registers, its constants, and addresses of its variables."""

    entry: Entry
    globals: dict[str, Variable]
    slots: dict[str, int] = field(default_factory=dict)
    predicates: dict[str, int] = field(default_factory=dict)
    constants: dict[tuple[int, bool], int] = field(default_factory=dict)
    register_slots: int = len(SPECIALS)
    predicate_slots: int = 2

    def __post_init__(self) -> None:
        self.sink_slot = self._allocate(64)
        self.sink_predicate = self._allocate_predicate()
        for register in self.entry.registers:
            if register.type == "pred":
                self.predicates[register.name] = self._allocate_predicate()
            else:
                self.slots[register.name] = self._allocate(bits_of(register.type))
        self.params = {param.name: param for param in self.entry.params}
        self.global_index = {name: index for index, name in enumerate(self.globals)}

    def _allocate(self, bits: int) -> int:
        slot = self.register_slots
        self.register_slots += 2 if bits > 32 else 1
        return slot

    def _allocate_predicate(self) -> int:
        self.predicate_slots += 1
        return self.predicate_slots - 1

    def constant(self, value: int, bits: int) -> int:
        """The operand of a constant of 32 or 64 bits."""
        wide = bits > 32
        key = (value % (1 << (64 if wide else max(bits, 1))), wide)
        return ~self.constants.setdefault(key, len(self.constants))

    def address_of(self, name: str, i: Instruction) -> int:
        """The address of a variable in its own space, or of a parameter in the parameter block."""
        if name in self.params:
            return self.params[name].offset
        if name in self.entry.variables:
            variable = self.entry.variables[name]
            base = _native.PTX_SHARED_BASE if variable.space == "shared" else 0
            return int(base + variable.offset)
        if name in self.global_index:
            index = _native.PTX_FIRST_BUFFER + self.global_index[name]
            return int(index << _native.PTX_BUFFER_SHIFT)
        raise fail(i, f"unknown symbol {name}")

    def src(self, i: Instruction, operand: Operand, bits: int) -> int:
        """A source operand of `bits`."""
        match operand:
            case Register(name, type_):
                if type_ == "pred" or (bits_of(type_) > 32) != (bits > 32):
                    raise fail(i, f"{name} is a {type_} register, {bits} bits are needed")
                return self.slots[name]
            case Immediate(value):
                return self.constant(value, bits)
            case Special(name) if name in SPECIAL_SLOT:
                return SPECIAL_SLOT[name] if bits <= 32 else NONE
            case Symbol(name):
                return self.constant(self.address_of(name, i), bits)
            case Sink():
                return self.constant(0, bits)
            case _:
                raise fail(i, f"{operand} cannot be read as {bits} bits")

    def dst(self, i: Instruction, operand: Operand, bits: int) -> int:
        """A destination register of `bits`."""
        match operand:
            case Register(name, type_):
                if type_ == "pred" or (bits_of(type_) > 32) != (bits > 32):
                    raise fail(i, f"{name} is a {type_} register, {bits} bits are written")
                return self.slots[name]
            case Sink():
                return self.sink_slot
            case _:
                raise fail(i, f"{operand} is no destination")

    def predicate(self, i: Instruction, operand: Operand) -> tuple[int, int]:
        """A predicate source: slot and flags (PSRC_NEGATED for !p)."""
        match operand:
            case Register(name, "pred"):
                return self.predicates[name], 0
            case Negated(Register(name, "pred")):
                return self.predicates[name], PSRC_NEGATED
            case Immediate(value):
                return (TRUE_SLOT if value else FALSE_SLOT), 0
            case _:
                raise fail(i, f"{operand} is no predicate")

    def predicate_dst(self, i: Instruction, operand: Operand) -> int:
        """A predicate destination."""
        match operand:
            case Register(name, "pred"):
                return self.predicates[name]
            case Sink():
                return self.sink_predicate
            case _:
                raise fail(i, f"{operand} is no predicate register")

    def address(self, i: Instruction, operand: Operand) -> tuple[int, int, bool]:
        """An address: base operand (NONE when it is absolute), offset, whether it has 64 bits."""
        if not isinstance(operand, Address):
            raise fail(i, f"{operand} is no address")
        match operand.base:
            case Register(_, type_):
                wide = bits_of(type_) > 32
                return self.src(i, operand.base, 64 if wide else 32), operand.offset, wide
            case Symbol(name):
                return NONE, self.address_of(name, i) + operand.offset, True
            case Immediate(value):
                return NONE, value + operand.offset, True
            case _:
                raise fail(i, f"{operand.base} is no address")

    def shared_address(self, i: Instruction, operand: Operand) -> tuple[int, int, bool]:
        """As `address`, with a base that is never NONE: a 32-bit constant when it is absolute."""
        base, offset, wide = self.address(i, operand)
        if base == NONE:
            return self.constant(offset, 32), 0, False
        return base, offset, wide


def registers_of(i: Instruction, operand: Operand) -> tuple[Operand, ...]:
    """The parts of a vector operand, or the operand alone."""
    return operand.parts if isinstance(operand, Vector) else (operand,)
