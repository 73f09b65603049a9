"""Encoding rules of the asynchronous machinery: cp.async, bulk copies, mbarriers, wgmma, maps."""

from __future__ import annotations

from jaxpipe.ptx.encode_memory import (
    CACHE_HINTS,
    ELEMENT_BYTES,
    SATURATES,
    SPACES,
    check_types,
    constant_operand,
    cp_async,
    shape_code,
)
from jaxpipe.ptx.encoder import ALIGNED, NONE, Encoder, Modifiers, Row, bits_of, fail, registers_of
from jaxpipe.ptx.nodes import Address, Instruction, Operand, Sink, Vector

# Bits of Instruction::type of bulk copies (csrc/ptx/bulk.cc).
_WIDE_FIRST, _WIDE_THIRD, _MULTICAST, _REDUCE_ADD = 1, 4, 8, 16
# Of mbarrier.arrive and its kind, and of the waits (csrc/ptx/mbarrier.cc).
_EXPECT_TX, _DROP, _NO_ARRIVE, _COMPLETE_TX = 2, 4, 8, 16
_PARITY = 2


def copy(e: Encoder, i: Instruction) -> Row:
    """cp: cp.async, cp.async.bulk, cp.reduce.async.bulk."""
    if "bulk" in i.opcode:
        return _bulk(e, i)
    return cp_async(e, i)


def _bulk(e: Encoder, i: Instruction) -> Row:
    m = Modifiers(i)
    reduce = m.take("reduce")
    m.take("async")
    m.take("bulk")
    if m.take("commit_group"):
        m.done()
        return Row("bulk.commit_group")
    if m.take("wait_group"):
        m.take("read")
        m.done()
        return Row("bulk.wait_group", imm=constant_operand(i, 0))
    if m.take("prefetch"):
        return Row("nop")
    m.ignore(CACHE_HINTS)
    has_policy = m.take("L2::cache_hint")
    operands = i.operands[: len(i.operands) - has_policy]
    if m.take("bulk_group"):
        return _bulk_store(e, i, m, operands, reduce)
    if reduce or not m.take("mbarrier::complete_tx::bytes"):
        raise fail(i, "this bulk copy is not known")
    return _bulk_load(e, i, m, operands)


def _rank(i: Instruction, m: Modifiers) -> int:
    rank = int(m.choose({f"{r}d": str(r) for r in range(1, 6)}) or 0)
    m.take("tile")
    if not rank:
        raise fail(i, "the rank of the tensor is missing")
    return rank


def _coordinates(e: Encoder, i: Instruction, operand: Operand, rank: int) -> tuple[int, ...]:
    """The coordinates of `[map, {x, y, ...}]`."""
    if isinstance(operand, Address) and operand.rest and isinstance(operand.rest[0], Vector):
        parts = operand.rest[0].parts
        if len(parts) == rank:
            return tuple(e.src(i, part, 32) for part in parts)
    raise fail(i, f"{rank} coordinates are needed")


def _map_address(e: Encoder, i: Instruction, operand: Operand) -> int:
    base, offset, wide = e.address(i, operand)
    if base == NONE or offset or not wide:
        raise fail(i, "the tensor map must be in a 64-bit register")
    return base


def _bulk_load(e: Encoder, i: Instruction, m: Modifiers, operands: tuple[Operand, ...]) -> Row:
    is_tensor = m.take("tensor")
    rank = _rank(i, m) if is_tensor else 0
    from_global = m.take("global")
    to_shared = m.take("shared::cluster", "shared::cta")
    multicast = m.take("multicast::cluster")
    m.done()
    if not (from_global and to_shared):
        raise fail(i, "only copies from global to shared memory are known")
    base, offset, wide = e.shared_address(i, operands[0])
    barrier_at = operands[2 if is_tensor else 3]
    barrier, barrier_offset, barrier_wide = e.shared_address(i, barrier_at)
    if barrier_offset:
        raise fail(i, "an offset at the mbarrier is not known")
    kind = wide * _WIDE_FIRST | barrier_wide * _WIDE_THIRD | multicast * _MULTICAST
    mask = (e.src(i, operands[-1], 32),) if multicast else ()
    if is_tensor:
        source, items = _map_address(e, i, operands[1]), _coordinates(e, i, operands[1], rank)
    else:
        source, items = _flat_source(e, i, operands[1]), (e.src(i, operands[2], 32),)
    return Row("tma.load" if is_tensor else "bulk.load", src=(base, source, barrier, *mask),
               imm=offset, type=kind, items=items)  # fmt: skip


def _flat_source(e: Encoder, i: Instruction, operand: Operand) -> int:
    base, offset, wide = e.address(i, operand)
    if base == NONE or offset or not wide:
        raise fail(i, "the global address must be in a 64-bit register")
    return base


