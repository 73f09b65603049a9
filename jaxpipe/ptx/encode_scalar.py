"""Encoding rules of everything that works lane by lane on registers.

One function a family of opcodes: (encoder, instruction) -> Row. A modifier or a type that a rule
does not list is an error with line and text, never a guess.
"""

from __future__ import annotations

from jaxpipe.ptx.encoder import (
    PSRC_NEGATED,
    Encoder,
    Modifiers,
    Row,
    bits_of,
    fail,
    registers_of,
)
from jaxpipe.ptx.nodes import Instruction, Pair, Register, Special, Vector

INTEGERS = frozenset(f"{kind}{bits}" for kind in "usb" for bits in (16, 32, 64))
HALVES = {"f16": 0, "bf16": 1, "f16x2": 2, "bf16x2": 3}
SAME_BITS = frozenset({"b", "u", "s", "f"})

# Opcodes whose operation does not depend on the sign: name -> widths.
_UNSIGNED = {"add": (16, 32, 64), "sub": (16, 32, 64), "and": (16, 32, 64), "or": (16, 32, 64),
             "xor": (16, 32, 64), "not": (16, 32, 64), "cnot": (32,), "shl": (16, 32, 64),
             "bfi": (32, 64), "brev": (32,), "popc": (32, 64), "clz": (32, 64)}  # fmt: skip
# Opcodes whose operation does: name -> types.
_SIGNED = {
    "div": "u16 s16 u32 s32 u64 s64", "rem": "u16 s16 u32 s32 u64 s64",
    "min": "u16 s16 u32 s32 u64 s64", "max": "u16 s16 u32 s32 u64 s64",
    "abs": "s16 s32 s64", "neg": "s16 s32 s64", "shr": "u16 s16 u32 s32 u64 s64",
    "bfe": "u32 s32 u64 s64",
}  # fmt: skip
_FLOAT_ROUNDED = frozenset({"add", "sub", "mul", "fma", "div", "rcp", "sqrt"})
_APPROXIMATE = frozenset({"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div"})
_DOUBLE = frozenset({"add", "sub", "mul", "fma", "div", "min", "max", "abs", "neg", "rcp", "sqrt"})
_HALF = {"add": "half.add", "sub": "half.sub", "mul": "half.mul", "fma": "half.fma",
         "min": "half.min", "max": "half.max", "abs": "half.abs", "neg": "half.neg",
         "ex2": "half.ex2", "tanh": "half.tanh"}  # fmt: skip


def _sources(e: Encoder, i: Instruction, bits: int) -> tuple[int, ...]:
    return tuple(e.src(i, operand, bits) for operand in i.operands[1:])


def _plain(e: Encoder, i: Instruction, op: str, bits: int) -> Row:
    return Row(op, dst=e.dst(i, i.operands[0], bits), src=_sources(e, i, bits))


def arithmetic(e: Encoder, i: Instruction) -> Row:
    """add, sub, mul, mad, fma, div, rem, min, max, abs, neg and the elementary functions."""
    m = Modifiers(i)
    type_ = m.last()
    if type_ == "f32":
        return _float32(e, i, m)
    if type_ == "f64":
        return _float64(e, i, m)
    if type_ in HALVES:
        return _half(e, i, m, type_)
    if type_ not in INTEGERS:
        raise fail(i, f"unknown type .{type_}")
    return _integer(e, i, m, type_)


def _integer(e: Encoder, i: Instruction, m: Modifiers, type_: str) -> Row:
    name, bits = i.opcode[0], bits_of(type_)
    if name in ("mul", "mad"):
        return _multiply(e, i, m, type_)
    if m.take("relu"):
        m.done()
        if name not in ("min", "max") or type_ != "s32":
            raise fail(i, ".relu is known for s32 min and max only")
        return _plain(e, i, f"{name}.relu.s32", 32)
    m.done()
    if bits in _UNSIGNED.get(name, ()):
        # 16-bit values are zero-extended, so the 32-bit logic serves them too.
        width = 32 if bits == 16 and name in ("and", "or", "xor") else bits
        return _plain(e, i, f"{name}.b{width}", bits)
    if type_ in _SIGNED.get(name, "").split():
        return _plain(e, i, f"{name}.{type_}", bits)
    raise fail(i, f"no {name} of type .{type_}")


