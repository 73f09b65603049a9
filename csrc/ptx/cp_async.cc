// cp.async: copies of single threads from global to shared memory, in commit groups.
//
// A copy is checked as a write when issued and is in flight until its thread waits for its group;
// only then is it a write by that thread. Late landing leaves poison until the wait.
//
// cp.async.mbarrier.arrive hands the thread's copies to an mbarrier instead: they land when it
// arrives, and are then a write by the mbarrier in its current phase, through the generic proxy.
// The arrival orders these copies only, nothing else that the thread did (the PTX ISA promises no
// more: the instruction has no .release).
#include <algorithm>
#include <cstring>
#include <utility>

#include "ptx/address.h"
#include "ptx/mbarrier.h"

namespace jaxpipe::ptx {
namespace {

constexpr uint8_t kPoisonByte = 0xff;

// Bytes to read at one lane: all, or the source size operand (src 2); the rest is zero.
uint32_t SourceBytes(const Step& s, int lane) {
  const uint32_t width = static_cast<uint32_t>(s.ins.width);
  if ((s.ins.flags & kSourceSize) == 0) {
    const bool ignored = s.ins.psrc != kNone && (s.PredicateOperand() >> lane & 1) != 0;
    return ignored ? 0 : width;
  }
  return std::min(s.Src(2)[lane], width);
}

bool Fill(Step& s, CpAsync* copy) {
  uint64_t sources[kLanes];
  uint32_t reading = 0;
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    Location at;
    const uint64_t to =
        s.SrcAsU64(0, lane, (s.ins.type & 1) != 0) + static_cast<uint64_t>(s.ins.imm);
    good = ResolveShared(s, to, s.ins.width, s.ins.width, lane, &at);
    if (good && at.cta != &s.cta)
      s.Fault(HazardKind::kSharedBounds, lane, to, "cp.async writes the own block only"),
          good = false;
    if (!good) return;
    copy->dst[lane] = static_cast<uint32_t>(at.offset);
    copy->group[lane] = s.warp.copies.committed[lane];
    std::memset(copy->data[lane], 0, sizeof copy->data[lane]);
    const uint32_t bytes = SourceBytes(s, lane);
    if (bytes == 0) return;  // nothing is dereferenced
    sources[lane] = s.SrcAsU64(1, lane, true);
    const uint8_t* from = GlobalForRead(s, sources[lane], bytes, s.ins.width, lane);
    good = from != nullptr;
    if (!good) return;
    std::memcpy(copy->data[lane], from, bytes);
    reading |= 1u << lane;
  });
  if (!good) return false;
  CountShared(s.counters(), copy->dst, s.mask, s.ins.width);
  if (reading != 0) CountGlobal(s.counters(), sources, reading, s.ins.width);
  return true;
}

Flow Issue(Step& s) {
  s.warp.copies.copies.emplace_back();
  CpAsync& copy = s.warp.copies.copies.back();
  copy.pc = s.pc;
  copy.sequence = s.warp.copies.issued++;
  copy.width = s.ins.width;
  copy.mask = s.mask;
  if (!Fill(s, &copy)) {
    s.warp.copies.copies.pop_back();
    return Flow::kStop;
  }
  copy.landed = s.cluster.Chance(s.cluster.launch.landing);
  ForLanes(s.mask, [&](int lane) {
    if (s.checks()) s.cta.shadow.IssueCopy(s.Who(lane), copy.dst[lane], copy.width, false);
    uint8_t* to = &s.cta.shared[copy.dst[lane]];
    if (copy.landed)
      std::memcpy(to, copy.data[lane], copy.width);
    else
      std::memset(to, kPoisonByte, copy.width);
  });
  return Flow::kNext;
}

Flow Commit(Step& s) {
  ForLanes(s.mask, [&](int lane) { s.warp.copies.committed[lane]++; });
  return Flow::kNext;
}

// Lands the lanes of `lanes` as writes by `writer`, and takes them off the copy.
void Land(Warp& warp, bool checks, CpAsync& copy, uint32_t lanes, int32_t writer, uint32_t clock) {
  if (lanes == 0) return;
  VectorClock& landed = warp.copies.landed;
  landed.resize(warp.clocks.seen.size());
  landed[writer] = std::max(landed[writer], clock);
  ForLanes(lanes, [&](int lane) {
    if (!copy.landed) std::memcpy(&warp.cta->shared[copy.dst[lane]], copy.data[lane], copy.width);
    if (checks)
      warp.cta->shadow.LandCopy({writer, clock, copy.pc, lane, warp.lane_epoch, true},
                                copy.dst[lane], copy.width);
  });
  copy.mask &= ~lanes;
}

void DropFinished(std::vector<CpAsync>& copies) {
  copies.erase(std::remove_if(copies.begin(), copies.end(),
                              [](const CpAsync& copy) { return copy.mask == 0; }),
               copies.end());
}

