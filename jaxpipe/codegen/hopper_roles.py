"""Producer and consumer roles of a Hopper kernel: each statement of the nest as CUDA text.

In: the nest and its Geometry. Out: the two branches of the kernel. The abstract primitives become:
acquire = wait on empty[slot]; commit = the arrival on full[slot], with the bytes that TMA will
bring; wait = wait on full[slot]; release = an arrival on empty[slot] by every reading warp of the
cluster. Slots run on across the tiles of a block.
"""

from __future__ import annotations

from jaxpipe import dynamic
from jaxpipe.codegen.hopper_instructions import accumulator_type, wgmma_name
from jaxpipe.codegen.hopper_maps import operand_boxes, patches_loaded, shared_by_cluster
from jaxpipe.codegen.hopper_nest import Nest, consumer_loop
from jaxpipe.codegen.hopper_source import indent
from jaxpipe.codegen.text import expression
from jaxpipe.errors import IrError
from jaxpipe.geometry_hopper import PANEL_BUFFERS, ROW_BYTES, Geometry, Operand
from jaxpipe.ir.nodes import Copy, Fill, For, If, Mma, Release, Stmt, Store, Wait, WaitMma

UNROLL = 4  # steps of the main loop whose ring arithmetic the compiler may share
MAX_UNROLL = 8
COPY_LAG = 2  # stages whose cp.async may be in flight before the producer waits for the oldest


def _tile_loop(
    g: Geometry, nest: Nest, body: str, first: str = "cluster", step: str = "clusters"
) -> str:
    names = ", ".join(("m0", "n0", *(name for name, _ in nest.outer)))
    count = "tiles" if g.problem.dynamic else "kTiles"
    tiles_m = ", tiles_m" if dynamic.has_rows(g.problem) else ""
    return f"""\
for (int index = {first}; index < {count}; index += {step}) {{
  const auto [{names}] = tile_at(index, rank{tiles_m});
{indent(body)}}}
"""


def _slot(g: Geometry, op: Operand) -> str:
    letter = "A" if op is g.a else "B"
    return f"shared + k{letter} + ring.slot * k{letter}Stage"


# ---------------------------------------------------------------- producer
def producer(g: Geometry, nest: Nest) -> str:
    """Warpgroup 0: keeps the ring full, running ahead of the consumers across tiles."""
    body = ""
    if nest.steps:
        body = _tma_producer(g, nest) if g.copy == "tma" else _copying_producer(g, nest)
    return f"""\
  if (warpgroup == 0) {{
    // ---- producer
    setmaxnreg_dec<{g.registers.producer}>();
{indent(body, 2)}  }} else {{
"""


def _stream(g: Geometry, nest: Nest, step: str) -> str:
    """The producer's loop over the chunks of one tile."""
    loop = nest.stream
    return f"""\
{_patches(g, nest)}#pragma unroll 1
for (int {loop.var} = {loop.start}; {loop.var} < {loop.stop}; ++{loop.var}) {{
{indent(_taps(g, nest) + step)}}}
"""


def _tma_producer(g: Geometry, nest: Nest) -> str:
    step = f"""\
mbarrier_wait_parity(empty + 8 * ring.slot, ring.phase ^ 1);  // acquire
const unsigned filled = full + 8 * ring.slot;
mbarrier_arrive_expect_tx(filled, kAStage + kBStage);  // commit: complete when the bytes are there
{"".join(_loads(g, nest, c) for c in nest.copies)}ring.advance();
"""
    return f"""\
if (warp == 0 && elect_sync()) {{
  RingPosition<kStages> ring;
{indent(_tile_loop(g, nest, _stream(g, nest, step)))}}}
"""


def _operand(g: Geometry, nest: Nest, copy: Copy) -> Operand:
    role = nest.buffers[copy.src.buffer].role
    return g.a if g.a.role == role else g.b


def _loads(g: Geometry, nest: Nest, copy: Copy) -> str:
    """One copy of a chunk as TMA loads."""
    op = _operand(g, nest, copy)
    lines = []
    for box in operand_boxes(g, nest, op):
        where = _slot(g, op) + ("" if box.offset == "0u" else f" + {box.offset}")
        call = "tma_load_multicast((unsigned short)3, " if box.multicast else "tma_load("
        lines.append(f"{call}{where}, &{op.role}_map, filled, {', '.join(box.coordinates)});\n")
    return "".join(lines)


