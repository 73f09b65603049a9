"""Encoding rules of control flow, barriers, fences and what lanes of a warp exchange."""

from __future__ import annotations

from jaxpipe.ptx.encode_convert import convert
from jaxpipe.ptx.encode_memory import constant_operand
from jaxpipe.ptx.encoder import ALIGNED, CONVERGES, NONE, Encoder, Modifiers, Row, bits_of, fail
from jaxpipe.ptx.nodes import Instruction, Pair

_SCOPES = ("cta", "cluster", "gpu", "sys", "gl")


def branch(e: Encoder, i: Instruction) -> Row:
    """bra."""
    m = Modifiers(i)
    m.take("uni")
    m.done()
    if i.target < 0:
        raise fail(i, "the target is no label")
    return Row("bra", target=i.target)


def branch_indexed(e: Encoder, i: Instruction) -> Row:
    """brx.idx."""
    m = Modifiers(i)
    m.take("idx")
    m.take("uni")
    m.done()
    return Row("brx.idx", src=(e.src(i, i.operands[0], 32),), items=i.targets)


def leave(e: Encoder, i: Instruction) -> Row:
    """ret and exit."""
    m = Modifiers(i)
    m.take("uni")
    m.done()
    return Row("exit")


def trap(e: Encoder, i: Instruction) -> Row:
    """trap."""
    return Row("trap")


def barrier(e: Encoder, i: Instruction) -> Row:
    """bar and barrier: of the block, the warp and the cluster."""
    m = Modifiers(i)
    m.take("cta")
    if m.take("warp"):
        m.take("sync")
        m.done()
        mask = e.src(i, i.operands[0], 32)
        return Row("bar.warp.sync", src=(NONE, NONE, NONE, mask), flags=CONVERGES)
    if m.take("cluster"):
        return _cluster_barrier(i, m)
    m.take("aligned")
    kind = m.choose({"sync": "bar.sync", "arrive": "bar.arrive", "red": "bar.red"})
    if kind is None:
        raise fail(i, "this barrier is not known")
    if kind == "bar.red":
        return _barrier_reduction(e, i, m)
    m.done()
    return Row(kind, src=tuple(e.src(i, o, 32) for o in i.operands), flags=ALIGNED)


_REDUCTION = {"and": "0", "or": "1", "popc": "2"}


def _barrier_reduction(e: Encoder, i: Instruction, m: Modifiers) -> Row:
    type_ = m.last()
    op = m.choose(_REDUCTION)
    m.done()
    if op is None:
        raise fail(i, "this reduction is not known")
    to, *numbers, value = i.operands
    slot, flags = e.predicate(i, value)
    row = Row("bar.red", src=tuple(e.src(i, o, 32) for o in numbers), psrc=slot,
              flags=flags | ALIGNED, type=int(op))  # fmt: skip
    if type_ == "pred":
        row.pdst = (e.predicate_dst(i, to),)
    else:
        row.dst = e.dst(i, to, 32)
    return row


def _cluster_barrier(i: Instruction, m: Modifiers) -> Row:
    arrive, wait = m.take("arrive"), m.take("wait")
    m.take("aligned")
    relaxed = m.take("relaxed")
    m.take("release", "acquire")
    m.done()
    if arrive == wait:
        raise fail(i, "this cluster barrier is not known")
    return Row(f"barrier.cluster.{'arrive' if arrive else 'wait'}", type=int(relaxed),
               flags=ALIGNED)  # fmt: skip


def fence(e: Encoder, i: Instruction) -> Row:
    """fence and membar: ordinary ones order what is in order anyway; proxies are modelled."""
    m = Modifiers(i)
    if m.take("mbarrier_init"):
        m.take("release")
        m.take("cluster")
        m.done()
        return Row("fence.mbarrier_init")
    if m.take("proxy"):
        return _proxy_fence(i, m)
    m.take("acq_rel", "sc", "acquire", "release")
    m.ignore(("sync_restrict::shared::cta", "sync_restrict::shared::cluster"))
    m.take(*_SCOPES)
    m.done()
    return Row("fence")


def _proxy_fence(i: Instruction, m: Modifiers) -> Row:
    if m.take("async"):
        m.take("global", "shared::cta", "shared::cluster")
        m.done()
        return Row("fence.proxy.async")
    if m.take("tensormap::generic"):
        m.take("acquire", "release")
        m.take(*_SCOPES)
        m.done()
        return Row("fence.proxy.tensormap")
    raise fail(i, "this proxy fence is not known")


_SHFL = {"bfly": "0", "down": "1", "up": "2", "idx": "3"}


