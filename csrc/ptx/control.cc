// Branches, exits, barriers of blocks and clusters, fences.
#include "ptx/machine.h"

namespace jaxpipe::ptx {
namespace {

// Types of bar.red.
enum Reduction : int32_t { kReduceAnd = 0, kReduceOr = 1, kReducePopc = 2 };
// Types of barrier.cluster.arrive.
enum ArriveType : int32_t { kArriveRelease = 0, kArriveRelaxed = 1 };

Flow Nop(Step&) { return Flow::kNext; }

Flow Branch(Step& s) {
  s.warp.Branch(s.mask, s.active & ~s.mask, s.ins.target, s.pc + 1);
  return Flow::kJumped;
}

// brx.idx: the list holds the targets.
Flow BranchIndexed(Step& s) {
  const uint32_t* index = s.Src(0);
  s.warp.Diverge();
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    good = good && index[lane] < static_cast<uint32_t>(s.ins.list_size);
    if (good) s.warp.lane_pc[lane] = s.ListAt(index[lane]);
  });
  if (!good) return s.Fault(HazardKind::kTrap, -1, 0, "brx.idx index out of range");
  ForLanes(s.active & ~s.mask, [&](int lane) { s.warp.lane_pc[lane] = s.pc + 1; });
  return Flow::kJumped;
}

Flow Exit(Step& s) {
  s.warp.Advance(s.active, s.pc + 1);
  s.warp.live &= ~s.mask;
  s.warp.converging = 0;  // collectives no longer wait for the lanes that left
  if (s.warp.live == 0) s.cluster.EndWarp(s.warp, s.pc);
  return Flow::kJumped;
}

Flow Trap(Step& s) { return s.Fault(HazardKind::kTrap, FirstLane(s.mask), 0); }

// Enters a named barrier: src 0 is its number, src 1 the thread count (absent: the whole block).
NamedBarrier* Enter(Step& s) {
  const uint32_t id = s.ins.src[0] != kNone ? s.Src(0)[FirstLane(s.mask)] : 0;
  const uint32_t threads = s.ins.src[1] != kNone ? s.Src(1)[FirstLane(s.mask)] : 0;
  if (id >= kNamedBarriers || threads % kLanes != 0) {
    s.Fault(HazardKind::kBarrierCount, -1, 0,
            "barrier " + std::to_string(id) + " of " + std::to_string(threads) +
                " threads: ids are below 16, counts multiples of 32");
    return nullptr;
  }
  NamedBarrier& barrier = s.cta.barriers[id];
  if (barrier.arrived != 0 && barrier.threads != threads) {
    s.Fault(HazardKind::kBarrierCount, -1, 0,
            "barrier " + std::to_string(id) + " has " + std::to_string(barrier.threads) + " and " +
                std::to_string(threads) + " threads",
            barrier.pc);
    return nullptr;
  }
  if (barrier.arrived == 0) barrier.pc = s.pc;
  barrier.threads = threads;
  barrier.arrived += kLanes;
  barrier.clocks.Join(s.warp.clocks);
  s.warp.barrier_id = static_cast<int>(id);
  s.cluster.events++;
  return &barrier;
}

Flow BarSync(Step& s) {
  if (Enter(s) == nullptr) return Flow::kStop;
  s.warp.wait = Wait::kBarrier;
  s.warp.Advance(s.active, s.pc + 1);
  s.cluster.ReleaseBarriers(s.cta);
  return Flow::kJumped;
}

Flow BarArrive(Step& s) {
  if (Enter(s) == nullptr) return Flow::kStop;
  s.warp.clocks.seen[s.warp.actor]++;
  s.cluster.ReleaseBarriers(s.cta);
  return Flow::kNext;
}

