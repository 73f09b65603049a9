#include "ptx/mbarrier.h"

#include <cstdlib>

#include "ptx/address.h"

namespace jaxpipe::ptx {
namespace {

constexpr uint32_t kObjectBytes = 8;
constexpr int64_t kMaxBytes = (1 << 20) - 1;
constexpr uint32_t kMaxCount = (1 << 20) - 1;

// Instruction::type, shared with encode.py. Bit 0: the address operand has 64 bits.
enum ArriveType : int32_t { kExpectTx = 2, kDrop = 4, kNoArrive = 8, kCompleteTx = 16 };
enum WaitType : int32_t { kParity = 2 };

std::string At(uint64_t offset) { return "mbarrier at shared address " + std::to_string(offset); }

uint64_t AddressOf(const Step& s, int lane) {
  return s.SrcAsU64(0, lane, (s.ins.type & 1) != 0) + static_cast<uint64_t>(s.ins.imm);
}

Mbarrier* Lookup(Cta& cta, uint64_t offset) {
  for (Mbarrier& barrier : cta.mbarriers)
    if (barrier.valid && barrier.offset == offset) return &barrier;
  return nullptr;
}

// A slot for a new object: the one that was at the same place, so that its clock goes on.
Mbarrier* SlotFor(Step& s, uint64_t offset) {
  for (Mbarrier& barrier : s.cta.mbarriers)
    if (barrier.offset == offset) return &barrier;
  if (s.cta.mbarriers.size() >= kMaxMbarriers) return nullptr;
  s.cta.mbarriers.emplace_back();
  Mbarrier& barrier = s.cta.mbarriers.back();
  barrier.actor =
      s.cluster.readers + s.cta.rank * kMaxMbarriers + static_cast<int>(s.cta.mbarriers.size()) - 1;
  return &barrier;
}

bool InitAt(Step& s, int lane, uint32_t count) {
  Location at;
  if (!ResolveShared(s, AddressOf(s, lane), kObjectBytes, kObjectBytes, lane, &at)) return false;
  if (at.cta != &s.cta) {
    s.Fault(HazardKind::kMbarrierInvalid, lane, at.offset, "init of another block's mbarrier");
    return false;
  }
  if (Mbarrier* live = Lookup(s.cta, at.offset)) {
    s.Fault(HazardKind::kMbarrierInUse, lane, at.offset, At(at.offset), live->init_pc);
    return false;
  }
  Mbarrier* barrier = SlotFor(s, at.offset);
  if (barrier == nullptr || count == 0 || count > kMaxCount) {
    s.Fault(HazardKind::kUnsupported, lane, at.offset,
            At(at.offset) + " with count " + std::to_string(count) + "; at most " +
                std::to_string(kMaxMbarriers) + " objects with counts of 1 to 2^20 - 1");
    return false;
  }
  if (s.checks()) {
    s.cta.shadow.Write(s.Who(lane), static_cast<uint32_t>(at.offset), kObjectBytes, nullptr);
    s.cta.shadow.SetObject(static_cast<uint32_t>(at.offset), kObjectBytes, true);
  }
  barrier->offset = static_cast<uint32_t>(at.offset);
  barrier->valid = true;
  barrier->expected = count;
  barrier->pending = count;
  barrier->bytes = 0;
  barrier->first_phase = barrier->phase;
  barrier->init_actor = s.warp.actor;
  barrier->init_clock = s.warp.clocks.seen[s.warp.actor];
  barrier->init_pc = s.pc;
  barrier->arriving.Reset(s.cluster.actors);
  for (ClockSet& completed : barrier->completed) completed.Reset(s.cluster.actors);
  return true;
}

Flow Init(Step& s) {
  s.cta.mbarriers.reserve(kMaxMbarriers);  // sleeping warps hold pointers to the objects
  bool good = true;
  ForLanes(s.mask, [&](int lane) { good = good && InitAt(s, lane, s.Src(1)[lane]); });
  s.cluster.events++;
  return good ? Flow::kNext : Flow::kStop;
}

Flow Invalidate(Step& s) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    Cta* owner = nullptr;
    Mbarrier* barrier = FindMbarrier(s, AddressOf(s, lane), lane, &owner);
    good = barrier != nullptr;
    if (!good) return;
    if (barrier->bytes != 0)
      s.Report(HazardKind::kMbarrierInUse, lane, barrier->offset,
               "invalidated with bytes outstanding", barrier->init_pc);
    barrier->valid = false;
    if (s.checks()) owner->shadow.SetObject(barrier->offset, kObjectBytes, false);
  });
  return good ? Flow::kNext : Flow::kStop;
}

