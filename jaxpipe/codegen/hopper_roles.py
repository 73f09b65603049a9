"""Producer and consumer roles of a Hopper kernel as CUDA text.

In: a Geometry. Out: the two branches of the kernel. The four abstract primitives become: acquire =
wait on empty[slot]; commit = the arrival on full[slot] (with the bytes TMA will bring); wait = wait
on full[slot]; release = an arrival on empty[slot] by every reading warp of the cluster, once no
wgmma in flight reads the slot.
"""

from __future__ import annotations

from jaxpipe.codegen.hopper_instructions import accumulator_type, wgmma_name
from jaxpipe.codegen.hopper_maps import Box, operand_boxes, shared_by_cluster
from jaxpipe.codegen.hopper_source import indent
from jaxpipe.geometry_hopper import PANEL_BUFFERS, ROW_BYTES, Geometry, Operand
from jaxpipe.problem import Conv2d, Matmul

UNROLL = 4  # steps of the main loop whose ring arithmetic the compiler may share
MAX_UNROLL = 8
COPY_LAG = 2  # stages whose cp.async may be in flight before the producer waits for the oldest


# ---------------------------------------------------------------- shared by both roles
def _tile_loop(body: str, step: str = "clusters", first: str = "cluster") -> str:
    return f"""\
for (int index = {first}; index < kTiles; index += {step}) {{
  const Tile tile = tile_at(index, rank);
{indent(body)}}}
"""


def _k_range(g: Geometry) -> str:
    if g.schedule.split_k == 1:
        return "const int k_begin = 0, k_end = kKTiles;\n"
    return """\
const int k_begin = tile.split * kKTilesPerSplit;
const int k_end = min(k_begin + kKTilesPerSplit, kKTiles);
"""


# ---------------------------------------------------------------- producer
def producer(g: Geometry) -> str:
    """Warpgroup 0: keeps the ring full, running ahead of the consumers across tiles."""
    body = "" if g.k_tiles == 0 else _tma_producer(g) if g.copy == "tma" else _copying_producer(g)
    return f"""\
  if (warpgroup == 0) {{
    // ---- producer
    setmaxnreg_dec<{g.registers.producer}>();
{indent(body, 2)}  }} else {{
"""


def _tma_producer(g: Geometry) -> str:
    step = f"""\
mbarrier_wait_parity(empty + 8 * ring.slot, ring.phase ^ 1);  // acquire
const unsigned filled = full + 8 * ring.slot;
mbarrier_arrive_expect_tx(filled, kAStage + kBStage);  // commit: completes as the bytes land
{_loads(g, (g.a, g.b))}ring.advance();
"""
    return f"""\
if (warp == 0 && elect_sync()) {{
  RingPosition<kStages> ring;
{indent(_tile_loop(_producer_tile(g) + _k_loop(g, step)))}}}
"""


def _k_loop(g: Geometry, step: str) -> str:
    return f"""\
#pragma unroll 1
for (int k_tile = k_begin; k_tile < k_end; ++k_tile) {{
{indent(_k_position(g) + step)}}}
"""


def _producer_tile(g: Geometry) -> str:
    """What stays fixed while the producer walks along k."""
    text = _k_range(g)
    if not isinstance(g.problem, Conv2d):
        return text
    share = shared_by_cluster(g, g.a)
    count = g.a.tile // 64 // (2 if share else 1)
    p = g.problem
    first = f"tile.m0 + rank * {count}" if share else "tile.m0"
    return text + f"""\
Patch patch[{count}];  // in input pixels, padding taken off
#pragma unroll
for (int i = 0; i < {count}; ++i) {{
  patch[i] = patch_at({first} + i);
  patch[i].x = patch[i].x * {p.stride[1]} - {p.padding[1][0]};
  patch[i].y = patch[i].y * {p.stride[0]} - {p.padding[0][0]};
}}
"""  # fmt: skip


def _k_position(g: Geometry) -> str:
    if not isinstance(g.problem, Conv2d):
        return "const int k0 = k_tile * kBlockK;\n"
    p = g.problem
    return f"""\
const int tap = k_tile / kChannelTiles, c0 = k_tile % kChannelTiles * kBlockK;
const int dx = tap % kKernelWidth * {p.dilation[1]}, dy = tap / kKernelWidth * {p.dilation[0]};
"""


def _loads(g: Geometry, operands: tuple[Operand, ...]) -> str:
    lines = []
    for op, ring in zip(operands, _rings(g, operands), strict=True):
        for box in operand_boxes(g, op):
            lines.append(_load(op, ring, box))
    return "".join(lines)


def _rings(g: Geometry, operands: tuple[Operand, ...]) -> list[str]:
    return [_slot(g, op) for op in operands]


def _slot(g: Geometry, op: Operand) -> str:
    letter = "A" if op is g.a else "B"
    return f"shared + k{letter} + ring.slot * k{letter}Stage"


