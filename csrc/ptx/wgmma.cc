// wgmma: products of a warpgroup, asynchronous to its warps.
//
// The four warps must issue the same operation. Its reads of shared memory are recorded for the
// warpgroup until one of its warps has waited for them; its registers are out of bounds until the
// warp's own wait. It executes when waited for (late) or when the fourth warp issues it (early).
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include <algorithm>
#include <cstring>

#include "ptx/descriptor.h"
#include "ptx/fragments.h"
#include "ptx/machine.h"

namespace jaxpipe::ptx {
namespace {

constexpr int kGroup = 4;
constexpr uint32_t kAllWarps = 0xf;
constexpr uint32_t kChunk = 16;
constexpr int kBlockElements = kMaxK * kMmaColumns;

Warpgroup& GroupOf(const Warp& warp) { return warp.cta->warpgroups[warp.index / kGroup]; }

// Calls f(address of a 16-byte chunk, first row, first k): rows [first, first + count).
template <typename F>
void ForChunks(const MatrixDescriptor& descriptor, const MmaShape& shape, Element element,
               bool mn_major, int first, int count, F&& f) {
  const int per_chunk = static_cast<int>(kChunk) / ElementBytes(element);
  if (mn_major) {
    for (int k = 0; k < shape.k; ++k)
      for (int i = first; i < first + count; i += 8) f(descriptor.MnMajor(i, k), i, k);
    return;
  }
  for (int row = first; row < first + count; ++row)
    for (int half = 0; half < 2; ++half) f(descriptor.KMajor(row, half), row, half * per_chunk);
}

bool InBounds(Step& s, const MatrixDescriptor& descriptor, const MmaShape& shape, bool mn_major,
              int first, int count) {
  bool good = true;
  ForChunks(descriptor, shape, shape.a, mn_major, first, count, [&](uint32_t at, int, int) {
    good = good && at >= kSharedBase && at + kChunk <= s.cta.shared.size();
  });
  if (!good)
    s.Fault(HazardKind::kSharedBounds, -1, descriptor.start,
            "matrix descriptor at shared address " + std::to_string(descriptor.start));
  return good;
}

void CheckOperand(Step& s, const MatrixDescriptor& descriptor, const MmaShape& shape, bool mn_major,
                  int first, int count, const Warpgroup& group, uint32_t clock) {
  const Accessor who = s.Who(kWholeWarp);
  ForChunks(descriptor, shape, shape.a, mn_major, first, count, [&](uint32_t at, int, int) {
    s.cta.shadow.AsyncRead(who, group.actor, clock, at, kChunk);
  });
}

// Elements of an operand into to[place(row, k)].
template <typename T, typename F>
void Unpack(const Cta& cta, const MatrixDescriptor& descriptor, const MmaShape& shape,
            Element element, bool mn_major, int first, int count, T* to, F&& place) {
  const int bytes = ElementBytes(element);
  const int per_chunk = static_cast<int>(kChunk) / bytes;
  ForChunks(descriptor, shape, element, mn_major, first, count, [&](uint32_t at, int row, int k) {
    const uint8_t* from = &cta.shared[at];
    for (int e = 0; e < per_chunk; ++e) {
      T& out = mn_major ? to[place(row + e, k)] : to[place(row, k + e)];
      if constexpr (std::is_same_v<T, float>)
        out = DecodeFloat(element, from + e * bytes);
      else
        out = DecodeInt(element, from + e * bytes);
    }
  });
}

// B in blocks of 8 columns, [block][k][column], as MmaTile holds one of them.
struct OperandB {
  std::vector<float> floats;
  std::vector<int32_t> ints;
};

void LoadB(const Cta& cta, const WgmmaOp& op, const MmaShape& shape, OperandB* b) {
  const MatrixDescriptor descriptor(op.b);
  const auto place = [](int n, int k) {
    return n / kMmaColumns * kBlockElements + k * kMmaColumns + n % kMmaColumns;
  };
  const size_t size = static_cast<size_t>(shape.columns / kMmaColumns) * kBlockElements;
  if (shape.is_integer()) {
    b->ints.resize(size);
    Unpack(cta, descriptor, shape, shape.b, shape.b_transposed, 0, shape.columns, b->ints.data(),
           place);
  } else {
    b->floats.resize(size);
    Unpack(cta, descriptor, shape, shape.b, shape.b_transposed, 0, shape.columns, b->floats.data(),
           place);
  }
}

void LoadA(const Warp& warp, const WgmmaOp& op, const MmaShape& shape, const int32_t* registers,
           MmaTile* tile) {
  if (shape.a_in_registers) {
    const uint32_t* in[4];
    for (int q = 0; q < 4; ++q) in[q] = &warp.registers[static_cast<size_t>(registers[q]) * kLanes];
    return LoadOperandA(shape, in, tile);
  }
  const MatrixDescriptor descriptor(op.a);
  const int first = warp.index % kGroup * kMmaRows;
  const auto place = [first](int row, int k) { return (row - first) * kMaxK + k; };
  if (shape.is_integer())
    Unpack(*warp.cta, descriptor, shape, shape.a, shape.a_transposed, first, kMmaRows, tile->ai,
           place);
  else
    Unpack(*warp.cta, descriptor, shape, shape.a, shape.a_transposed, first, kMmaRows, tile->a,
           place);
}

// Multiplies one warp's 16 rows with all columns.
void MultiplyWarp(Warp& warp, const MmaShape& shape, const WgmmaOp& op, const OperandB& b,
                  const int32_t* registers, MmaTile* tile) {
  const int per_block = shape.AccumulatorRegisters(kMmaColumns);
  for (int block = 0; block < shape.columns / kMmaColumns; ++block) {
    uint32_t* accumulator[4];
    for (int q = 0; q < per_block; ++q) accumulator[q] = warp.Reg(registers[block * per_block + q]);
    if (op.accumulate) {
      LoadAccumulator(shape, accumulator, tile);
    } else {
      std::fill(std::begin(tile->d), std::end(tile->d), 0.0f);
      std::fill(std::begin(tile->di), std::end(tile->di), 0);
    }
    const size_t from = static_cast<size_t>(block) * kBlockElements;
    if (shape.is_integer())
      std::copy_n(&b.ints[from], kBlockElements, tile->bi);
    else
      std::copy_n(&b.floats[from], kBlockElements, tile->b);
    MultiplyAccumulate(shape, tile);
    StoreAccumulator(shape, *tile, accumulator);
  }
}

void Execute(Step& s, const Warpgroup& group, const WgmmaOp& op) {
  const Instruction& ins = s.cluster.program.code[op.pc];
  const MmaShape shape(ins.type);
  const int32_t* registers = &s.cluster.program.lists[ins.list];
  OperandB b;
  LoadB(s.cta, op, shape, &b);
  const size_t index = static_cast<size_t>(&group - s.cta.warpgroups.data());
  for (int i = 0; i < kGroup; ++i) {
    Warp& warp = s.cta.warps[index * kGroup + i];
    MmaTile tile;
    LoadA(warp, op, shape, registers + shape.AccumulatorRegisters(shape.columns), &tile);
    MultiplyWarp(warp, shape, op, b, registers, &tile);
  }
}

// Executes all operations before sequence number `until`, in order: each may take the accumulator
// of an earlier one.
void ExecuteUntil(Step& s, Warpgroup& group, uint32_t until) {
  for (; group.executed < until; ++group.executed) Execute(s, group, group.ops[group.executed]);
}

bool Uniform(const Step& s, int source) {
  const uint64_t first = s.SrcAsU64(source, 0, true);
  for (int lane = 1; lane < kLanes; ++lane)
    if (s.SrcAsU64(source, lane, true) != first) return false;
  return true;
}

Flow Mismatch(Step& s, const char* what, int32_t other_pc = -1) {
  return s.Fault(HazardKind::kWgmmaMismatch, -1, 0, what, other_pc);
}

// Reads the operands; false after a fault.
bool Describe(Step& s, const MmaShape& shape, WgmmaOp* op) {
  const uint32_t scale = s.PredicateOperand();
  *op = WgmmaOp{s.pc, 0, 0, scale != 0, 0};
  bool uniform = (scale == 0 || scale == kAllLanes) && Uniform(s, 1);
  op->b = s.SrcAsU64(1, 0, true);
  if (!shape.a_in_registers) {
    uniform = uniform && Uniform(s, 0);
    op->a = s.SrcAsU64(0, 0, true);
  }
  if (!uniform)
    return Mismatch(s, "the lanes of a warp differ in descriptor or scale") == Flow::kNext;
  const MatrixDescriptor b(op->b), a(op->a);
  std::string problem = b.Check(shape.b_transposed);
  if (problem.empty() && !shape.a_in_registers) problem = a.Check(shape.a_transposed);
  if (!problem.empty()) {
    s.Fault(HazardKind::kWgmmaDescriptor, -1, 0, problem);
    return false;
  }
  const int first = s.warp.index % kGroup * kMmaRows;
  return InBounds(s, b, shape, shape.b_transposed, 0, shape.columns) &&
         (shape.a_in_registers || InBounds(s, a, shape, shape.a_transposed, first, kMmaRows));
}

void CheckReads(Step& s, const MmaShape& shape, const WgmmaOp& op, const Warpgroup& group,
                uint32_t sequence) {
  const int first = s.warp.index % kGroup * kMmaRows;
  if (!shape.a_in_registers)
    CheckOperand(s, MatrixDescriptor(op.a), shape, shape.a_transposed, first, kMmaRows, group,
                 sequence + 1);
  CheckOperand(s, MatrixDescriptor(op.b), shape, shape.b_transposed, 0, shape.columns, group,
               sequence + 1);
}

void CheckFence(Step& s) {
  const WgmmaQueue& queue = s.warp.wgmma;
  for (int i = 0; i < s.ins.list_size; ++i) {
    const int32_t slot = s.ListAt(i);
    if (slot >= 0 && queue.touched[slot] > queue.fence)
      return s.Report(HazardKind::kWgmmaFence, -1, 0);
  }
}

void MarkInFlight(WgmmaQueue& queue, const Program& program, int32_t pc) {
  const Instruction& ins = program.code[pc];
  for (int i = 0; i < ins.list_size; ++i) {
    const int32_t slot = program.lists[ins.list + i];
    if (slot >= 0) queue.in_flight[slot] = 1;
  }
}

Flow Issue(Step& s) {
  if ((s.cta.warps.size() % kGroup) != 0 &&
      s.warp.index / kGroup == static_cast<int>(s.cta.warps.size()) / kGroup)
    return Mismatch(s, "the warp belongs to no complete warpgroup");
  const MmaShape shape(s.ins.type);
  Warpgroup& group = GroupOf(s.warp);
  WgmmaOp op;
  if (!Describe(s, shape, &op)) return Flow::kStop;
  const uint32_t sequence = s.warp.wgmma.issued++;
  if (sequence == group.ops.size()) group.ops.push_back(op);
  WgmmaOp& shared = group.ops[sequence];
  if (shared.pc != op.pc || shared.a != op.a || shared.b != op.b ||
      shared.accumulate != op.accumulate)
    return Mismatch(s, "the warps differ in instruction, descriptor or scale", shared.pc);
  shared.warps |= 1u << (s.warp.index % kGroup);
  if (s.checks()) {
    CheckFence(s);
    CheckReads(s, shape, op, group, sequence);
  }
  s.warp.wgmma.pending.push_back({s.warp.wgmma.committed, sequence});
  MarkInFlight(s.warp.wgmma, s.cluster.program, s.pc);
  if (shared.warps == kAllWarps) {
    s.cluster.events++;
    for (Warp& warp : s.cta.warps)
      if (warp.wait == Wait::kWarpgroup) warp.wait = Wait::kNone;
    if (s.cluster.Chance(s.cluster.launch.landing)) ExecuteUntil(s, group, sequence + 1);
  }
  return Flow::kNext;
}

Flow Fence(Step& s) {
  s.warp.wgmma.fence = s.warp.wgmma.clock;
  return Flow::kNext;
}

Flow Commit(Step& s) {
  s.warp.wgmma.committed++;
  return Flow::kNext;
}

Flow WaitGroup(Step& s) {
  WgmmaQueue& queue = s.warp.wgmma;
  Warpgroup& group = GroupOf(s.warp);
  const int64_t first_pending = static_cast<int64_t>(queue.committed) - s.ins.imm;
  uint32_t until = queue.finished;
  for (const WgmmaQueue::Pending& pending : queue.pending)
    if (static_cast<int64_t>(pending.group) < first_pending) until = pending.sequence + 1;
  for (uint32_t i = queue.finished; i < until; ++i) {
    if (group.ops[i].warps == kAllWarps) continue;
    s.warp.wait = Wait::kWarpgroup;  // the others have not issued it yet
    return Flow::kRetry;
  }
  ExecuteUntil(s, group, until);
  queue.finished = until;
  uint32_t& seen = s.warp.clocks.seen[group.actor];
  seen = std::max(seen, until);
  auto& pending = queue.pending;
  pending.erase(std::remove_if(pending.begin(), pending.end(),
                               [&](const WgmmaQueue::Pending& p) { return p.sequence < until; }),
                pending.end());
  std::fill(queue.in_flight.begin(), queue.in_flight.end(), 0);
  for (const WgmmaQueue::Pending& p : pending)
    MarkInFlight(queue, s.cluster.program, group.ops[p.sequence].pc);
  return Flow::kNext;
}

bool IsWgmma(Op op) {
  return op == Op::kWgmma || op == Op::kWgmmaWait || op == Op::kWgmmaCommit ||
         op == Op::kWgmmaFence;
}

constexpr HandlerRow kRows[] = {
    {Op::kWgmma, Issue},
    {Op::kWgmmaFence, Fence},
    {Op::kWgmmaCommit, Commit},
    {Op::kWgmmaWait, WaitGroup},
};

}  // namespace

void TrackWgmmaRegisters(Step& step) {
  WgmmaQueue& queue = step.warp.wgmma;
  queue.clock++;
  if (IsWgmma(static_cast<Op>(step.ins.op))) return;
  const Instruction& ins = step.ins;
  const auto writes = [&](int32_t slot) {
    if (slot >= 0) queue.touched[slot] = queue.clock;
  };
  writes(ins.dst);
  for (int i = 0; i < ins.list_writes; ++i) writes(step.ListAt(i));
  if (queue.pending.empty()) return;
  bool touches = false;
  const auto check = [&](int32_t slot) {
    touches = touches || (slot >= 0 && queue.in_flight[slot] != 0);
  };
  check(ins.dst);
  for (int32_t slot : ins.src) check(slot);
  if (static_cast<Op>(ins.op) != Op::kBranchIndexed)
    for (int i = 0; i < ins.list_size; ++i) check(step.ListAt(i));
  if (touches)
    step.Report(HazardKind::kWgmmaRegister, -1, 0, "",
                GroupOf(step.warp).ops[queue.pending.front().sequence].pc);
}

void AddWgmmaHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