def _multiply(e: Encoder, i: Instruction, m: Modifiers, type_: str) -> Row:
    name, bits = i.opcode[0], bits_of(type_)
    part = m.choose({"lo": "lo", "hi": "hi", "wide": "wide"})
    m.done()
    if part == "lo":
        return _plain(e, i, f"{name}.lo.b{bits}", bits)
    if part == "hi" and (bits == 32 or (bits == 64 and name == "mul")):
        return _plain(e, i, f"{name}.hi.{type_}", bits)
    if part == "wide" and (bits == 32 or (bits == 16 and name == "mul")):
        narrow = tuple(e.src(i, operand, bits) for operand in i.operands[1:3])
        added = tuple(e.src(i, operand, 2 * bits) for operand in i.operands[3:])
        return Row(f"{name}.wide.{type_}", dst=e.dst(i, i.operands[0], 2 * bits),
                   src=narrow + added)  # fmt: skip
    raise fail(i, "this multiplication is not known")


def _float32(e: Encoder, i: Instruction, m: Modifiers) -> Row:
    name = "fma" if i.opcode[0] == "mad" else i.opcode[0]
    ftz = m.take("ftz")
    if name in _FLOAT_ROUNDED:
        m.take("rn")
    if name in _APPROXIMATE:
        m.take("approx", "full")
    if name in ("min", "max") and m.take("NaN"):
        m.done()
        if ftz:
            raise fail(i, ".ftz with .NaN is not known")
        return _plain(e, i, f"{name}.nan.f32", 32)
    m.done()
    if name == "tanh":
        return _plain(e, i, "tanh.f32", 32)
    return _plain(e, i, f"{name}.ftz.f32" if ftz else f"{name}.f32", 32)


def _float64(e: Encoder, i: Instruction, m: Modifiers) -> Row:
    m.take("rn")
    m.done()
    if i.opcode[0] not in _DOUBLE:
        raise fail(i, "not known for .f64")
    return _plain(e, i, f"{i.opcode[0]}.f64", 64)


def _half(e: Encoder, i: Instruction, m: Modifiers, type_: str) -> Row:
    name = i.opcode[0]
    m.take("rn", "approx")
    suffix = ""
    if name in ("min", "max") and m.take("NaN"):
        suffix = ".nan"
    if name == "fma" and m.take("relu"):
        suffix = ".relu"
    if name == "ex2" and type_.startswith("bf16"):
        m.take("ftz")  # the only form that bf16 has
    m.done()
    if name not in _HALF:
        raise fail(i, f"not known for .{type_}")
    row = _plain(e, i, _HALF[name] + suffix, bits_of(type_))
    row.type = HALVES[type_]
    return row


def logic(e: Encoder, i: Instruction) -> Row:
    """and, or, xor, not, on registers and predicates."""
    if i.opcode[-1] != "pred":
        return arithmetic(e, i)
    slot, flags = e.predicate(i, i.operands[1])
    row = Row(f"{i.opcode[0]}.pred", pdst=(e.predicate_dst(i, i.operands[0]),), psrc=slot,
              flags=flags)  # fmt: skip
    if len(i.operands) > 2:
        second, negated = e.predicate(i, i.operands[2])
        if negated:
            raise fail(i, "a negated second predicate is not known")
        row.imm = second
    return row


def copysign(e: Encoder, i: Instruction) -> Row:
    """copysign.f32."""
    if i.opcode[1:] != ("f32",):
        raise fail(i, "only copysign.f32 is known")
    return _plain(e, i, "copysign.f32", 32)


def shift(e: Encoder, i: Instruction) -> Row:
    """shl, shr: the amount has 32 bits."""
    m = Modifiers(i)
    type_ = m.last()
    m.done()
    bits = bits_of(type_)
    name = i.opcode[0]
    if type_ not in INTEGERS:
        raise fail(i, f"unknown type .{type_}")
    signed = "s" if type_[0] == "s" else "u"
    op = f"shl.b{bits}" if name == "shl" else f"shr.{signed}{bits}"
    value, amount = i.operands[1], i.operands[2]
    return Row(op, dst=e.dst(i, i.operands[0], bits),
               src=(e.src(i, value, bits), e.src(i, amount, 32)))  # fmt: skip


