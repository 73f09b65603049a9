// Who runs next: turns of warps, barriers, landing of late copies, deadlock.
#include <algorithm>
#include <map>
#include <sstream>

#include "ptx/machine.h"

namespace jaxpipe::ptx {
namespace {

constexpr int kLongTurn = 1 << 16;  // instructions of an undisturbed turn
constexpr int kShortestTurn = 1;    // of a random one
constexpr int kLongestRandomTurn = 48;

std::string Hex(uint64_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return out.str();
}

}  // namespace

void Cluster::Run(uint64_t cluster_index) {
  StartCluster(cluster_index);
  while (!stopped) {
    const bool alive =
        std::any_of(order.begin(), order.end(), [](const Warp* w) { return w->live != 0; });
    if (!alive) break;
    if (RunRound() || stopped) continue;
    if (LandOneBulkCopy(*this) || LandOneArrival(*this)) continue;
    if (Timeout()) continue;
    ReportDeadlock();
  }
  EndCluster();
}

bool Cluster::RunRound() {
  if (launch.order == Order::kRandom) std::shuffle(order.begin(), order.end(), random);
  bool progressed = false;
  for (Warp* warp : order) {
    if (stopped) break;
    if (warp->live != 0 && warp->wait == Wait::kNone) progressed = RunWarp(*warp) || progressed;
    if (launch.landing == When::kRandom && !bulk_copies.empty() && (random() & 7) == 0)
      progressed = LandOneBulkCopy(*this) || progressed;
    if (launch.landing == When::kRandom && !warp->copies.arrivals.empty() && (random() & 7) == 0)
      progressed = LandOneArrival(*this) || progressed;
  }
  return progressed;
}

bool Cluster::RunWarp(Warp& warp) {
  warp.yielded = 0;
  int turn = kLongTurn;
  if (launch.order == Order::kRandom)
    turn = std::uniform_int_distribution<int>(kShortestTurn, kLongestRandomTurn)(random);
  bool progressed = false;
  for (int i = 0; i < turn; ++i) {
    if (warp.live == 0 || warp.wait != Wait::kNone || stopped) return progressed;
    if (!ExecuteOne(warp)) return progressed;
    progressed = true;
  }
  // The turn is over. Lanes of a diverged warp give way to their siblings at other places.
  uint32_t pc = 0;
  const uint32_t group = warp.SelectGroup(&pc);
  if (group != warp.live) warp.yielded = group;
  return progressed;
}

// Returns false when no lane of the warp can execute.
bool Cluster::ExecuteOne(Warp& warp) {
  uint32_t pc = 0;
  const uint32_t active = warp.SelectGroup(&pc);
  if (active == 0) {
    if (warp.yielded != 0 && (warp.live & ~warp.converging & ~warp.asleep) != 0) {
      warp.yielded = 0;
      return true;
    }
    if (warp.converging != 0 && warp.asleep == 0) ReportStuckLanes(warp);
    return false;
  }
  if (++steps > launch.max_steps) {
    Stop({HazardKind::kStepLimit, static_cast<int32_t>(pc), -1, warp.cta->block, warp.index, -1, 0,
          1, std::to_string(launch.max_steps) + " warp instructions"});
    return false;
  }
  const Instruction& ins = program.code[pc];
  uint32_t mask = active;
  if (ins.guard != kNone) {
    const uint32_t holds = warp.predicates[ins.guard];
    mask &= (ins.flags & kGuardNegated) != 0 ? ~holds : holds;
  }
  Step step{*this, *warp.cta, warp, ins, static_cast<int32_t>(pc), active, mask};
  if ((ins.flags & (kConverges | kAligned)) != 0 && !Converge(step)) return !stopped;
  if (program.uses_wgmma && launch.check && mask != 0) TrackWgmmaRegisters(step);
  return Finish(step, mask != 0 ? handlers[ins.op](step) : Flow::kNext);
}

// Applies what the handler said; returns false when the warp must give way.
bool Cluster::Finish(Step& step, Flow flow) {
  Warp& warp = step.warp;
  if (flow == Flow::kRetry) return warp.wait == Wait::kNone;
  Counters& counted = counters[step.pc];
  counted.executions++;
  counted.lanes += __builtin_popcount(step.mask);
  if (flow == Flow::kStop) return false;
  if (flow != Flow::kJumped) warp.Advance(step.active, step.pc + 1);
  return true;
}

// Waits until the lanes that a collective names are here; returns false when some are missing.
bool Cluster::Converge(Step& step) {
  Warp& warp = step.warp;
  if (step.mask == 0) return true;
  uint32_t members = warp.live;
  if ((step.ins.flags & kAligned) == 0) members &= step.Src(3)[FirstLane(step.mask)];
  if ((members & ~step.active) != 0) {
    warp.converging |= step.active;
    return false;
  }
  if ((members & ~step.mask) != 0) {
    step.Fault(HazardKind::kDivergence, -1, 0,
               "lanes " + Hex(members & ~step.mask) + " are switched off by its guard");
    return false;
  }
  warp.converging &= ~step.active;
  return true;
}

void Cluster::Stop(Hazard hazard) {
  log.Add(std::move(hazard));
  stopped = true;
}

void Cluster::ReportStuckLanes(Warp& warp) {
  Hazard hazard;
  hazard.kind = HazardKind::kDivergence;
  hazard.pc = static_cast<int32_t>(warp.PcOf(FirstLane(warp.converging)));
  hazard.block = warp.cta->block;
  hazard.warp = warp.index;
  uint32_t elsewhere = 0;
  ForLanes(warp.live, [&](int lane) {
    if (static_cast<int32_t>(warp.PcOf(lane)) == hazard.pc) return;
    elsewhere |= 1u << lane;
    hazard.other_pc = static_cast<int32_t>(warp.PcOf(lane));
  });
  hazard.detail = "lanes " + Hex(warp.live & ~elsewhere) + " are here, lanes " + Hex(elsewhere) +
                  " are not" + (warp.live != kAllLanes ? ", the others have exited" : "");
  Stop(std::move(hazard));
}

void Cluster::WakeSleepers() {
  events++;
  for (Warp* warp : order) {
    warp->asleep = 0;
    warp->wake_with_timeout = false;
  }
}

// A try_wait may also return false after a while. If nothing happened since the last time that
// this was tried, nobody is left who could make anything happen.
bool Cluster::Timeout() {
  if (last_timeout_events_ == events) return false;
  last_timeout_events_ = events;
  bool any = false;
  for (Warp* warp : order) {
    if (warp->live == 0 || warp->asleep == 0) continue;
    warp->asleep = 0;
    warp->wake_with_timeout = true;
    any = true;
  }
  return any;
}

void Cluster::ReleaseBarriers(Cta& cta) {
  const uint32_t live = cta.live_threads();
  for (int id = 0; id < kNamedBarriers; ++id) {
    NamedBarrier& barrier = cta.barriers[id];
    const uint32_t needed = barrier.threads != 0 ? barrier.threads : live;
    if (barrier.arrived == 0 || barrier.arrived < needed) continue;
    events++;
    for (Warp& warp : cta.warps) {
      if (warp.live == 0 || warp.wait != Wait::kBarrier || warp.barrier_id != id) continue;
      warp.clocks.Join(barrier.clocks);
      warp.clocks.seen[warp.actor]++;
      warp.lane_epoch++;
      warp.wait = Wait::kNone;
    }
    barrier.completed = barrier.reduction;
    barrier.Clear();
  }
}

void Cluster::ReleaseClusterBarrier() {
  uint32_t live = 0;
  for (const Cta& cta : ctas) live += cta.live_threads();
  if (cluster_barrier.arrived == 0 || cluster_barrier.arrived < live) return;
  events++;
  cluster_barrier.arrived = 0;
  cluster_barrier.generation++;
  cluster_barrier.completed = cluster_barrier.arriving;
  cluster_barrier.arriving.Reset(actors);
  for (Warp* warp : order)
    if (warp->wait == Wait::kClusterBarrier) warp->wait = Wait::kNone;
}

void Cluster::EndWarp(Warp& warp, int32_t pc) {
  events++;
  warp.wait = Wait::kExited;
  const auto report = [&](int32_t pending_pc, const char* what) {
    log.Add(
        {HazardKind::kExitPending, pending_pc, pc, warp.cta->block, warp.index, -1, 0, 1, what});
  };
  if (launch.check) {
    for (const CpAsync& copy : warp.copies.copies)
      if (copy.mask != warp.copies.Awaited(copy)) report(copy.pc, "cp.async without a wait");
    for (const WgmmaQueue::Pending& pending : warp.wgmma.pending) {
      const Warpgroup& group = warp.cta->warpgroups[warp.index / 4];
      report(group.ops[pending.sequence].pc, "wgmma without a wait_group");
    }
  }
  ReleaseBarriers(*warp.cta);
  ReleaseClusterBarrier();
}

void Cluster::EndCluster() {
  for (const BulkStore& store : bulk_stores) {
    if (!stopped)
      log.Add({HazardKind::kExitPending, store.pc, -1, store.cta->block, 0, store.lane, 0, 1,
               "bulk store without cp.async.bulk.wait_group"});
    if (!store.done) FinishBulkStore(*this, store);
  }
  if (stopped) return;
  for (const BulkCopy& copy : bulk_copies)
    log.Add({HazardKind::kExitPending, copy.pc, -1, copy.cta->block, 0, -1, 0, 1,
             "bulk copy that nobody waited for"});
  for (const Warp* warp : order)
    for (const CpAsyncArrival& arrival : warp->copies.arrivals)
      log.Add({HazardKind::kExitPending, arrival.pc, -1, warp->cta->block, warp->index, -1, 0, 1,
               "copies that nobody waited for"});
}

std::string Cluster::DescribeWait(const Warp& warp) const {
  std::ostringstream out;
  const uint32_t lane = FirstLane(warp.asleep != 0 ? warp.asleep : warp.live);
  const int32_t pc = static_cast<int32_t>(warp.PcOf(lane));
  if (warp.wait == Wait::kBarrier) {
    const NamedBarrier& barrier = warp.cta->barriers[warp.barrier_id];
    out << "wait at barrier " << warp.barrier_id << ", " << barrier.arrived << " of "
        << (barrier.threads != 0 ? barrier.threads : warp.cta->live_threads())
        << " threads arrived, " << DescribeInstruction(program, pc - 1);
  } else if (warp.wait == Wait::kClusterBarrier) {
    out << "wait at the cluster barrier, " << cluster_barrier.arrived << " threads arrived";
  } else if (warp.wait == Wait::kRegisters) {
    uint64_t held = 0;
    for (const Warp& other : warp.cta->warps) held += other.register_limit * kLanes;
    out << "wait for registers, of which their block holds " << held << " of "
        << uint64_t{launch_registers} * kLanes * warp.cta->warps.size() << ", "
        << DescribeInstruction(program, pc);
  } else if (warp.wait == Wait::kWarpgroup) {
    out << "wait for the other warps of its warpgroup at " << DescribeInstruction(program, pc);
  } else if (warp.asleep != 0 && warp.sleeping_on != nullptr) {
    const Mbarrier& barrier = *warp.sleeping_on;
    out << "wait for parity " << warp.sleeping_parity << " of the mbarrier at "
        << Hex(barrier.offset) << " (phase " << barrier.phase - barrier.first_phase << ": "
        << barrier.pending << " arrivals and " << barrier.bytes << " bytes missing), "
        << DescribeInstruction(program, pc);
  } else {
    out << "are at " << DescribeInstruction(program, pc);
  }
  return out.str();
}

void Cluster::ReportDeadlock() {
  Hazard hazard;
  hazard.kind = HazardKind::kDeadlock;
  // Warps that wait for the same thing share a sentence.
  std::map<std::string, std::string> waits;
  for (const Cta& cta : ctas) {
    for (const Warp& warp : cta.warps) {
      if (warp.live == 0) continue;
      if (warp.wait == Wait::kRegisters) hazard.kind = HazardKind::kRegisterLimit;
      if (hazard.pc < 0) {
        // A warp at a barrier has its next instruction in front of it.
        hazard.pc = warp.wait == Wait::kBarrier
                        ? cta.barriers[warp.barrier_id].pc
                        : static_cast<int32_t>(warp.PcOf(FirstLane(warp.live)));
        hazard.block = cta.block;
        hazard.warp = warp.index;
      }
      std::string& who = waits["block " + std::to_string(cta.block) + " % " + DescribeWait(warp)];
      who += (who.empty() ? "" : ", ") + std::to_string(warp.index);
    }
  }
  for (const auto& [wait, warps] : waits) {
    const size_t at = wait.find('%');
    hazard.detail += (hazard.detail.empty() ? "" : "; ") + wait.substr(0, at) + "warps " + warps +
                     wait.substr(at + 1);
  }
  Stop(std::move(hazard));
}

}  // namespace jaxpipe::ptx
