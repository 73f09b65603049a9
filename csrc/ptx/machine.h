// The state of one running cluster of blocks, and the step that every instruction is executed in.
#ifndef JAXPIPE_PTX_MACHINE_H_
#define JAXPIPE_PTX_MACHINE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ptx/async.h"
#include "ptx/clocks.h"
#include "ptx/counters.h"
#include "ptx/global_memory.h"
#include "ptx/hazard.h"
#include "ptx/lanes.h"
#include "ptx/program.h"
#include "ptx/shadow.h"

namespace jaxpipe::ptx {

// When asynchronous copies reach memory: as late as the waits allow, at once, or at random.
enum class When { kLate, kEarly, kRandom };
// In which order the warps of a cluster run: each as far as it can, or random short turns.
enum class Order { kAscending, kDescending, kRandom };

struct Launch {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {32, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  std::vector<uint8_t> params;
  When landing = When::kLate;
  Order order = Order::kAscending;
  uint64_t seed = 0;
  bool check = true;
  uint64_t max_steps = uint64_t{1} << 31;  // warp instructions a cluster
};

struct Cta;
struct Cluster;

enum class Wait { kNone, kBarrier, kClusterBarrier, kWarpgroup, kRegisters, kExited };

struct Warp {
  int index = 0;  // in its block
  int32_t actor = 0;
  Cta* cta = nullptr;
  std::vector<uint32_t> registers;   // 32 lanes a slot
  std::vector<uint32_t> predicates;  // a mask of lanes a slot
  std::vector<uint8_t> local;        // Program::local_bytes a lane

  // Divergence. While uniform, all live lanes are at pc.
  bool uniform = true;
  uint32_t pc = 0;
  uint32_t lane_pc[kLanes] = {};
  uint32_t live = kAllLanes;
  uint32_t converging = 0;  // lanes that wait at a collective for others of the warp
  uint32_t asleep = 0;      // lanes that wait at an mbarrier
  uint32_t yielded = 0;     // lanes that gave way to others of the warp for one turn
  const Mbarrier* sleeping_on = nullptr;
  uint32_t sleeping_parity = 0;

  Wait wait = Wait::kNone;
  int barrier_id = 0;
  bool reducing = false;            // entered a bar.red and not yet read its result
  uint64_t cluster_generation = 0;  // of the cluster barrier when the warp arrived
  bool wake_with_timeout = false;   // the next failing try_wait returns false
  uint32_t lane_epoch = 0;
  ClockSet clocks;
  CpAsyncQueue copies;
  BulkGroups bulk;
  WgmmaQueue wgmma;
  uint32_t register_limit = 0;  // per thread, changed by setmaxnreg

  uint32_t* Reg(int32_t slot) { return &registers[static_cast<size_t>(slot) * kLanes]; }
  uint32_t PcOf(int lane) const { return uniform ? pc : lane_pc[lane]; }
  // The lanes that execute next and their common pc; 0 when none can.
  uint32_t SelectGroup(uint32_t* group_pc);
  void Advance(uint32_t lanes, uint32_t next_pc);
  void Branch(uint32_t taken, uint32_t not_taken, uint32_t target, uint32_t next_pc);
  void Diverge();
};

// What bar.red computes over the predicates of all threads.
struct BarrierReduction {
  bool any = false;
  bool all = true;
  uint32_t count = 0;
};

// A named barrier of a block (bar.sync, bar.arrive, bar.red).
struct NamedBarrier {
  uint32_t threads = 0;  // expected; 0 means all of the block
  uint32_t arrived = 0;
  int32_t pc = -1;  // the first arrival
  BarrierReduction reduction;
  BarrierReduction completed;  // of the last phase
  ClockSet clocks;

  void Clear() {
    threads = arrived = 0;
    pc = -1;
    reduction = BarrierReduction();
    clocks.Reset(clocks.seen.size());
  }
};

inline constexpr int kNamedBarriers = 16;

// barrier.cluster: arrive and wait are separate.
struct ClusterBarrier {
  uint32_t arrived = 0;
  uint64_t generation = 0;
  ClockSet arriving;
  ClockSet completed;
};

struct Cta {
  int rank = 0;  // in the cluster
  int64_t block = 0;
  uint32_t ctaid[3] = {};
  std::vector<Warp> warps;
  std::vector<uint8_t> shared;  // offset = address; the first kSharedBase bytes are never used
  Shadow shadow;
  std::array<NamedBarrier, kNamedBarriers> barriers;
  std::vector<Mbarrier> mbarriers;
  std::vector<Warpgroup> warpgroups;
  bool ended() const;
  uint32_t live_threads() const;
};

enum class Flow {
  kNext,    // go on at the next instruction
  kJumped,  // the handler set the program counters
  kRetry,   // the lanes wait; execute the instruction again later
  kBlock,   // go on at the next instruction once Warp::wait is cleared
  kStop,    // a fatal hazard: the cluster ends
};

struct Step {
  Cluster& cluster;
  Cta& cta;
  Warp& warp;
  const Instruction& ins;
  int32_t pc;
  uint32_t active;  // lanes that are here
  uint32_t mask;    // of them, those whose guard holds