bool ArriveAt(Step& s, Mbarrier* barrier, int lane, uint32_t count) {
  if (!CountArrivals(barrier, count)) {
    s.Fault(HazardKind::kMbarrierArrivals, lane, barrier->offset,
            At(barrier->offset) + ": " + std::to_string(count) + " arrivals, " +
                std::to_string(barrier->pending) + " of " + std::to_string(barrier->expected) +
                " missing in phase " + std::to_string(barrier->phase - barrier->first_phase));
    return false;
  }
  barrier->arriving.Join(s.warp.clocks);
  if ((s.ins.type & kDrop) != 0) barrier->expected -= count;
  return true;
}

// mbarrier.arrive{.expect_tx}, arrive_drop, expect_tx, complete_tx: src 1 is the count or bytes.
bool ArriveLane(Step& s, int lane) {
  Cta* owner = nullptr;
  Mbarrier* barrier = FindMbarrier(s, AddressOf(s, lane), lane, &owner);
  if (barrier == nullptr) return false;
  if (s.ins.dst != kNone) Put<uint64_t>(s.Dst(), lane, barrier->phase);
  const uint32_t operand = s.ins.src[1] != kNone ? s.Src(1)[lane] : 1;
  const bool transacts = (s.ins.type & (kExpectTx | kCompleteTx)) != 0;
  const int64_t bytes = (s.ins.type & kCompleteTx) != 0 ? -int64_t{operand} : int64_t{operand};
  if (transacts && !AddBytes(barrier, bytes)) {
    s.Fault(HazardKind::kMbarrierBytes, lane, barrier->offset,
            At(barrier->offset) + ": " + std::to_string(barrier->bytes) + " bytes outstanding");
    return false;
  }
  if ((s.ins.type & kNoArrive) == 0 && !ArriveAt(s, barrier, lane, transacts ? 1 : operand))
    return false;
  CompleteIfDone(s.cluster, barrier);
  return true;
}

Flow Arrive(Step& s) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) { good = good && ArriveLane(s, lane); });
  s.warp.clocks.seen[s.warp.actor]++;
  s.cluster.events++;
  return good ? Flow::kNext : Flow::kStop;
}

bool HasCompleted(const Step& s, const Mbarrier& barrier, int lane) {
  if ((s.ins.type & kParity) == 0) return barrier.phase > Get<uint64_t>(s.Src(1), lane);
  const uint64_t current = (barrier.phase - barrier.first_phase) & 1;
  return current != (s.Src(1)[lane] & 1);
}

// A wait that succeeded: the warp is ordered after all arrivals of the completed phase.
void Acquire(Step& s, const Mbarrier& barrier) {
  if (barrier.phase == barrier.first_phase) return;  // parity 1 of a fresh object
  s.warp.clocks.Join(barrier.completed[(barrier.phase - barrier.first_phase - 1) & 1]);
  s.warp.lane_epoch++;
}

// A wait may give up at any time (test_wait at once), so who asks once only must not rely on it.
// Unless everything lands early, the first wait of every warp does so in some phases, in all warps
// alike: where one waits properly, a barrier behind would hide that the others do not.
bool GivesUp(const Step& s, const Mbarrier& barrier) {
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;
  const Launch& launch = s.cluster.launch;
  if (launch.landing == When::kEarly) return false;
  uint64_t drawn = launch.seed;
  for (const uint64_t value : {uint64_t{barrier.offset}, barrier.phase, uint64_t(s.cta.block)})
    drawn = (drawn ^ value) * kMix ^ drawn >> 29;
  return (drawn >> 32) % (launch.landing == When::kLate ? 4 : 2) == 0;
}