def _patches(g: Geometry, nest: Nest) -> str:
    """Positions of the patches that this block loads, in input pixels, padding taken off."""
    window = nest.param("lhs").window
    if window is None:
        return ""
    count = patches_loaded(g)
    first = expression(nest.starts(nest.copy_of("lhs").src)["m"] // 64)
    share = f" + rank * {count}" if shared_by_cluster(g, g.a) else ""
    return f"""\
Patch patch[{count}];
#pragma unroll
for (int i = 0; i < {count}; ++i) {{
  patch[i] = patch_at({first}{share} + i);
  patch[i].x = patch[i].x * {window.stride[1]} - {window.padding[1]};
  patch[i].y = patch[i].y * {window.stride[0]} - {window.padding[0]};
}}
"""


def _taps(g: Geometry, nest: Nest) -> str:
    """Shift of the filter position of this step, in input pixels."""
    window = nest.param("lhs").window
    if window is None:
        return ""
    starts = nest.starts(nest.copy_of("lhs").src)
    dx, dy = starts["kw"] * window.dilation[1], starts["kh"] * window.dilation[0]
    return f"const int dx = {expression(dx)}, dy = {expression(dy)};\n"


# ---------------------------------------------------------------- producer without TMA
def _copying_producer(g: Geometry, nest: Nest) -> str:
    """All 128 threads copy by cp.async; a slot is handed over COPY_LAG steps later, once every
    thread's copies have landed and were fenced for wgmma."""
    lag = min(COPY_LAG, g.schedule.smem_stages - g.schedule.reg_stages)
    operands = {c: _operand(g, nest, c) for c in nest.copies}
    copies = "".join(_lines(nest, g, c) for c, op in operands.items() if op.copy == "cp_async")
    step = f"""\
mbarrier_wait_parity(empty + 8 * ring.slot, ring.phase ^ 1);  // acquire
{_announced(g, nest)}{copies}cp_async_commit_group();
ring.advance();
if (++in_flight > {lag}) {{  // commit the oldest: its copies have landed, wgmma may see them
  cp_async_wait_group<{lag}>();
  fence_proxy_async();
  mbarrier_arrive(full + 8 * landed.slot);
  landed.advance();
  --in_flight;
}}
"""
    return f"""\
RingPosition<kStages> ring, landed;
int in_flight = 0;
{_tile_loop(g, nest, _stream(g, nest, step))}cp_async_wait_group<0>();
fence_proxy_async();
for (; in_flight > 0; --in_flight) {{
  mbarrier_arrive(full + 8 * landed.slot);
  landed.advance();
}}
"""


def _announced(g: Geometry, nest: Nest) -> str:
    """Loads of the one operand that TMA can address, if any."""
    for copy in nest.copies:
        op = _operand(g, nest, copy)
        if op.copy == "tma":
            return f"""\
if (warp == 0 && elect_sync()) {{
  const unsigned filled = full + 8 * ring.slot;
  mbarrier_arrive_expect_tx(filled, {"kAStage" if op is g.a else "kBStage"});
{indent(_loads(g, nest, copy))}}}
"""
    return ""


def _lines(nest: Nest, g: Geometry, copy: Copy) -> str:
    """One copy of a chunk, line by line of 128 bytes, zeros outside."""
    op, source = _operand(g, nest, copy), nest.buffers[copy.src.buffer]
    rows, columns = source.extent(source.axes[-2]), source.shape[-1]
    *_, ld, _ = source.strides
    row, column = (expression(start) for start in copy.src.starts[-2:])
    chunk = op.alignment_bytes if op.alignment_bytes >= 4 else 16
    per_line, size = ROW_BYTES // chunk, op.size_bytes
    call = f"copy_chunk<{chunk}>" if op.alignment_bytes >= 4 else "copy_unaligned_16"
    base = " + ".join(
        [f"(const char*){op.role}"]
        + [
            f"({expression(start)}) * {stride * size}ll"
            for start, stride in zip(copy.src.starts[:-2], source.strides, strict=False)
            if stride
        ]
    )
    return f"""\
{{
  const unsigned stage = {_slot(g, op)};
#pragma unroll 2
  for (int i = threadIdx.x; i < {op.panels * op.panel_rows * per_line}; i += 128) {{
    const int line = i / {per_line}, chunk = i % {per_line};
    const int row = {row} + line % {op.panel_rows};
    const int column = {column} + line / {op.panel_rows} * {op.row_elements};
    const int valid = row < {rows} ? ({columns} - column) * {size} : 0;
    const long long offset = valid > 0 ? ((long long)row * {ld} + column) * {size} : 0ll;
    {call}(stage, line, chunk, {base} + offset, valid);
  }}
}}
"""


# ---------------------------------------------------------------- consumer
def consumer(g: Geometry, nest: Nest, epilogue: str) -> str:
    """Warpgroups 1 and up: multiply what arrives, then finish and store their tile."""
    body = "".join(_consumer_statement(g, nest, s, epilogue) for s in nest.consumer)
    first, step = "cluster", "clusters"
    if g.schedule.ping_pong:
        first, step = "cluster + consumer * clusters", "2 * clusters"
    work = (_ring_setup(g, nest) if nest.steps else "") + _tile_loop(g, nest, body, first, step)
    return f"""\
    // ---- consumers
    setmaxnreg_inc<{g.registers.consumer}>();
    const int consumer = warpgroup - 1, lane = threadIdx.x % 32, quarter = warp % 4;
    const bool leader = quarter == 0 && lane == 0;  // stores this group's panels
    const unsigned panels = shared + kPanels + consumer * {PANEL_BUFFERS}u * kPanelBytes;
    unsigned panel_parity = 0;
    {accumulator_type(g.wgmma)} accumulators[kAtoms][kColumns / 2];
{indent(work, 2)}    if (leader) bulk_wait_group_read<0>();  // stores still read shared memory
  }}
"""


def _ring_setup(g: Geometry, nest: Nest) -> str:
    """Ring position, and the descriptors of slot 0: later ones only add to their low words."""
    own = "" if g.schedule.ping_pong else f" + consumer * {g.atoms * g.a.atom_bytes}u"
    setup = f"""\
RingPosition<kStages> ring;
const unsigned a_base = wgmma_descriptor_low(shared + kA{own}, {_leading(g.a)}u);
const unsigned b_base = wgmma_descriptor_low(shared + kB, {_leading(g.b)}u);
"""
    return setup + (_turns(nest) if g.schedule.ping_pong else "")


def _turns(nest: Nest) -> str:
    return f"""\
// Ping-pong: the groups take turns on the tensor cores, each with tiles of its own. The turn also
// keeps a group from meeting a slot a whole lap early, where the parity would look right.
const unsigned my_turn = shared + kTurn + 8 * consumer;
const unsigned other_turn = shared + kTurn + 8 * (consumer ^ 1);
unsigned turn = 0;
if (consumer == 1) {{
  if (lane == 0) mbarrier_arrive(other_turn);  // group 0 goes first
  ring.skip({nest.steps});
}}
"""


def _consumer_statement(g: Geometry, nest: Nest, statement: Stmt, epilogue: str) -> str:
    match statement:
        case Fill():
            return "" if nest.steps else _cleared()
        case For():
            return _main_loop(g, nest, statement) if nest.steps else ""
        case WaitMma(pending):
            return _drained(pending) if nest.steps else ""
        case Release():
            return _release(g, "previous") + "\n"
        case Store():
            return epilogue + _after_tile(g, nest)
        case _:
            raise IrError(f"no text for {type(statement).__name__} in a Hopper consumer")


def _cleared() -> str:
    """The accumulators of a sum of nothing; otherwise the first product overwrites them."""
    return """\
#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom)
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) accumulators[atom][i] = 0;
"""


def _drained(pending: int) -> str:
    return f"""\
wgmma_wait_group<{pending}>();
#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom) pin(accumulators[atom]);
"""


def _after_tile(g: Geometry, nest: Nest) -> str:
    if g.schedule.ping_pong and nest.steps:
        return f"ring.skip({nest.steps});  // the other group's slots\n"
    return ""


def _main_loop(g: Geometry, nest: Nest, loop: For) -> str:
    in_flight = any(isinstance(s, WaitMma) and s.pending for s in loop.body)
    body = "".join(_loop_statement(g, nest, s, in_flight) for s in loop.body)
    advance = "previous = ring.slot;\nring.advance();\n" if in_flight else "ring.advance();\n"
    turn = ("mbarrier_wait_parity(my_turn, turn);\nturn ^= 1;\n", _PASS) * g.schedule.ping_pong
    before, after = turn or ("", "")
    previous = "unsigned previous = 0;\n" if in_flight else ""
    return f"""\
// ---- main loop: {"one group of products stays in flight" if in_flight else "each step drains"}
{before}{previous}#pragma unroll {_unroll(g, nest)}
for (int {loop.var} = {loop.start}; {loop.var} < {loop.stop}; ++{loop.var}) {{
{indent(body + advance)}}}
{after}"""


_PASS = "if (lane == 0) mbarrier_arrive(other_turn);  // all mine are issued\n"


def _loop_statement(g: Geometry, nest: Nest, statement: Stmt, in_flight: bool) -> str:
    match statement:
        case Wait():
            return "mbarrier_wait_parity(full + 8 * ring.slot, ring.phase);  // wait\n"
        case Mma():
            return _products(g, nest)
        case WaitMma(pending):
            return f"wgmma_wait_group<{pending}>();\n"
        case Release():
            return _release(g, "previous" if in_flight else "ring.slot") + "\n"
        case If(conditions, (inner,)):
            condition = " && ".join(
                f"{expression(c.left)} < {expression(c.right)}" for c in conditions
            )
            return f"if ({condition}) {_loop_statement(g, nest, inner, in_flight)}"
        case _:
            raise IrError(f"no text for {type(statement).__name__} in a Hopper main loop")


def _products(g: Geometry, nest: Nest) -> str:
    """The product of one chunk: every k instruction on every atom, one group."""
    var = consumer_loop(nest).var
    return f"""\
const unsigned a = a_base + ring.slot * (kAStage / 16);
const unsigned b = b_base + ring.slot * (kBStage / 16);
#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom) pin(accumulators[atom]);
wgmma_fence();
#pragma unroll
for (int k = 0; k < kKInstructions; ++k)
#pragma unroll
  for (int atom = 0; atom < kAtoms; ++atom)
    {wgmma_name(g.wgmma, g.b.tile)}(
        accumulators[atom], wgmma_descriptor({_advance(g.a, "a", "atom")}),
        wgmma_descriptor({_advance(g.b, "b", "")}), {var} > 0 || k > 0);
wgmma_commit_group();
"""


def _unroll(g: Geometry, nest: Nest) -> int:
    """Whole laps of the ring where they divide the loop: then every slot in it is a constant."""
    stages = g.schedule.smem_stages
    return stages if stages <= MAX_UNROLL and nest.steps % stages == 0 else UNROLL


def _leading(op: Operand) -> int:
    """Bytes between MN-major panels; K-major ignores it, 16 is the customary value."""
    return 16 if op.is_k_major else op.panel_bytes


def _advance(op: Operand, base: str, atom: str) -> str:
    """Descriptor of instruction `k` (and atom): offsets are in units of 16 bytes."""
    own = f"{base} + {atom} * {op.atom_bytes // 16}" if atom else base
    if not op.is_k_major:
        return own + f" + k * {32 // op.size_bytes * ROW_BYTES // 16}"
    if op.panels == 1:
        return own + " + k * 2"
    return own + f" + k / 4 * {op.panel_bytes // 16} + k % 4 * 2"


def _release(g: Geometry, slot: str) -> str:
    if g.cluster > 1:
        return f"if (lane < kCluster) mbarrier_arrive_remote(empty + 8 * {slot}, lane);"
    return f"if (lane == 0) mbarrier_arrive(empty + 8 * {slot});"
