// cp.async: copies of single threads from global to shared memory, in commit groups.
//
// A copy is checked as a write when issued and is in flight until its thread waits for its group;
// only then is it a write by that thread. Late landing leaves poison until the wait.
#include <algorithm>
#include <cstring>

#include "ptx/address.h"

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

// Lands the lanes of `lanes` and takes them off the copy.
void Land(Step& s, CpAsync& copy, uint32_t lanes, int32_t writer, uint32_t clock) {
  ForLanes(lanes, [&](int lane) {
    if (!copy.landed) std::memcpy(&s.cta.shared[copy.dst[lane]], copy.data[lane], copy.width);
    if (s.checks())
      s.cta.shadow.LandCopy({writer, clock, copy.pc, lane, s.warp.lane_epoch, true}, copy.dst[lane],
                            copy.width);
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
    Land(s, copy, done, s.warp.actor, s.warp.clocks.seen[s.warp.actor]);
  }
  DropFinished(queue.copies);
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kCpAsync, Issue},
    {Op::kCpAsyncCommit, Commit},
    {Op::kCpAsyncWait, WaitGroup},
};

}  // namespace

void AddCpAsyncHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