def _bulk_store(
    e: Encoder, i: Instruction, m: Modifiers, operands: tuple[Operand, ...], reduce: bool
) -> Row:
    is_tensor = m.take("tensor")
    rank = _rank(i, m) if is_tensor else 0
    if reduce and not m.take("add"):
        raise fail(i, "only .add is known")
    good = m.take("global") and m.take("shared::cta")
    m.done()
    if not good or (reduce and not is_tensor):
        raise fail(i, "only stores from shared to global memory are known")
    base, offset, wide = e.shared_address(i, operands[1])
    kind = wide * _WIDE_FIRST | reduce * _REDUCE_ADD
    if is_tensor:
        target, items = _map_address(e, i, operands[0]), _coordinates(e, i, operands[0], rank)
    else:
        target, items = _flat_source(e, i, operands[0]), (e.src(i, operands[2], 32),)
    return Row("tma.store" if is_tensor else "bulk.store", src=(base, target), imm=offset,
               type=kind, items=items)  # fmt: skip


_MBARRIER_SCOPES = ("release", "acquire", "relaxed", "cta", "cluster", "shared", "shared::cta",
                    "shared::cluster")  # fmt: skip


def mbarrier(e: Encoder, i: Instruction) -> Row:
    """All of mbarrier."""
    m = Modifiers(i)
    if m.last() != "b64":
        raise fail(i, "the type must be .b64")
    m.ignore(_MBARRIER_SCOPES)
    kind = m.choose({k: k for k in ("init", "inval", "arrive", "arrive_drop", "expect_tx",
                                    "complete_tx", "test_wait", "try_wait")
                     if k == i.opcode[1]})  # fmt: skip
    match kind:
        case "init":
            m.done()
            base, offset, wide = e.shared_address(i, i.operands[0])
            count = e.src(i, i.operands[1], 32)
            return Row("mbarrier.init", src=(base, count), imm=offset, type=int(wide))
        case "inval":
            m.done()
            base, offset, wide = e.shared_address(i, i.operands[0])
            return Row("mbarrier.inval", src=(base,), imm=offset, type=int(wide))
        case "arrive" | "arrive_drop":
            return _arrive(e, i, m, _DROP if kind == "arrive_drop" else 0)
        case "expect_tx" | "complete_tx":
            m.done()
            base, offset, wide = e.shared_address(i, i.operands[0])
            code = _NO_ARRIVE | (_EXPECT_TX if kind == "expect_tx" else _COMPLETE_TX)
            return Row("mbarrier.arrive", src=(base, e.src(i, i.operands[1], 32)), imm=offset,
                       type=int(wide) | code)  # fmt: skip
        case "test_wait" | "try_wait":
            return _wait(e, i, m)
        case _:
            raise fail(i, "this mbarrier instruction is not known")


def _arrive(e: Encoder, i: Instruction, m: Modifiers, code: int) -> Row:
    expects = m.take("expect_tx")
    m.done()
    token, rest = NONE, i.operands
    if not isinstance(rest[0], Address):
        token = NONE if isinstance(rest[0], Sink) else e.dst(i, rest[0], 64)
        rest = rest[1:]
    base, offset, wide = e.shared_address(i, rest[0])
    source = (base, e.src(i, rest[1], 32)) if len(rest) > 1 else (base,)
    return Row("mbarrier.arrive", dst=token, src=source, imm=offset,
               type=int(wide) | code | expects * _EXPECT_TX)  # fmt: skip


def _wait(e: Encoder, i: Instruction, m: Modifiers) -> Row:
    parity = m.take("parity")
    m.done()
    base, offset, wide = e.shared_address(i, i.operands[1])
    phase = e.src(i, i.operands[2], 32 if parity else 64)
    return Row("mbarrier.wait", pdst=(e.predicate_dst(i, i.operands[0]),), src=(base, phase),
               imm=offset, type=int(wide) | parity * _PARITY)  # fmt: skip


_A_TRANSPOSED, _B_TRANSPOSED, _A_REGISTERS = 1 << 20, 1 << 21, 1 << 22


def wgmma(e: Encoder, i: Instruction) -> Row:
    """wgmma: products, fence, commit_group, wait_group."""
    m = Modifiers(i)
    kind = m.choose({k: k for k in ("fence", "commit_group", "wait_group", "mma_async")})
    if kind is None or not (m.take("sync") and m.take("aligned")):
        raise fail(i, "this wgmma is not known")
    if kind != "mma_async":
        m.done()
        imm = constant_operand(i, 0) if kind == "wait_group" else 0
        return Row(f"wgmma.{kind}", imm=imm, flags=ALIGNED)
    return _wgmma_product(e, i, m)