def _load(op: Operand, ring: str, box: Box) -> str:
    coordinates = ", ".join(_of_tile(c) for c in box.coordinates)
    where = ring if box.offset == "0u" else f"{ring} + {box.offset}"
    call = "tma_load_multicast((unsigned short)3, " if box.multicast else "tma_load("
    return f"{call}{where}, &{op.role}_map, filled, {coordinates});\n"


def _of_tile(expression: str) -> str:
    for name in ("m0", "n0", "batch0", "batch1"):
        expression = expression.replace(name, f"tile.{name}")
    return expression


# ---------------------------------------------------------------- producer without TMA
def _copying_producer(g: Geometry) -> str:
    """All 128 threads copy by cp.async; a slot is handed over COPY_LAG steps later, once every
    thread's copies have landed and were fenced for wgmma."""
    lag = min(COPY_LAG, g.schedule.smem_stages - g.schedule.reg_stages)
    copied = [op for op in (g.a, g.b) if op.copy == "cp_async"]
    loaded = tuple(op for op in (g.a, g.b) if op.copy == "tma")
    announce = ""
    if loaded:
        announce = f"""\
if (warp == 0 && elect_sync()) {{
  const unsigned filled = full + 8 * ring.slot;
  mbarrier_arrive_expect_tx(filled, {"kAStage" if loaded[0] is g.a else "kBStage"});
{indent(_loads(g, loaded))}}}
"""
    step = f"""\
mbarrier_wait_parity(empty + 8 * ring.slot, ring.phase ^ 1);  // acquire
{announce}{"".join(_copy_lines(g, op) for op in copied)}cp_async_commit_group();
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
{_tile_loop(_producer_tile(g) + _k_loop(g, step))}cp_async_wait_group<0>();
fence_proxy_async();
for (; in_flight > 0; --in_flight) {{
  mbarrier_arrive(full + 8 * landed.slot);
  landed.advance();
}}
"""


def _copy_lines(g: Geometry, op: Operand) -> str:
    chunk = op.alignment_bytes if op.alignment_bytes >= 4 else 16
    size = op.size_bytes
    origin = "tile.m0" if op.role == "lhs" else "tile.n0"
    extent = "kM" if op.role == "lhs" else "kN"
    ld = (
        (g.problem.lhs_ld if op.role == "lhs" else g.problem.rhs_ld)
        if isinstance(g.problem, Matmul)
        else 0
    )
    if op.is_k_major:
        row, column = f"{origin} + line % {op.tile}", f"k0 + line / {op.tile} * {op.row_elements}"
        rows, columns = extent, "kK"
    else:
        row = f"k0 + line % {op.block_k}"
        column = f"{origin} + line / {op.block_k} * {op.row_elements}"
        rows, columns = "kK", extent
    copy = (
        f"copy_chunk<{chunk}>(stage, line, chunk, from, valid);"
        if op.alignment_bytes >= 4
        else "copy_unaligned_16(stage, line, chunk, from, valid);"
    )
    lines = op.panels * op.panel_rows
    return f"""\
{{
  const unsigned stage = {_slot(g, op)};
  const char* {op.role}_bytes = (const char*){op.role}{_batch_offset(g, op)};
#pragma unroll 2
  for (int i = threadIdx.x; i < {lines * ROW_BYTES // chunk}; i += 128) {{
    const int line = i / {ROW_BYTES // chunk}, chunk = i % {ROW_BYTES // chunk};
    const int row = {row}, column = {column};
    const int valid = row < {rows} ? ({columns} - column) * {size} : 0;
    const long long offset = valid > 0 ? ((long long)row * {ld} + column) * {size} : 0ll;
    const char* from = {op.role}_bytes + offset;
    {copy}
  }}
}}
"""


def _batch_offset(g: Geometry, op: Operand) -> str:
    assert isinstance(g.problem, Matmul)
    p = g.problem
    strides = p.lhs_batch_strides if op.role == "lhs" else p.rhs_batch_strides
    terms = [
        f"{stride * op.size_bytes}ll * tile.batch{i}" for i, stride in enumerate(strides) if stride
    ]
    return "".join(f" + {term}" for term in terms)


# ---------------------------------------------------------------- consumer
def consumer(g: Geometry, epilogue: str) -> str:
    """Warpgroups 1 and up: multiply what arrives, then finish and store their tile."""
    kind = accumulator_type(g.wgmma)
    ping_pong = g.schedule.ping_pong
    first, step = (
        ("cluster + consumer * clusters", "2 * clusters") if ping_pong else ("cluster", "clusters")
    )
    body = (_k_range(g) + _main_loop(g) if g.k_tiles else _no_terms(g)) + epilogue
    if ping_pong and g.k_tiles:
        body += "ring.skip(k_end - k_begin);  // the other group's slots\n"
    setup = "RingPosition<kStages> ring;\n" + _bases(g) if g.k_tiles else ""
    if ping_pong and g.k_tiles:
        setup += _turns(g)
    work = setup + _tile_loop(body, step, first)
    return f"""\
    // ---- consumers
    setmaxnreg_inc<{g.registers.consumer}>();
    const int consumer = warpgroup - 1, lane = threadIdx.x % 32, quarter = warp % 4;
    const bool leader = quarter == 0 && lane == 0;  // stores this group's panels
    const unsigned panels = shared + kPanels + consumer * {PANEL_BUFFERS}u * kPanelBytes;
    unsigned panel_parity = 0;
    {kind} accumulators[kAtoms][kColumns / 2];
{indent(work, 2)}    if (leader) bulk_wait_group_read<0>();  // stores still read shared memory
  }}
"""


