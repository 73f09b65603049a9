"""Encoding rules of memory: ld, st, atom, red, cvta, cp.async, ldmatrix, stmatrix; and of mma.

Cache and eviction hints change no result and are dropped; everything else that a rule does not
list is an error.
"""

from __future__ import annotations

from jaxpipe.ptx.encoder import (
    ALIGNED,
    NONE,
    SIGNED,
    SOURCE_SIZE,
    Encoder,
    Modifiers,
    Row,
    bits_of,
    fail,
    registers_of,
)
from jaxpipe.ptx.nodes import Address, Immediate, Instruction, Register, Symbol, Vector

SPACES = {
    "global": "1", "shared": "2", "shared::cta": "2", "shared::cluster": "2", "local": "3",
    "param": "4", "param::entry": "4", "const": "1",
}  # fmt: skip
_ORDER = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel",
          "cta", "cluster", "gpu", "sys", "gl")  # fmt: skip
CACHE_HINTS = (
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified",
    *(f"L1::{p}" for p in ("evict_normal", "evict_unchanged", "evict_first", "evict_last",
                           "no_allocate")),
    *(f"L2::{p}" for p in ("evict_normal", "evict_first", "evict_last", "64B", "128B", "256B")),
)  # fmt: skip
_WIDE_ADDRESS, _WIDE_REGISTERS = 16, 32


def _memory_type(space: str | None, wide_address: bool, wide_registers: bool) -> int:
    return int(space or 0) | wide_address * _WIDE_ADDRESS | wide_registers * _WIDE_REGISTERS


def load_store(e: Encoder, i: Instruction) -> Row:
    """ld and st on every space, scalar or vector."""
    m = Modifiers(i)
    type_ = m.last()
    m.ignore((*_ORDER, *CACHE_HINTS))
    space = m.choose(SPACES)
    count = int(m.choose({"v2": "2", "v4": "4", "v8": "8"}) or 1)
    m.take("L2::cache_hint")  # its policy is the last operand
    m.done()
    is_load = i.opcode[0] == "ld"
    data, where = (i.operands[0], i.operands[1]) if is_load else (i.operands[1], i.operands[0])
    parts = registers_of(i, data)
    if len(parts) != count:
        raise fail(i, f"{count} registers are needed")
    bits = bits_of(type_)
    register_bits = _data_bits(i, parts, bits)
    base, offset, wide = e.address(i, where)
    code = e.dst if is_load else e.src
    return Row("ld" if is_load else "st", src=(base,), imm=offset, width=bits // 8,
               flags=SIGNED if type_[0] == "s" else 0, writes=count if is_load else 0,
               type=_memory_type(space, wide, register_bits > 32),
               items=tuple(code(i, part, register_bits) for part in parts))  # fmt: skip


def _data_bits(i: Instruction, parts: tuple[object, ...], bits: int) -> int:
    """The width of the data registers, which may be wider than the type."""
    widths = {bits_of(part.type) for part in parts if isinstance(part, Register)}
    widest = max(widths, default=max(bits, 32))
    if widest < bits or (len(widths) > 1 and widest > 32):
        raise fail(i, f"registers of {sorted(widths)} bits do not fit a type of {bits}")
    return widest


_ATOM_OPS = {name: str(index) for index, name in enumerate(
    ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
)}  # fmt: skip
_ATOM_TYPES = {"u32": 0, "b32": 0, "s32": 1, "u64": 2, "b64": 2, "s64": 3, "f32": 4, "f64": 5,
               "f16x2": 6, "bf16x2": 7, "b16": 8}  # fmt: skip


def atomic(e: Encoder, i: Instruction) -> Row:
    """atom and red."""
    m = Modifiers(i)
    type_ = m.last()
    m.ignore((*_ORDER, "noftz"))
    space = m.choose(SPACES)
    op = m.choose(_ATOM_OPS)
    m.done()
    if op is None or type_ not in _ATOM_TYPES:
        raise fail(i, "this atomic is not known")
    if type_.startswith(("f", "bf")) and op != _ATOM_OPS["add"]:
        raise fail(i, "only add is known for floats")
    bits = bits_of(type_)
    is_atom = i.opcode[0] == "atom"
    where, *values = i.operands[1:] if is_atom else i.operands
    base, offset, wide = e.address(i, where)
    sources = [base if base != NONE else e.constant(offset, 64)]
    sources += [e.src(i, value, bits) for value in values]
    return Row("atom", dst=e.dst(i, i.operands[0], bits) if is_atom else NONE,
               src=tuple(sources), imm=offset if base != NONE else 0, width=bits // 8,
               type=_memory_type(space, wide, False) | int(op) << 8 | _ATOM_TYPES[type_] << 16,
               )  # fmt: skip


