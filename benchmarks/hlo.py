"""Reads XLA's optimised HLO text: which kernels a program launches and which bytes they move.

In: the text of a compiled GPU program. Out: Kernel rows, with a class and the bytes that must pass
through device memory. A fusion reads each operand once, or only the slices that it takes of it; an
update in place reads and writes the update alone; a loop's body counts its trips. Nothing here
knows JAX.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

KernelClass = Literal["product", "elementwise", "reduction", "copy", "other"]
CLASSES: tuple[KernelClass, ...] = ("product", "elementwise", "reduction", "copy", "other")
OURS = "jaxpipe_cuda_launch"

BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32,
    "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
    "f8e4m3fn": 8, "f8e5m2": 8, "f8e4m3": 8, "token": 0, "opaque": 0,
}  # fmt: skip
# Instructions that launch nothing.
SILENT = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "while",
    "conditional", "call", "partition-id", "replica-id", "opt-barrier", "add-dependency",
})  # fmt: skip
MOVES = frozenset({
    "parameter", "constant", "bitcast", "copy", "transpose", "reshape", "slice", "dynamic-slice",
    "dynamic-update-slice", "concatenate", "pad", "gather", "broadcast", "tuple", "reverse", "iota",
    "get-tuple-element", "scatter", "copy-start",
})  # fmt: skip
SLICES = frozenset({"slice", "dynamic-slice", "gather"})
PRODUCT_TARGETS = re.compile(r"gemm|matmul|conv|" + OURS)


@dataclass(frozen=True, slots=True)
class Shape:
    """One array: dtype and dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Dense size."""
        return math.prod(self.dims) * BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of HLO; shapes has several entries for a tuple."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    is_root: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of all of its results."""
        return sum(shape.size_bytes for shape in self.shapes)

    def called(self, key: str) -> str:
        """Name of the computation behind attribute `key`, "" without one."""
        found = re.search(rf"\b{key}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else ""


@dataclass(frozen=True)
class Computation:
    """Instructions by name, in order."""

    name: str
    instructions: dict[str, Instruction]

    @functools.cached_property
    def root(self) -> Instruction:
        """The result."""
        return next(i for i in self.instructions.values() if i.is_root)

    def users(self, name: str) -> list[Instruction]:
        """Instructions that take `name`."""
        return [i for i in self.instructions.values() if name in i.operands]


@dataclass(frozen=True)
class Module:
    """A whole program."""

    computations: dict[str, Computation]
    entry: Computation


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch (times `launches`): its class and the bytes of one launch."""

    name: str
    kind: KernelClass
    target: str
    read_bytes: int
    written_bytes: int
    launches: int


# ------------------------------------------------------------------ text -> Module
def parse(text: str) -> Module:
    """The module in XLA's text form; ValueError without an entry computation."""
    computations: dict[str, Computation] = {}
    entry = ""
    current: dict[str, Instruction] = {}
    for line in text.splitlines():
        if header := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$", line):
            current = {}
            computations[header[2]] = Computation(header[2], current)
            entry = header[2] if header[1] else entry
        elif re.match(r"  (ROOT )?%?[\w.\-]+ = ", line):
            instruction = _instruction(line)
            current[instruction.name] = instruction
    if not entry:
        raise ValueError(f"no ENTRY computation in HLO text of {len(text)} characters")
    return Module(computations, computations[entry])


def _instruction(line: str) -> Instruction:
    line = re.sub(r"/\*.*?\*/", "", line.strip())
    is_root, line = line.startswith("ROOT "), line.removeprefix("ROOT ")
    name, rest = line.split(" = ", 1)
    kind, rest = _take_type(rest)
    opcode, rest = rest.split("(", 1)
    inside, attributes = _take_parenthesis(rest)
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    if opcode == "parameter":
        attributes = f"index={inside}, {attributes}"
    return Instruction(
        name.lstrip("%"), opcode.strip(), _shapes(kind), operands, attributes, is_root
    )


def _take_type(text: str) -> tuple[str, str]:
    if not text.startswith("("):
        return tuple(text.split(" ", 1))  # type: ignore[return-value]
    inside, rest = _take_parenthesis(text[1:])
    return inside, rest.lstrip()


def _take_parenthesis(text: str) -> tuple[str, str]:
    """What is before the parenthesis that closes an opened one, and what follows it."""
    depth, quoted = 1, False
    for at, letter in enumerate(text):
        quoted ^= letter == '"' and text[at - 1 : at] != "\\"
        if not quoted:
            depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[:at], text[at + 1 :]
    raise ValueError(f"unbalanced parenthesis in {text[:80]!r}")


def _shapes(text: str) -> tuple[Shape, ...]:
    found = re.findall(r"\b([a-z]\w*)\[([\d,]*)\]", text)
    return tuple(Shape(d, tuple(int(n) for n in dims.split(",") if n)) for d, dims in found)


# ------------------------------------------------------------------ Module -> kernels
def kernels(module: Module) -> list[Kernel]:
    """Every kernel of the program, loops unrolled into `launches`."""
    return list(_kernels(module, module.entry, 1))


def _kernels(module: Module, computation: Computation, times: int) -> Iterator[Kernel]:
    for instruction in computation.instructions.values():
        match instruction.opcode:
            case "while":
                trips = _trip_count(instruction)
                for key in ("body", "condition"):
                    inner = module.computations[instruction.called(key)]
                    yield from _kernels(module, inner, times * trips)
            case "call" | "async-start":
                key = "to_apply" if instruction.opcode == "call" else "calls"
                inner = module.computations[instruction.called(key)]
                yield from _kernels(module, inner, times)
            case opcode if opcode not in SILENT and not opcode.endswith(("-done", "-update")):
                yield _kernel(module, computation, instruction, times)


def _trip_count(instruction: Instruction) -> int:
    found = re.search(r'"known_trip_count":\{"n":"(\d+)"', instruction.attributes)
    return int(found[1]) if found else 1


def _kernel(module: Module, within: Computation, i: Instruction, times: int) -> Kernel:
    body = module.computations.get(i.called("calls"))
    target = _target(i, body)
    sizes = [within.instructions[name].size_bytes for name in i.operands]
    if body is None:
        read, written = sum(sizes), _written_alone(i)
        if i.opcode in SLICES:
            read = i.size_bytes
        if i.opcode == "dynamic-update-slice":
            read = written = sizes[1]
    else:
        read = sum(_read(body, index, size) for index, size in enumerate(sizes))
        written = sum(_written(body, name) for name in _roots(body))
    kind = _classify(i, body, target)
    if target != OURS:
        return Kernel(i.name, kind, target, read, written, times)
    grids, scratch = _ours(i, body)
    per_grid = [(b + scratch) // grids for b in (read, written)]  # partial sums go out and back
    return Kernel(i.name, kind, target, per_grid[0], per_grid[1], times * grids)


def _target(i: Instruction, body: Computation | None) -> str:
    """The custom call that an instruction is, or that a fusion holds with the slices around it."""
    for inner in (i, *(body.instructions.values() if body else ())):
        if found := re.search(r'custom_call_target="([^"]*)"', inner.attributes):
            return found[1]
    return i.opcode


def _written_alone(i: Instruction) -> int:
    """Results of an unfused instruction; the scratch that a custom call asks for is not traffic."""
    shapes = i.shapes if i.opcode != "custom-call" else _without_scratch(i.shapes)
    return sum(shape.size_bytes for shape in shapes)


def _without_scratch(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    return tuple(s for s in shapes if not (s.dtype in ("s8", "u8") and len(s.dims) == 1))


def _ours(i: Instruction, body: Computation | None) -> tuple[int, int]:
    """Grids and bytes of scratch of one of our calls, alone or inside a fusion of slices.

    The recipe's names are kernel, target, then one entry a grid.
    """
    inner = next(
        x for x in (i, *(body.instructions.values() if body else ()))
        if x.opcode == "custom-call"
    )  # fmt: skip
    names = re.search(r'\bnames = "([^"]*)"', inner.attributes)
    kept = _without_scratch(inner.shapes)
    scratch = sum(s.size_bytes for s in inner.shapes) - sum(s.size_bytes for s in kept)
    return max(1, names[1].count("\\0A") - 1) if names else 1, scratch


def _classify(i: Instruction, body: Computation | None, target: str) -> KernelClass:
    opcodes = {x.opcode for x in body.instructions.values()} if body else {i.opcode}
    if opcodes & {"dot", "convolution"} or PRODUCT_TARGETS.search(target):
        return "product"
    if "custom-call" in opcodes:
        return "other"
    if opcodes & {"reduce", "reduce-window", "sort", "select-and-scatter"}:
        return "reduction"
    return "copy" if opcodes <= MOVES else "elementwise"


def _read(body: Computation, index: int, size: int) -> int:
    """Bytes that a fusion reads of operand `index`, which has `size` bytes."""
    parameter = next(
        (x for x in body.instructions.values()
         if x.opcode == "parameter" and x.attributes.startswith(f"index={index},")), None,
    )  # fmt: skip
    if parameter is None:
        return size
    users = body.users(parameter.name)
    return min(size, sum(_read_by(body, parameter.name, user) for user in users))


def _read_by(body: Computation, name: str, user: Instruction) -> int:
    if user.opcode in SLICES and user.operands[0] == name:
        return user.size_bytes
    if user.opcode == "dynamic-update-slice" and user.operands[0] == name:
        return 0
    if user.opcode in ("bitcast", "get-tuple-element") and not user.is_root:
        return sum(_read_by(body, user.name, next_) for next_ in body.users(user.name))
    return body.instructions[name].size_bytes


def _roots(body: Computation) -> tuple[str, ...]:
    root = body.root
    return root.operands if root.opcode == "tuple" else (root.name,)


def _written(body: Computation, name: str) -> int:
    i = body.instructions[name]
    if i.opcode == "bitcast":
        return _written(body, i.operands[0])
    if i.opcode == "custom-call":
        return _written_alone(i)
    if i.opcode == "get-tuple-element" and body.instructions[i.operands[0]].opcode == "custom-call":
        return sum(shape.size_bytes for shape in _without_scratch(i.shapes))
    if i.opcode == "dynamic-update-slice":
        return body.instructions[i.operands[1]].size_bytes
    return i.size_bytes