def _turns(g: Geometry) -> str:
    return """\
// Ping-pong: the groups take turns on the tensor cores, each with tiles of its own. The turn also
// keeps a group from meeting a slot a whole lap early, where the parity would look right.
const unsigned my_turn = shared + kTurn + 8 * consumer;
const unsigned other_turn = shared + kTurn + 8 * (consumer ^ 1);
unsigned turn = 0;
if (consumer == 1) {
  if (lane == 0) mbarrier_arrive(other_turn);  // group 0 goes first
  ring.skip(min(kKTilesPerSplit, kKTiles));
}
"""


def _no_terms(g: Geometry) -> str:
    return """\
// ---- k = 0: a sum of nothing
#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom)
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) accumulators[atom][i] = 0;
"""


def _main_loop(g: Geometry) -> str:
    in_flight = g.schedule.reg_stages - 1
    issue = f"""\
mbarrier_wait_parity(full + 8 * ring.slot, ring.phase);  // wait
{_descriptors(g)}#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom) pin(accumulators[atom]);
wgmma_fence();
#pragma unroll
for (int k = 0; k < kKInstructions; ++k)
#pragma unroll
  for (int atom = 0; atom < kAtoms; ++atom)
    {wgmma_name(g.wgmma, g.b.tile)}(
        accumulators[atom], wgmma_descriptor({_advance(g.a, "a", "k", "atom")}),
        wgmma_descriptor({_advance(g.b, "b", "k", "")}), k_tile > k_begin || k > 0);
wgmma_commit_group();
"""
    if in_flight:
        issue += f"""\
wgmma_wait_group<1>();  // the previous step's products are done:
if (k_tile > k_begin) {_release(g, "previous")}
previous = ring.slot;
ring.advance();
"""
    else:
        issue += f"wgmma_wait_group<0>();\n{_release(g, 'ring.slot')}\nring.advance();\n"
    turn_wait = "mbarrier_wait_parity(my_turn, turn);\nturn ^= 1;\n" if g.schedule.ping_pong else ""
    turn_pass = (
        "if (lane == 0) mbarrier_arrive(other_turn);  // all mine are issued\n"
        if g.schedule.ping_pong
        else ""
    )
    drain = f"wgmma_wait_group<0>();\n{_release(g, 'previous')}\n" if in_flight else ""
    return f"""\
// ---- main loop: {"one group of products stays in flight" if in_flight else "each step drains"}
{turn_wait}{"unsigned previous = 0;" if in_flight else ""}
#pragma unroll {_unroll(g)}
for (int k_tile = k_begin; k_tile < k_end; ++k_tile) {{
{indent(issue)}}}
{turn_pass}{drain}#pragma unroll
for (int atom = 0; atom < kAtoms; ++atom) pin(accumulators[atom]);
"""


def _unroll(g: Geometry) -> int:
    """Whole laps of the ring where they divide k: then every slot of the loop is a constant."""
    stages = g.schedule.smem_stages
    return stages if stages <= MAX_UNROLL and g.k_tiles % stages == 0 else UNROLL


def _bases(g: Geometry) -> str:
    """Low words of the descriptors in slot 0; later slots and instructions only add to them."""
    own = "" if g.schedule.ping_pong else f" + consumer * {g.atoms * g.a.atom_bytes}u"
    return f"""\
const unsigned a_base = wgmma_descriptor_low(shared + kA{own}, {_leading(g.a)}u);
const unsigned b_base = wgmma_descriptor_low(shared + kB, {_leading(g.b)}u);
"""


def _descriptors(g: Geometry) -> str:
    return """\
const unsigned a = a_base + ring.slot * (kAStage / 16);
const unsigned b = b_base + ring.slot * (kBStage / 16);
"""


def _leading(op: Operand) -> int:
    """Bytes between MN-major panels; K-major ignores it, 16 is the customary value."""
    return 16 if op.is_k_major else op.panel_bytes


def _advance(op: Operand, base: str, k: str, atom: str) -> str:
    """Descriptor of instruction `k` (and atom): offsets are in units of 16 bytes."""
    text = base
    if atom:
        text += f" + {atom} * {op.atom_bytes // 16}"
    if not op.is_k_major:
        return text + f" + {k} * {(32 // op.size_bytes) * ROW_BYTES // 16}"
    if op.panels == 1:
        return text + f" + {k} * 2"
    return text + f" + {k} / 4 * {op.panel_bytes // 16} + {k} % 4 * 2"


def _release(g: Geometry, slot: str) -> str:
    if g.cluster > 1:
        return f"if (lane < kCluster) mbarrier_arrive_remote(empty + 8 * {slot}, lane);"
    return f"if (lane == 0) mbarrier_arrive(empty + 8 * {slot});"