def cvta(e: Encoder, i: Instruction) -> Row:
    """cvta and cvta.to: between a space and generic addresses."""
    m = Modifiers(i)
    type_ = m.last()
    to = m.take("to")
    space = m.choose({name: name for name in SPACES})
    m.done()
    if type_ != "u64" or space is None:
        raise fail(i, "only cvta.space.u64 is known")
    kind = space.split("::")[0]
    known = {"global": "mov.b64", "const": "mov.b64", "param": "cvta.param"}
    op = known.get(kind) or (f"cvta.to.{kind}" if to else f"cvta.{kind}")
    if op == "cvta.param" and to:
        raise fail(i, "cvta.to.param is not known")
    return Row(op, dst=e.dst(i, i.operands[0], 64), src=(e.src(i, i.operands[1], 64),))


def isspacep(e: Encoder, i: Instruction) -> Row:
    """isspacep.space p, a."""
    space = SPACES.get(i.opcode[1])
    if space is None or len(i.opcode) != 2:
        raise fail(i, "this space is not known")
    return Row("isspacep", pdst=(e.predicate_dst(i, i.operands[0]),),
               src=(e.src(i, i.operands[1], 64),), type=int(space))  # fmt: skip


def cp_async(e: Encoder, i: Instruction) -> Row:
    """cp.async of single threads, its groups and waits."""
    m = Modifiers(i)
    m.take("async")
    if m.take("commit_group"):
        m.done()
        return Row("cp.async.commit_group")
    if m.take("wait_all"):
        m.done()
        return Row("cp.async.wait_group", imm=-1)
    if m.take("wait_group"):
        m.done()
        return Row("cp.async.wait_group", imm=constant_operand(i, 0))
    if m.take("mbarrier"):
        return _cp_async_arrive(e, i, m)
    return _cp_async_copy(e, i, m)


def _cp_async_arrive(e: Encoder, i: Instruction, m: Modifiers) -> Row:
    """cp.async.mbarrier.arrive{.noinc}.shared.b64 [mbarrier]."""
    known = m.last() == "b64" and m.take("arrive")
    does_not_count = m.take("noinc")
    m.take("shared", "shared::cta")
    m.done()
    if not known:
        raise fail(i, "this cp.async.mbarrier is not known")
    base, offset, wide = e.shared_address(i, i.operands[0])
    return Row("cp.async.mbarrier.arrive", src=(base,), imm=offset,
               type=int(wide) | does_not_count << 1)  # fmt: skip


def _cp_async_copy(e: Encoder, i: Instruction, m: Modifiers) -> Row:
    kind = m.choose({"ca": "ca", "cg": "cg"})
    shared, global_ = m.take("shared", "shared::cta"), m.take("global")
    m.ignore(CACHE_HINTS)
    has_policy = m.take("L2::cache_hint")
    m.done()
    size = constant_operand(i, 2)
    if kind is None or not (shared and global_):
        raise fail(i, "this cp.async is not known")
    if size not in ((16,) if kind == "cg" else (4, 8, 16)):
        raise fail(i, f"cp.async.{kind} of {size} bytes does not exist")
    base, offset, wide = e.shared_address(i, i.operands[0])
    from_base, from_offset, _ = e.address(i, i.operands[1])
    if from_base == NONE or from_offset != 0:
        raise fail(i, "cp.async reads from a register without an offset only")
    row = Row("cp.async", src=(base, from_base), imm=offset, width=size, type=int(wide))
    extra = i.operands[3 : len(i.operands) - has_policy]
    if extra and isinstance(extra[0], Register) and extra[0].type == "pred":
        row.psrc, row.flags = e.predicate(i, extra[0])
    elif extra:
        row.src = (base, from_base, e.src(i, extra[0], 32))
        row.flags = SOURCE_SIZE
    return row


def constant_operand(i: Instruction, index: int) -> int:
    """Operand `index` as an integer constant."""
    if index < len(i.operands):
        operand = i.operands[index]
        if isinstance(operand, Immediate):
            return operand.value
    raise fail(i, f"operand {index} must be a constant")