def funnel_shift(e: Encoder, i: Instruction) -> Row:
    """shf.l, shf.r with .wrap or .clamp."""
    if len(i.opcode) != 4 or i.opcode[3] != "b32":
        raise fail(i, "this shf is not known")
    return _plain(e, i, ".".join(i.opcode), 32)


def bit_field(e: Encoder, i: Instruction) -> Row:
    """bfe and bfi: position and length have 32 bits."""
    m = Modifiers(i)
    type_ = m.last()
    m.done()
    bits = bits_of(type_)
    fields = 1 if i.opcode[0] == "bfe" else 2
    op = f"bfe.{type_}" if fields == 1 else f"bfi.b{bits}"
    values = tuple(e.src(i, o, bits) for o in i.operands[1 : 1 + fields])
    places = tuple(e.src(i, o, 32) for o in i.operands[1 + fields :])
    return Row(op, dst=e.dst(i, i.operands[0], bits), src=values + places)


def bit_count(e: Encoder, i: Instruction) -> Row:
    """popc, clz, brev, bfind: the result has 32 bits (brev: as many as the operand)."""
    m = Modifiers(i)
    type_ = m.last()
    name = i.opcode[0]
    if name == "bfind":
        suffix = ".shiftamt.u32" if m.take("shiftamt") else ".u32"
        m.done()
        if type_ != "u32":
            raise fail(i, "only bfind of u32 is known")
        return _plain(e, i, f"bfind{suffix}", 32)
    m.done()
    bits = bits_of(type_)
    if bits not in _UNSIGNED[name]:
        raise fail(i, f"unknown type .{type_}")
    return Row(f"{name}.b{bits}", dst=e.dst(i, i.operands[0], 32), src=_sources(e, i, bits))


def permute(e: Encoder, i: Instruction) -> Row:
    """prmt.b32 without a mode."""
    if i.opcode[1:] != ("b32",):
        raise fail(i, "only prmt.b32 is known")
    return _plain(e, i, "prmt.b32", 32)


def lop3(e: Encoder, i: Instruction) -> Row:
    """lop3.b32 with a constant truth table."""
    if i.opcode[1:] != ("b32",):
        raise fail(i, "only lop3.b32 is known")
    sources = tuple(e.src(i, operand, 32) for operand in i.operands[1:4])
    return Row("lop3.b32", dst=e.dst(i, i.operands[0], 32), src=sources, imm=_immediate(i, 4))


def dot_product(e: Encoder, i: Instruction) -> Row:
    """dp4a and dp2a: sums of products of packed bytes and halves."""
    m = Modifiers(i)
    types = {m.last(), m.last()}
    if i.opcode[0] == "dp2a" and not m.take("lo", "hi"):
        raise fail(i, "dp2a needs .lo or .hi")
    m.done()
    if not types <= {"s32", "u32"}:
        raise fail(i, "the operands are .s32 or .u32")
    return _plain(e, i, ".".join(i.opcode), 32)


def _immediate(i: Instruction, index: int) -> int:
    value = getattr(i.operands[index], "value", None)
    if not isinstance(value, int):
        raise fail(i, f"operand {index} must be a constant")
    return value


_CLOCKS = {"clock": 4, "clock64": 8, "globaltimer": 8}