// Two steps: arrive with the predicate, then, once released, write the result.
Flow BarRed(Step& s) {
  NamedBarrier* barrier = nullptr;
  if (!s.warp.reducing) {
    barrier = Enter(s);
    if (barrier == nullptr) return Flow::kStop;
    const uint32_t holds = s.PredicateOperand() & s.mask;
    barrier->reduction.any = barrier->reduction.any || holds != 0;
    barrier->reduction.all = barrier->reduction.all && holds == s.mask;
    barrier->reduction.count += __builtin_popcount(holds);
    s.warp.reducing = true;
    s.warp.wait = Wait::kBarrier;
    s.cluster.ReleaseBarriers(s.cta);
    return Flow::kRetry;
  }
  s.warp.reducing = false;
  const BarrierReduction& result = s.cta.barriers[s.warp.barrier_id].completed;
  if (s.ins.type == kReducePopc) {
    ForLanes(s.mask, [&](int lane) { s.Dst()[lane] = result.count; });
    return Flow::kNext;
  }
  const bool value = s.ins.type == kReduceAnd ? result.all : result.any;
  uint32_t& p = s.warp.predicates[s.ins.pdst[0]];
  p = (p & ~s.mask) | (value ? s.mask : 0);
  return Flow::kNext;
}

Flow ClusterArrive(Step& s) {
  ClusterBarrier& barrier = s.cluster.cluster_barrier;
  if (s.ins.type == kArriveRelaxed)
    JoinInto(barrier.arriving.inits, s.warp.clocks.inits);
  else
    barrier.arriving.Join(s.warp.clocks);
  s.warp.clocks.seen[s.warp.actor]++;
  barrier.arrived += kLanes;
  s.warp.cluster_generation = barrier.generation + 1;
  s.cluster.events++;
  s.cluster.ReleaseClusterBarrier();
  return Flow::kNext;
}

Flow ClusterWait(Step& s) {
  const ClusterBarrier& barrier = s.cluster.cluster_barrier;
  if (s.warp.cluster_generation == 0)
    return s.Fault(HazardKind::kDivergence, -1, 0, "barrier.cluster.wait without an arrive");
  if (barrier.generation < s.warp.cluster_generation) {
    s.warp.wait = Wait::kClusterBarrier;
    return Flow::kRetry;
  }
  s.warp.clocks.Join(barrier.completed);
  s.warp.lane_epoch++;
  s.warp.cluster_generation = 0;
  return Flow::kNext;
}

Flow WarpSync(Step& s) {
  s.warp.lane_epoch++;
  return Flow::kNext;
}

// What happened before becomes visible to the async proxy; later events get a new clock.
Flow FenceProxyAsync(Step& s) {
  ClockSet& clocks = s.warp.clocks;
  JoinInto(clocks.fenced, clocks.seen);
  clocks.seen[s.warp.actor]++;
  return Flow::kNext;
}

Flow FenceMbarrierInit(Step& s) {
  ClockSet& clocks = s.warp.clocks;
  JoinInto(clocks.inits, clocks.seen);
  clocks.seen[s.warp.actor]++;
  return Flow::kNext;
}

// The block shares the registers that it was launched with: an increase waits until others have
// given up as many (PTX ISA, setmaxnreg: "per-CTA-register-pool").
Flow SetMaxNReg(Step& s) {
  const uint32_t asked = static_cast<uint32_t>(s.ins.imm);
  uint64_t registers = asked;  // of one lane of every warp
  for (const Warp& warp : s.cta.warps)
    if (&warp != &s.warp) registers += warp.register_limit;
  if (asked > s.warp.register_limit &&
      registers > uint64_t{s.cluster.launch_registers} * s.cta.warps.size()) {
    s.warp.wait = Wait::kRegisters;
    return Flow::kRetry;
  }
  s.warp.register_limit = asked;
  s.cluster.events++;
  for (Warp& warp : s.cta.warps)
    if (warp.wait == Wait::kRegisters) warp.wait = Wait::kNone;
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kNop, Nop},
    {Op::kFence, Nop},
    {Op::kFenceProxyTensormap, Nop},
    {Op::kBranch, Branch},
    {Op::kBranchIndexed, BranchIndexed},
    {Op::kExit, Exit},
    {Op::kTrap, Trap},
    {Op::kBarSync, BarSync},
    {Op::kBarArrive, BarArrive},
    {Op::kBarRed, BarRed},
    {Op::kClusterArrive, ClusterArrive},
    {Op::kClusterWait, ClusterWait},
    {Op::kWarpSync, WarpSync},
    {Op::kFenceProxyAsync, FenceProxyAsync},
    {Op::kFenceMbarrierInit, FenceMbarrierInit},
    {Op::kSetMaxNReg, SetMaxNReg},
};

}  // namespace

void AddControlHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