// test_wait and try_wait. When no lane's phase has completed, the lanes sleep until something
// happens at some mbarrier; else the wait returns false only when nothing can happen any more.
Flow Wait(Step& s) {
  uint32_t done = 0;
  bool good = true, is_first = false;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    Cta* owner = nullptr;
    Mbarrier* barrier = FindMbarrier(s, AddressOf(s, lane), lane, &owner);
    good = barrier != nullptr;
    if (!good) return;
    if (owner != &s.cta) {
      s.Fault(HazardKind::kMbarrierInvalid, lane, barrier->offset,
              "waits on another block's mbarrier");
      good = false;
      return;
    }
    if (HasCompleted(s, *barrier, lane)) {
      done |= 1u << lane;
      Acquire(s, *barrier);
    } else {
      const uint32_t parity = s.Src(1)[lane] & 1;
      is_first = is_first || s.warp.sleeping_on != barrier || s.warp.sleeping_parity != parity;
      s.warp.sleeping_on = barrier;
      s.warp.sleeping_parity = parity;
    }
  });
  if (!good) return Flow::kStop;
  const bool gives_up = is_first && GivesUp(s, *s.warp.sleeping_on);
  if (done == 0 && !s.warp.wake_with_timeout && !gives_up) {
    s.warp.asleep |= s.active;
    return Flow::kRetry;
  }
  s.warp.wake_with_timeout = false;
  uint32_t& p = s.warp.predicates[s.ins.pdst[0]];
  p = (p & ~s.mask) | done;
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kMbarrierInit, Init},
    {Op::kMbarrierInval, Invalidate},
    {Op::kMbarrierArrive, Arrive},
    {Op::kMbarrierWait, Wait},
};

}  // namespace

Mbarrier* FindMbarrier(Step& s, uint64_t address, int lane, Cta** owner) {
  Location at;
  if (!ResolveShared(s, address, kObjectBytes, kObjectBytes, lane, &at)) return nullptr;
  Mbarrier* barrier = Lookup(*at.cta, at.offset);
  if (barrier == nullptr) {
    s.Fault(HazardKind::kMbarrierInvalid, lane, at.offset, At(at.offset));
    return nullptr;
  }
  const ClockSet& clocks = s.warp.clocks;
  const bool published = clocks.inits[barrier->init_actor] >= barrier->init_clock;
  const bool ordered = clocks.seen[barrier->init_actor] >= barrier->init_clock;
  if (s.checks() && !published && (!ordered || at.cta != &s.cta))
    s.Report(HazardKind::kMbarrierInitRace, lane, at.offset, At(at.offset), barrier->init_pc);
  *owner = at.cta;
  return barrier;
}

bool AddBytes(Mbarrier* barrier, int64_t bytes) {
  barrier->bytes += bytes;
  return std::abs(barrier->bytes) <= kMaxBytes;
}

bool CountArrivals(Mbarrier* barrier, uint32_t count) {
  if (barrier->pending < count) return false;
  barrier->pending -= count;
  return true;
}

void CompleteIfDone(Cluster& cluster, Mbarrier* barrier) {
  if (barrier->pending != 0 || barrier->bytes != 0) return;
  const uint64_t parity = (barrier->phase - barrier->first_phase) & 1;
  // What landed in this phase was written by the object.
  barrier->arriving.seen[barrier->actor] = static_cast<uint32_t>(barrier->phase + 1);
  barrier->completed[parity] = barrier->arriving;
  barrier->arriving.Reset(cluster.actors);
  barrier->phase++;
  barrier->pending = barrier->expected;
  cluster.WakeSleepers();
}

void AddMbarrierHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