// wait_group N: all but the N most recent groups of each thread; imm < 0 is wait_all, which takes
// uncommitted copies too.
Flow WaitGroup(Step& s) {
  CpAsyncQueue& queue = s.warp.copies;
  for (CpAsync& copy : queue.copies) {
    uint32_t done = 0;
    ForLanes(copy.mask & s.mask, [&](int lane) {
      const int64_t first_pending = static_cast<int64_t>(queue.committed[lane]) - s.ins.imm;
      if (s.ins.imm < 0 || copy.group[lane] < first_pending) done |= 1u << lane;
    });
    Land(s.warp, s.checks(), copy, done, s.warp.actor, s.warp.clocks.seen[s.warp.actor]);
  }
  DropFinished(queue.copies);
  return Flow::kNext;
}

// One arrival of one lane: its copies land first. Returns false after a fault.
bool ArriveLane(Cluster& cluster, Warp& warp, const CpAsyncArrival& arrival, int lane) {
  Mbarrier& barrier = warp.cta->mbarriers[arrival.mbarrier];
  const uint32_t clock = static_cast<uint32_t>(barrier.phase + 1);
  for (CpAsync& copy : warp.copies.copies)
    if (copy.sequence < arrival.sequence && (copy.mask >> lane & 1) != 0)
      Land(warp, cluster.launch.check, copy, 1u << lane, barrier.actor, clock);
  // The arrival is after all earlier copies, those too that something else has landed.
  VectorClock& landed = warp.copies.landed;
  landed.resize(barrier.arriving.seen.size());
  JoinInto(barrier.arriving.seen, landed);
  if (barrier.valid && CountArrivals(&barrier, 1)) {
    CompleteIfDone(cluster, &barrier);
    return true;
  }
  cluster.Stop({barrier.valid ? HazardKind::kMbarrierArrivals : HazardKind::kMbarrierInvalid,
                arrival.pc, barrier.init_pc, warp.cta->block, warp.index, lane, barrier.offset, 1,
                "arrival of finished copies"});
  return false;
}

void ArriveAll(Cluster& cluster, Warp& warp, const CpAsyncArrival& arrival) {
  bool good = true;
  ForLanes(arrival.mask,
           [&](int lane) { good = good && ArriveLane(cluster, warp, arrival, lane); });
  DropFinished(warp.copies.copies);
  cluster.events++;
}

// cp.async.mbarrier.arrive{.noinc}: type bit 0 a 64-bit address, bit 1 .noinc. Without it the phase
// expects one more arrival, which is this one.
Flow Arrive(Step& s) {
  constexpr int32_t kNoInc = 2;
  bool good = true;
  std::vector<CpAsyncArrival>& arrivals = s.warp.copies.arrivals;
  const size_t first = arrivals.size();
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    Cta* owner = nullptr;
    const uint64_t address =
        s.SrcAsU64(0, lane, (s.ins.type & 1) != 0) + static_cast<uint64_t>(s.ins.imm);
    Mbarrier* barrier = FindMbarrier(s, address, lane, &owner);
    good = barrier != nullptr;
    if (good && owner != &s.cta) {
      s.Fault(HazardKind::kMbarrierInvalid, lane, barrier->offset, "is another block's mbarrier");
      good = false;
    }
    if (!good) return;
    if ((s.ins.type & kNoInc) == 0) barrier->pending++;
    const int index = static_cast<int>(barrier - owner->mbarriers.data());
    if (arrivals.size() == first || arrivals.back().mbarrier != index)
      arrivals.push_back({s.pc, index, 0, s.warp.copies.issued});
    arrivals.back().mask |= 1u << lane;
  });
  if (!good) return Flow::kStop;
  if (s.cluster.Chance(s.cluster.launch.landing)) {
    const std::vector<CpAsyncArrival> due = std::exchange(arrivals, {});
    for (const CpAsyncArrival& arrival : due) ArriveAll(s.cluster, s.warp, arrival);
  }
  return s.cluster.stopped ? Flow::kStop : Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kCpAsync, Issue},
    {Op::kCpAsyncCommit, Commit},
    {Op::kCpAsyncWait, WaitGroup},
    {Op::kCpAsyncArrive, Arrive},
};

}  // namespace

// The last warp first; within a warp in order, since a later arrival waits for more copies.
bool LandOneArrival(Cluster& cluster) {
  for (auto warp = cluster.order.rbegin(); warp != cluster.order.rend(); ++warp) {
    std::vector<CpAsyncArrival>& arrivals = (*warp)->copies.arrivals;
    if (arrivals.empty()) continue;
    const CpAsyncArrival arrival = arrivals.front();
    arrivals.erase(arrivals.begin());
    ArriveAll(cluster, **warp, arrival);
    return true;
  }
  return false;
}

void AddCpAsyncHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