def matrix_move(e: Encoder, i: Instruction) -> Row:
    """ldmatrix and stmatrix, .m8n8 of 16-bit elements."""
    m = Modifiers(i)
    if m.last() != "b16" or not (m.take("sync") and m.take("aligned") and m.take("m8n8")):
        raise fail(i, "only .sync.aligned.m8n8...b16 is known")
    count = int(m.choose({"x1": "1", "x2": "2", "x4": "4"}) or 0)
    transposed = m.take("trans")
    m.take("shared", "shared::cta")
    m.done()
    is_load = i.opcode[0] == "ldmatrix"
    data, where = (i.operands[0], i.operands[1]) if is_load else (i.operands[1], i.operands[0])
    parts = registers_of(i, data)
    if len(parts) != count:
        raise fail(i, f"{count} registers are needed")
    base, offset, wide = e.shared_address(i, where)
    code = e.dst if is_load else e.src
    return Row(i.opcode[0], src=(base,), imm=offset, type=int(transposed) | wide << 1,
               items=tuple(code(i, part, 32) for part in parts), flags=ALIGNED,
               writes=count if is_load else 0)  # fmt: skip


ELEMENTS = {"bf16": 0, "f16": 1, "tf32": 2, "e4m3": 3, "e5m2": 4, "s8": 5, "u8": 6}
ACCUMULATORS = {"f32": 0, "f16": 1, "s32": 2}
SATURATES = 1 << 23  # of MmaShape: integers clamp instead of wrapping
ELEMENT_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


def check_types(i: Instruction, accumulator: str, a: str, b: str) -> None:
    """Raises unless hardware has a matrix product of these types."""
    integer = a in ("s8", "u8")
    small = a in ("e4m3", "e5m2")
    family = (integer and b in ("s8", "u8")) or (small and b in ("e4m3", "e5m2")) or a == b
    good = {
        "s32": integer,
        "f32": not integer,
        "f16": a == "f16" or small,
    }.get(accumulator, False)
    if a not in ELEMENTS or b not in ELEMENTS or not family or not good:
        raise fail(i, f"no matrix product of .{a} and .{b} into .{accumulator}")


def shape_code(accumulator: str, a: str, b: str, k: int, n: int) -> int:
    """MmaShape of csrc/ptx/fragments.h as an integer."""
    return ELEMENTS[a] | ELEMENTS[b] << 3 | ACCUMULATORS[accumulator] << 6 | k << 8 | n // 8 << 14


def mma(e: Encoder, i: Instruction) -> Row:
    """mma.sync.aligned.m16n8kK.row.col.D.A.B.C."""
    m = Modifiers(i)
    types = [m.last() for _ in range(4)][::-1]
    d, a, b, c = types
    fixed = m.take("sync") and m.take("aligned") and m.take("row") and m.take("col")
    shape = next((w for w in m.left if w.startswith("m16n8k")), None)
    if not fixed or shape is None or d != c:
        raise fail(i, "this mma is not known")
    m.take(shape)
    saturates = m.take("satfinite")
    m.done()
    check_types(i, d, a, b)
    if saturates and d != "s32":
        raise fail(i, ".satfinite is for integers")
    k = int(shape.removeprefix("m16n8k"))
    row_bytes = k * ELEMENT_BYTES[a]
    if row_bytes not in (16, 32):
        raise fail(i, f"k{k} does not exist for .{a}")
    counts = (4 if d != "f16" else 2, row_bytes // 8, row_bytes // 16, 4 if d != "f16" else 2)
    items: list[int] = []
    for index, (operand, count) in enumerate(zip(i.operands, counts, strict=True)):
        parts = operand.parts if isinstance(operand, Vector) else (operand,)
        if len(parts) != count:
            raise fail(i, f"operand {index} needs {count} registers")
        items += [(e.dst if index == 0 else e.src)(i, part, 32) for part in parts]
    return Row("mma.sync", items=tuple(items), writes=counts[0], flags=ALIGNED,
               type=shape_code(d, a, b, k, 8) | saturates * SATURATES)  # fmt: skip


def policy(e: Encoder, i: Instruction) -> Row:
    """createpolicy: a cache policy is a number that nobody looks at."""
    return Row("mov.b64", dst=e.dst(i, i.operands[0], 64), src=(e.constant(0, 64),))


MEMORY_RULES = {
    **dict.fromkeys(("ld", "ldu", "st"), load_store),
    **dict.fromkeys(("atom", "red"), atomic),
    **dict.fromkeys(("ldmatrix", "stmatrix"), matrix_move),
    "cvta": cvta,
    "isspacep": isspacep,
    "mma": mma,
    "createpolicy": policy,
}

__all__ = ["MEMORY_RULES", "Address", "Symbol", "check_types", "constant_operand", "cp_async",
           "shape_code"]  # fmt: skip
