"""Encoding rules of cvt: which pairs of types are known, and with which rounding."""

from __future__ import annotations

from jaxpipe.ptx.encoder import Encoder, Modifiers, Row, bits_of, fail
from jaxpipe.ptx.nodes import Immediate, Instruction, Register

_ROUNDING = {"rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}
_INTEGER = frozenset(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))

# (to, from) -> operation, its roundings, how many sources.
_FLOAT_PAIRS: dict[tuple[str, str], tuple[str, frozenset[str], int]] = {
    ("f64", "f32"): ("cvt.f64.f32", frozenset({""}), 1),
    ("f32", "f64"): ("cvt.f32.f64", frozenset({"rn"}), 1),
    ("f32", "f16"): ("cvt.f32.f16", frozenset({""}), 1),
    ("f32", "bf16"): ("cvt.f32.bf16", frozenset({""}), 1),
    ("f16", "f32"): ("cvt.f16.f32", frozenset({"rn"}), 1),
    ("bf16", "f32"): ("cvt.bf16.f32", frozenset({"rn"}), 1),
    ("tf32", "f32"): ("cvt.rna.tf32.f32", frozenset({"rna"}), 1),
    ("f16x2", "f32"): ("cvt.f16x2.f32", frozenset({"rn"}), 2),
    ("bf16x2", "f32"): ("cvt.bf16x2.f32", frozenset({"rn"}), 2),
    ("e4m3x2", "f32"): ("cvt.e4m3x2.f32", frozenset({"rn"}), 2),
    ("e5m2x2", "f32"): ("cvt.e5m2x2.f32", frozenset({"rn"}), 2),
    ("f16x2", "e4m3x2"): ("cvt.f16x2.e4m3x2", frozenset({"rn"}), 1),
    ("f16x2", "e5m2x2"): ("cvt.f16x2.e5m2x2", frozenset({"rn"}), 1),
}
_SATFINITE = frozenset({"e4m3x2", "e5m2x2"})


def convert(e: Encoder, i: Instruction) -> Row:
    """cvt{.rounding}{.ftz}{.sat}.to.from."""
    m = Modifiers(i)
    from_, to = m.last(), m.last()
    if to in _INTEGER and from_ in _INTEGER:
        return _between_integers(e, i, m, to, from_)
    if to in _INTEGER and from_ in ("f32", "f64"):
        return _to_integer(e, i, m, to, from_)
    if to in ("f32", "f64") and from_ in _INTEGER:
        return _from_integer(e, i, m, to, from_)
    if to == from_ and to in ("f32", "f64"):
        return _round(e, i, m, to)
    if (to, from_) in _FLOAT_PAIRS:
        return _between_floats(e, i, m, to, from_)
    raise fail(i, f"no conversion from .{from_} to .{to} is known")


def _code(to: str, from_: str, saturate: bool, rounding: int = 0) -> int:
    return (
        bits_of(from_) // 8
        | (from_[0] == "s") << 4
        | bits_of(to) // 8 << 8
        | (to[0] == "s") << 12
        | saturate << 16
        | rounding << 20
    )


def _register_bits(i: Instruction, index: int, type_: str) -> int:
    """Width of the register at an operand: it may be wider than a type of 8 bits."""
    operand = i.operands[index]
    if isinstance(operand, Register):
        return bits_of(operand.type)
    if isinstance(operand, Immediate):
        return max(bits_of(type_), 32)
    raise fail(i, f"{operand} cannot be converted")


def _integer_result(e: Encoder, i: Instruction, op: str, source: int, code: int, to: str) -> Row:
    register_bits = _register_bits(i, 0, to)
    if register_bits < bits_of(to):
        raise fail(i, f"the destination has {register_bits} bits")
    return Row(op, dst=e.dst(i, i.operands[0], register_bits), src=(source,), type=code,
               width=register_bits // 8)  # fmt: skip


def _between_integers(e: Encoder, i: Instruction, m: Modifiers, to: str, from_: str) -> Row:
    saturate = m.take("sat")
    m.done()
    register_bits = _register_bits(i, 1, from_)
    if (register_bits > 32) != (bits_of(from_) > 32):
        raise fail(i, f"the source has {register_bits} bits")
    source = e.src(i, i.operands[1], register_bits)
    return _integer_result(e, i, "cvt.int", source, _code(to, from_, saturate), to)


def _to_integer(e: Encoder, i: Instruction, m: Modifiers, to: str, from_: str) -> Row:
    rounding = m.choose({name: name for name in _ROUNDING})
    m.take("ftz")  # rounding to an integer makes a subnormal 0, or 1 upwards: rpi is refused below
    m.take("sat")  # integers saturate anyway
    m.done()
    if rounding is None:
        raise fail(i, "a conversion to an integer needs its rounding")
    code = _code(to, from_, False, _ROUNDING[rounding])
    source = e.src(i, i.operands[1], bits_of(from_))
    return _integer_result(e, i, "cvt.float.int", source, code, to)


def _from_integer(e: Encoder, i: Instruction, m: Modifiers, to: str, from_: str) -> Row:
    if not m.take("rn"):
        raise fail(i, "only .rn is known from an integer to a float")
    m.done()
    register_bits = _register_bits(i, 1, from_)
    source = e.src(i, i.operands[1], register_bits)
    return Row("cvt.int.float", dst=e.dst(i, i.operands[0], bits_of(to)), src=(source,),
               type=_code(to, from_, False))  # fmt: skip


def _round(e: Encoder, i: Instruction, m: Modifiers, type_: str) -> Row:
    bits = bits_of(type_)
    registers = {"dst": e.dst(i, i.operands[0], bits), "source": e.src(i, i.operands[1], bits)}
    ftz, saturate = m.take("ftz"), m.take("sat")
    rounding = m.choose({name: name for name in _ROUNDING})
    m.done()
    if rounding is not None and not saturate:
        op = f"cvt.round.{type_}"
    elif saturate and rounding is None and type_ == "f32":
        op = "cvt.sat.f32"
    elif ftz and type_ == "f32":
        op = "cvt.ftz.f32"
    else:
        raise fail(i, "this rounding is not known")
    code = _ROUNDING[rounding] if rounding else 0
    return Row(op, dst=registers["dst"], src=(registers["source"],), type=code)


def _between_floats(e: Encoder, i: Instruction, m: Modifiers, to: str, from_: str) -> Row:
    op, roundings, sources = _FLOAT_PAIRS[to, from_]
    rounding = m.choose({"rn": "rn", "rna": "rna", "rz": "rz"}) or ""
    if to == "tf32" and rounding == "rn":
        op, rounding = "cvt.rn.tf32.f32", "rna"
    if to in _SATFINITE and not m.take("satfinite"):
        raise fail(i, "only .satfinite is known here")
    m.done()
    if rounding not in roundings:
        raise fail(i, f"rounding .{rounding} is not known here" if rounding else "rounding missing")
    to_bits = 16 if to in _SATFINITE else bits_of(to)
    from_bits = 16 if from_ in _SATFINITE else bits_of(from_)
    if len(i.operands) != 1 + sources:
        raise fail(i, f"{sources} sources are needed")
    return Row(op, dst=e.dst(i, i.operands[0], to_bits),
               src=tuple(e.src(i, o, from_bits) for o in i.operands[1:]))  # fmt: skip