def mov(e: Encoder, i: Instruction) -> Row:
    """mov between registers, of constants and addresses; packing and unpacking of vectors."""
    m = Modifiers(i)
    type_ = m.last()
    m.done()
    to, what = i.operands
    if type_ == "pred":
        slot, flags = e.predicate(i, what)
        return Row("mov.pred", pdst=(e.predicate_dst(i, to),), psrc=slot, flags=flags)
    bits = bits_of(type_)
    if bits not in (16, 32, 64):
        raise fail(i, f"unknown type .{type_}")
    if isinstance(what, Special) and what.name in _CLOCKS:
        return Row("clock", dst=e.dst(i, to, bits), width=_CLOCKS[what.name])
    if isinstance(to, Vector):
        items = tuple(e.dst(i, part, bits // len(to.parts)) for part in to.parts)
        return Row("unpack", src=(e.src(i, what, bits),), items=items, writes=len(items),
                   width=bits // len(items) // 8)  # fmt: skip
    if isinstance(what, Vector):
        part_bits = bits // len(what.parts)
        items = tuple(e.src(i, part, part_bits) for part in what.parts)
        return Row("pack", dst=e.dst(i, to, bits), items=items, width=part_bits // 8)
    return Row("mov.b64" if bits == 64 else "mov.b32", dst=e.dst(i, to, bits),
               src=(e.src(i, what, bits),))  # fmt: skip


_COMPARE = {name: index for index, name in enumerate(
    ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
)}  # fmt: skip
_COMPARE_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_NUMBER = {name: index for index, name in enumerate(
    ("u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16")
)}  # fmt: skip
_FTZ_NUMBER = 10
_COMBINE = {"and": 1, "or": 2, "xor": 3}


def setp(e: Encoder, i: Instruction) -> Row:
    """setp.compare{.combination}{.ftz}.type p|q, a, b{, c}."""
    m = Modifiers(i)
    type_ = m.last()
    number = _NUMBER.get(type_.replace("b", "u", 1) if type_ in ("b16", "b32", "b64") else type_)
    compare = m.choose({name: name for name in (*_COMPARE, *_COMPARE_UNSIGNED)})
    combine = m.choose({name: name for name in _COMBINE})
    if m.take("ftz") and type_ == "f32":
        number = _FTZ_NUMBER
    m.done()
    if number is None or compare is None:
        raise fail(i, "this comparison is not known")
    index = _COMPARE[_COMPARE_UNSIGNED.get(compare, compare)]
    to = i.operands[0]
    results = (to.first, to.second) if isinstance(to, Pair) else (to,)
    bits = bits_of(type_)
    row = Row("setp", pdst=tuple(e.predicate_dst(i, r) for r in results),
              src=(e.src(i, i.operands[1], bits), e.src(i, i.operands[2], bits)),
              type=index | number << 4 | (_COMBINE[combine] if combine else 0) << 8)  # fmt: skip
    if combine:
        row.psrc, row.flags = e.predicate(i, i.operands[3])
    return row


def selp(e: Encoder, i: Instruction) -> Row:
    """selp.type d, a, b, p."""
    m = Modifiers(i)
    bits = bits_of(m.last())
    m.done()
    slot, flags = e.predicate(i, i.operands[3])
    return Row("selp.b64" if bits == 64 else "selp.b32", dst=e.dst(i, i.operands[0], bits),
               src=(e.src(i, i.operands[1], bits), e.src(i, i.operands[2], bits)),
               psrc=slot, flags=flags & PSRC_NEGATED)  # fmt: skip


def testp(e: Encoder, i: Instruction) -> Row:
    """testp.{notanumber, infinite, finite}.f32."""
    if i.opcode[1:] not in (("notanumber", "f32"), ("infinite", "f32"), ("finite", "f32")):
        raise fail(i, "this testp is not known")
    return Row(".".join(i.opcode), pdst=(e.predicate_dst(i, i.operands[0]),),
               src=(e.src(i, i.operands[1], 32),))  # fmt: skip


def nop(e: Encoder, i: Instruction) -> Row:
    """Instructions that change no result: hints, sleeps, launch control."""
    return Row("nop")


def is_predicate(operand: object) -> bool:
    """Whether an operand is a predicate register."""
    return isinstance(operand, Register) and operand.type == "pred"


SCALAR_RULES = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "abs", "neg",
                     "cnot", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"),
                    arithmetic),
    **dict.fromkeys(("and", "or", "xor", "not"), logic),
    **dict.fromkeys(("shl", "shr"), shift),
    **dict.fromkeys(("bfe", "bfi"), bit_field),
    **dict.fromkeys(("popc", "clz", "brev", "bfind"), bit_count),
    "shf": funnel_shift,
    "prmt": permute,
    "lop3": lop3,
    **dict.fromkeys(("dp4a", "dp2a"), dot_product),
    "copysign": copysign,
    "mov": mov,
    "setp": setp,
    "selp": selp,
    "testp": testp,
}  # fmt: skip

__all__ = ["HALVES", "SCALAR_RULES", "is_predicate", "nop", "registers_of"]