  const uint32_t* Src(int i) const { return Operand(ins.src[i]); }
  const uint32_t* Operand(int32_t operand) const;
  uint32_t* Dst() const { return warp.Reg(ins.dst); }
  int32_t ListAt(int i) const;
  uint32_t PredicateOperand() const;  // lanes where psrc holds; all when absent
  uint64_t SrcAsU64(int i, int lane, bool wide) const;

  Accessor Who(int32_t lane) const;
  bool checks() const;
  Counters& counters() const;
  void Report(HazardKind kind, int lane, uint64_t address, std::string detail = "",
              int32_t other_pc = -1) const;
  Flow Fault(HazardKind kind, int lane, uint64_t address, std::string detail = "",
             int32_t other_pc = -1) const;
};

using Handler = Flow (*)(Step&);
using HandlerTable = std::array<Handler, kOpCount>;

// One row of a file's table of handlers.
struct HandlerRow {
  Op op;
  Handler handler;
};

const HandlerTable& Handlers();

// Runs the clusters of a launch, one after another; one Cluster a worker thread.
struct Cluster {
  Cluster(const Program& program, const Launch& launch, const GlobalMemory& global);

  void Run(uint64_t cluster_index);

  const Program& program;
  const Launch& launch;
  const GlobalMemory& global;
  const HandlerTable& handlers;
  std::vector<Counters> counters;
  HazardLog log;

  std::vector<Cta> ctas;
  std::vector<Warp*> order;  // all warps, in turn order
  int warps_per_cta = 0;
  uint32_t launch_registers = 0;  // per thread, when a block starts
  int readers = 0;                // actors that are warps or warpgroups
  int actors = 0;
  std::vector<uint32_t> constants;  // 32 lanes each, 64-bit layout doubled
  std::vector<uint32_t> poison;     // initial registers

  std::deque<BulkCopy> bulk_copies;   // issued, not landed
  std::deque<BulkStore> bulk_stores;  // issued, not read
  ClusterBarrier cluster_barrier;
  uint64_t events = 0;  // changes that another warp could see
  uint64_t steps = 0;
  bool stopped = false;
  std::mt19937_64 random;

  Cta* FindCta(uint32_t rank) { return rank < ctas.size() ? &ctas[rank] : nullptr; }
  bool Chance(When when);  // true: land now
  void WakeSleepers();
  void ReleaseBarriers(Cta& cta);
  void ReleaseClusterBarrier();
  void EndWarp(Warp& warp, int32_t pc);
  void Stop(Hazard hazard);

 private:
  void StartCluster(uint64_t cluster_index);
  void StartCta(Cta& cta);
  void StartWarp(Warp& warp);
  void FillSpecialRegisters(Warp& warp);
  bool RunRound();
  bool RunWarp(Warp& warp);
  bool ExecuteOne(Warp& warp);
  bool Converge(Step& step);
  bool Finish(Step& step, Flow flow);
  bool Timeout();
  void EndCluster();
  void ReportStuckLanes(Warp& warp);
  void ReportDeadlock();
  std::string DescribeWait(const Warp& warp) const;
  uint64_t last_timeout_events_ = ~uint64_t{0};
};

// Copies and stores in flight; called when no warp can go on, and at the end.
bool LandOneBulkCopy(Cluster& cluster);
bool LandOneArrival(Cluster& cluster);
void FinishBulkStore(Cluster& cluster, const BulkStore& store);
// Hazards of registers that wgmma uses, before the instruction is executed.
void TrackWgmmaRegisters(Step& step);

void AddIntegerHandlers(HandlerTable& table);
void AddFloatHandlers(HandlerTable& table);
void AddConvertHandlers(HandlerTable& table);
void AddPredicateHandlers(HandlerTable& table);
void AddControlHandlers(HandlerTable& table);
void AddWarpHandlers(HandlerTable& table);
void AddMemoryHandlers(HandlerTable& table);
void AddAddressHandlers(HandlerTable& table);
void AddMatrixHandlers(HandlerTable& table);
void AddCpAsyncHandlers(HandlerTable& table);
void AddMbarrierHandlers(HandlerTable& table);
void AddBulkHandlers(HandlerTable& table);
void AddTensorMapHandlers(HandlerTable& table);
void AddWgmmaHandlers(HandlerTable& table);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_MACHINE_H_