def _wgmma_product(e: Encoder, i: Instruction, m: Modifiers) -> Row:
    b_type, a_type, d_type = m.last(), m.last(), m.last()
    shape = next((w for w in m.left if w.startswith("m64n")), "")
    m.take(shape)
    saturates = m.take("satfinite")
    m.done()
    check_types(i, d_type, a_type, b_type)
    if saturates and d_type != "s32":
        raise fail(i, ".satfinite is for integers")
    n, k = (int(word) for word in shape.removeprefix("m64n").split("k"))
    if k * ELEMENT_BYTES[a_type] != 32 or n % 8 or not 8 <= n <= 256:
        raise fail(i, f"shape {shape} does not exist for .{a_type}")
    d, a, b, scale, *rest = i.operands
    in_registers = isinstance(a, Vector)
    items = [e.dst(i, part, 32) for part in registers_of(i, d)]
    writes = len(items)
    if writes != n // (4 if d_type == "f16" else 2):
        raise fail(i, f"{n // (4 if d_type == 'f16' else 2)} accumulator registers are needed")
    if isinstance(a, Vector):
        items += [e.src(i, part, 32) for part in a.parts]
    slot, flags = e.predicate(i, scale)
    code = shape_code(d_type, a_type, b_type, k, n) | in_registers * _A_REGISTERS
    code |= saturates * SATURATES
    code |= _wgmma_majors(i, rest, a_type, in_registers)
    return Row("wgmma.mma_async", type=code, psrc=slot, flags=flags | ALIGNED, writes=writes,
               src=(NONE if in_registers else e.src(i, a, 64), e.src(i, b, 64)),
               items=tuple(items))  # fmt: skip


def _wgmma_majors(i: Instruction, rest: list[Operand], a_type: str, in_registers: bool) -> int:
    """The immediates after the scale: signs of A and B (not for integers), then the majors."""
    values = [constant_operand(i, len(i.operands) - len(rest) + k) for k in range(len(rest))]
    if a_type in ("s8", "u8"):
        expected = 0
    elif a_type in ("f16", "bf16"):
        expected = 3 if in_registers else 4
    else:
        expected = 2
    if len(values) != expected:
        raise fail(i, f"{expected} immediates are needed after the scale")
    if any(sign != 1 for sign in values[:2]):
        raise fail(i, "negated operands are not known")
    majors = values[2:]
    transposed = majors if not in_registers else [0, *majors]
    code = 0
    if len(transposed) == 2:
        code = transposed[0] * _A_TRANSPOSED | transposed[1] * _B_TRANSPOSED
    return code


def mapa(e: Encoder, i: Instruction) -> Row:
    """mapa: a shared address in another block of the cluster."""
    m = Modifiers(i)
    bits = bits_of(m.last())
    m.take("shared::cluster")
    m.done()
    return Row("mapa", dst=e.dst(i, i.operands[0], bits), width=bits // 8,
               src=(e.src(i, i.operands[1], bits), e.src(i, i.operands[2], 32)))  # fmt: skip


def cta_rank(e: Encoder, i: Instruction) -> Row:
    """getctarank."""
    m = Modifiers(i)
    bits = bits_of(m.last())
    m.take("shared::cluster")
    m.done()
    return Row("getctarank", dst=e.dst(i, i.operands[0], 32), width=bits // 8,
               src=(e.src(i, i.operands[1], bits),))  # fmt: skip


_MAP_FIELDS = {name: str(index) for index, name in enumerate(
    ("global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
     "elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
)}  # fmt: skip


def tensormap(e: Encoder, i: Instruction) -> Row:
    """tensormap.replace and tensormap.cp_fenceproxy."""
    m = Modifiers(i)
    if m.take("cp_fenceproxy"):
        base, offset, wide = e.shared_address(i, i.operands[1])
        to = _flat_source(e, i, i.operands[0])
        if offset or constant_operand(i, 2) != 128:
            raise fail(i, "this tensormap.cp_fenceproxy is not known")
        return Row("tensormap.cp_fenceproxy", src=(to, base), type=int(wide), flags=ALIGNED)
    bits = bits_of(m.last())
    known = m.take("replace") and m.take("tile") and m.take("b1024")
    field = m.choose(_MAP_FIELDS)
    space = m.choose(SPACES)
    m.done()
    if not known or field is None:
        raise fail(i, "this tensormap instruction is not known")
    base, offset, wide = e.shared_address(i, i.operands[0])
    ordinal = constant_operand(i, 1) if len(i.operands) > 2 else 0
    if not 0 <= ordinal < 5:
        raise fail(i, f"dimension {ordinal} does not exist")
    if field == _MAP_FIELDS["interleave_layout"] and constant_operand(i, len(i.operands) - 1):
        raise fail(i, "interleaved tensors are not known")
    is_shared = space == SPACES["shared"]
    return Row("tensormap.replace", src=(base, e.src(i, i.operands[-1], bits)), imm=offset,
               type=int(field) | is_shared << 8 | wide << 9, target=ordinal,
               width=bits // 8)  # fmt: skip


ASYNC_RULES = {
    "cp": copy,
    "mbarrier": mbarrier,
    "wgmma": wgmma,
    "mapa": mapa,
    "getctarank": cta_rank,
    "tensormap": tensormap,
}