def shfl(e: Encoder, i: Instruction) -> Row:
    """shfl.sync."""
    m = Modifiers(i)
    mode = m.choose(_SHFL)
    if m.last() != "b32" or not m.take("sync") or mode is None:
        raise fail(i, "this shfl is not known")
    m.done()
    to = i.operands[0]
    value, predicate = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    return Row("shfl.sync", dst=e.dst(i, value, 32),
               src=tuple(e.src(i, o, 32) for o in i.operands[1:5]), type=int(mode),
               pdst=() if predicate is None else (e.predicate_dst(i, predicate),),
               flags=CONVERGES)  # fmt: skip


_VOTE = {"all": "0", "any": "1", "uni": "2", "ballot": "3"}


def vote(e: Encoder, i: Instruction) -> Row:
    """vote.sync."""
    m = Modifiers(i)
    type_ = m.last()
    mode = m.choose(_VOTE)
    if not m.take("sync") or mode is None:
        raise fail(i, "this vote is not known")
    m.done()
    slot, flags = e.predicate(i, i.operands[1])
    mask = e.src(i, i.operands[2], 32)
    row = Row("vote.sync", psrc=slot, flags=flags | CONVERGES, src=(NONE, NONE, NONE, mask),
              type=int(mode))  # fmt: skip
    if type_ == "pred":
        row.pdst = (e.predicate_dst(i, i.operands[0]),)
    else:
        row.dst = e.dst(i, i.operands[0], 32)
    return row


def match(e: Encoder, i: Instruction) -> Row:
    """match.any.sync and match.all.sync."""
    m = Modifiers(i)
    bits = bits_of(m.last())
    mode = m.choose({"all": "0", "any": "1"})
    if not m.take("sync") or mode is None:
        raise fail(i, "this match is not known")
    m.done()
    to = i.operands[0]
    value, predicate = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    mask = e.src(i, i.operands[2], 32)
    return Row("match.sync", dst=e.dst(i, value, 32), width=bits // 8, type=int(mode),
               src=(e.src(i, i.operands[1], bits), NONE, NONE, mask), flags=CONVERGES,
               pdst=() if predicate is None else (e.predicate_dst(i, predicate),))  # fmt: skip


_REDUX = {("add", "s32"): 0, ("add", "u32"): 0, ("min", "s32"): 1, ("max", "s32"): 2,
          ("min", "u32"): 3, ("max", "u32"): 4, ("and", "b32"): 5, ("or", "b32"): 6,
          ("xor", "b32"): 7}  # fmt: skip


def redux(e: Encoder, i: Instruction) -> Row:
    """redux.sync."""
    words = i.opcode[1:]
    if len(words) != 3 or words[0] != "sync" or words[1:] not in _REDUX:
        raise fail(i, "this redux is not known")
    mask = e.src(i, i.operands[2], 32)
    return Row("redux.sync", dst=e.dst(i, i.operands[0], 32), type=_REDUX[words[1], words[2]],
               src=(e.src(i, i.operands[1], 32), NONE, NONE, mask), flags=CONVERGES)  # fmt: skip


def active_mask(e: Encoder, i: Instruction) -> Row:
    """activemask."""
    return Row("activemask", dst=e.dst(i, i.operands[0], 32))


def elect(e: Encoder, i: Instruction) -> Row:
    """elect.sync d|p, mask."""
    to = i.operands[0]
    if not isinstance(to, Pair) or i.opcode != ("elect", "sync"):
        raise fail(i, "this elect is not known")
    mask = e.src(i, i.operands[1], 32)
    return Row("elect.sync", dst=e.dst(i, to.first, 32), pdst=(e.predicate_dst(i, to.second),),
               src=(NONE, NONE, NONE, mask), flags=CONVERGES)  # fmt: skip


def set_max_registers(e: Encoder, i: Instruction) -> Row:
    """setmaxnreg.inc and .dec."""
    if i.opcode[2:] != ("sync", "aligned", "u32") or i.opcode[1] not in ("inc", "dec"):
        raise fail(i, "this setmaxnreg is not known")
    return Row("setmaxnreg", imm=constant_operand(i, 0), flags=ALIGNED)


def nop(e: Encoder, i: Instruction) -> Row:
    """Hints, sleeps and launch control change no result."""
    return Row("nop")


CONTROL_RULES = {
    **dict.fromkeys(("bar", "barrier"), barrier),
    **dict.fromkeys(("fence", "membar"), fence),
    **dict.fromkeys(("ret", "exit"), leave),
    **dict.fromkeys(("nanosleep", "griddepcontrol", "prefetch", "prefetchu", "applypriority",
                     "pmevent"), nop),
    "bra": branch,
    "brx": branch_indexed,
    "trap": trap,
    "shfl": shfl,
    "vote": vote,
    "match": match,
    "redux": redux,
    "activemask": active_mask,
    "elect": elect,
    "setmaxnreg": set_max_registers,
    "cvt": convert,
}  # fmt: skip
