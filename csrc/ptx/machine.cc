// How a cluster starts, and how single instructions are executed.
#include "ptx/machine.h"

#include <algorithm>
#include <cstring>

namespace jaxpipe::ptx {
namespace {

constexpr uint32_t kPoison = 0xdeadbeefu;
constexpr uint8_t kPoisonByte = 0xff;  // NaN in every floating type, -1 in integers
constexpr int kWarpsPerGroup = 4;
constexpr uint32_t kRegistersPerSm = 65536;
constexpr uint32_t kMaxRegisters = 256;  // of a thread, as they are allocated

Flow Unsupported(Step& s) { return s.Fault(HazardKind::kUnsupported, -1, 0); }

HandlerTable BuildHandlers() {
  HandlerTable table{};
  table.fill(Unsupported);
  AddIntegerHandlers(table);
  AddFloatHandlers(table);
  AddConvertHandlers(table);
  AddPredicateHandlers(table);
  AddControlHandlers(table);
  AddWarpHandlers(table);
  AddMemoryHandlers(table);
  AddAddressHandlers(table);
  AddMatrixHandlers(table);
  AddCpAsyncHandlers(table);
  AddMbarrierHandlers(table);
  AddBulkHandlers(table);
  AddTensorMapHandlers(table);
  AddWgmmaHandlers(table);
  return table;
}

uint32_t Product(const uint32_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

void Unravel(uint64_t index, const uint32_t (&dims)[3], uint32_t (&out)[3]) {
  out[0] = static_cast<uint32_t>(index % dims[0]);
  out[1] = static_cast<uint32_t>(index / dims[0] % dims[1]);
  out[2] = static_cast<uint32_t>(index / dims[0] / dims[1]);
}

}  // namespace

const HandlerTable& Handlers() {
  static const HandlerTable table = BuildHandlers();
  return table;
}

bool Cta::ended() const {
  return std::all_of(warps.begin(), warps.end(), [](const Warp& w) { return w.live == 0; });
}

uint32_t Cta::live_threads() const {
  uint32_t threads = 0;
  for (const Warp& warp : warps) threads += warp.live != 0 ? kLanes : 0;
  return threads;
}

Cluster::Cluster(const Program& program, const Launch& launch, const GlobalMemory& global)
    : program(program),
      launch(launch),
      global(global),
      handlers(Handlers()),
      counters(program.code.size()) {
  constants.resize(program.constants.size() * 2 * kLanes);
  for (size_t i = 0; i < program.constants.size(); ++i) {
    uint32_t* at = &constants[i * 2 * kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      if (program.constant_is_wide[i] != 0)
        Put<uint64_t>(at, lane, program.constants[i]);
      else
        at[lane] = static_cast<uint32_t>(program.constants[i]);
    }
  }
  poison.assign(static_cast<size_t>(program.register_slots) * kLanes, kPoison);
  const uint32_t blocks = Product(launch.cluster);
  warps_per_cta = static_cast<int>(Product(launch.block) / kLanes);
  // Without .maxnreg the compiler knows the threads, and gives each what the register file allows.
  const uint32_t fair = kRegistersPerSm / (static_cast<uint32_t>(warps_per_cta) * kLanes);
  launch_registers =
      program.max_registers != 0 ? program.max_registers : std::min(fair & ~7u, kMaxRegisters);
  const int groups = program.uses_wgmma ? (warps_per_cta + kWarpsPerGroup - 1) / kWarpsPerGroup : 0;
  readers = static_cast<int>(blocks) * (warps_per_cta + groups);
  actors = readers + (program.uses_mbarrier ? static_cast<int>(blocks) * kMaxMbarriers : 0);
  ctas.resize(blocks);
  for (uint32_t rank = 0; rank < blocks; ++rank) {
    Cta& cta = ctas[rank];
    cta.rank = static_cast<int>(rank);
    cta.warps.resize(warps_per_cta);
    cta.warpgroups.resize(groups);
    for (int i = 0; i < groups; ++i)
      cta.warpgroups[i].actor =
          static_cast<int>(blocks) * warps_per_cta + static_cast<int>(rank) * groups + i;
    for (int i = 0; i < warps_per_cta; ++i) {
      cta.warps[i].index = i;
      cta.warps[i].actor = static_cast<int>(rank) * warps_per_cta + i;
      order.push_back(nullptr);
    }
  }
}

bool Cluster::Chance(When when) {
  if (when == When::kRandom) return (random() & 1) != 0;
  return when == When::kEarly;
}

void Cluster::StartCluster(uint64_t cluster_index) {
  random.seed(launch.seed * 0x9e3779b97f4a7c15ull + cluster_index);
  stopped = false;
  steps = 0;
  events = 0;
  last_timeout_events_ = ~uint64_t{0};
  bulk_copies.clear();
  bulk_stores.clear();
  cluster_barrier = ClusterBarrier();
  cluster_barrier.arriving.Reset(actors);
  cluster_barrier.completed.Reset(actors);
  uint32_t clusters[3];
  for (int i = 0; i < 3; ++i) clusters[i] = launch.grid[i] / launch.cluster[i];
  uint32_t at[3];
  Unravel(cluster_index, clusters, at);
  order.clear();
  for (Cta& cta : ctas) {
    uint32_t inside[3];
    Unravel(static_cast<uint64_t>(cta.rank), launch.cluster, inside);
    for (int i = 0; i < 3; ++i) cta.ctaid[i] = at[i] * launch.cluster[i] + inside[i];
    cta.block =
        cta.ctaid[0] + static_cast<int64_t>(launch.grid[0]) *
                           (cta.ctaid[1] + static_cast<int64_t>(launch.grid[1]) * cta.ctaid[2]);
    StartCta(cta);
    for (Warp& warp : cta.warps) order.push_back(&warp);
  }
  if (launch.order == Order::kDescending) std::reverse(order.begin(), order.end());
}

void Cluster::StartCta(Cta& cta) {
  const uint32_t bytes = kSharedBase + program.static_shared_bytes + launch.dynamic_shared_bytes;
  cta.shared.assign(bytes, kPoisonByte);
  if (launch.check)
    cta.shadow.Reset(bytes, static_cast<int>(ctas.size()) * warps_per_cta, readers,
                     cta.shared.data(), &log);
  for (NamedBarrier& barrier : cta.barriers) {
    barrier = NamedBarrier();
    barrier.clocks.Reset(actors);
  }
  cta.mbarriers.clear();
  for (Warpgroup& group : cta.warpgroups) {
    group.ops.clear();
    group.executed = 0;
  }
  for (Warp& warp : cta.warps) {
    warp.cta = &cta;
    StartWarp(warp);
  }
}

void Cluster::StartWarp(Warp& warp) {
  warp.registers = poison;
  warp.predicates.assign(program.predicate_slots, 0);
  warp.predicates[kTruePred] = kAllLanes;
  warp.local.assign(static_cast<size_t>(program.local_bytes) * kLanes, kPoisonByte);
  warp.uniform = true;
  warp.pc = 0;
  warp.live = kAllLanes;
  warp.converging = warp.asleep = warp.yielded = 0;
  warp.cluster_generation = 0;
  warp.wait = Wait::kNone;
  warp.wake_with_timeout = warp.reducing = false;
  warp.sleeping_on = nullptr;
  warp.lane_epoch = 1;
  warp.clocks.Reset(actors);
  warp.clocks.seen[warp.actor] = 1;
  warp.copies = CpAsyncQueue();
  warp.bulk = BulkGroups();
  warp.register_limit = launch_registers;
  warp.wgmma = WgmmaQueue();
  if (program.uses_wgmma) {
    warp.wgmma.touched.assign(program.register_slots, 1);
    warp.wgmma.in_flight.assign(program.register_slots, 0);
    warp.wgmma.clock = 1;
  }
  FillSpecialRegisters(warp);
}

void Cluster::FillSpecialRegisters(Warp& warp) {
  const Cta& cta = *warp.cta;
  const auto set = [&](int32_t slot, uint32_t value) {
    std::fill_n(warp.Reg(slot), kLanes, value);
  };
  uint32_t cluster_grid[3];
  for (int i = 0; i < 3; ++i) cluster_grid[i] = launch.grid[i] / launch.cluster[i];
  uint32_t inside[3];
  Unravel(static_cast<uint64_t>(cta.rank), launch.cluster, inside);
  for (int i = 0; i < 3; ++i) {
    set(kCtaidX + i, cta.ctaid[i]);
    set(kNtidX + i, launch.block[i]);
    set(kNctaidX + i, launch.grid[i]);
    set(kClusterIdX + i, cta.ctaid[i] / launch.cluster[i]);
    set(kNclusterIdX + i, cluster_grid[i]);
    set(kClusterCtaidX + i, inside[i]);
    set(kClusterNctaidX + i, launch.cluster[i]);
  }
  set(kWarpId, static_cast<uint32_t>(warp.index));
  set(kClusterCtaRank, static_cast<uint32_t>(cta.rank));
  set(kClusterNctaRank, static_cast<uint32_t>(ctas.size()));
  set(kDynamicSharedSize, launch.dynamic_shared_bytes);
  set(kTotalSharedSize, program.static_shared_bytes + launch.dynamic_shared_bytes);
  set(kSmId, static_cast<uint32_t>(cta.block));
  for (int lane = 0; lane < kLanes; ++lane) {
    uint32_t tid[3];
    Unravel(static_cast<uint64_t>(warp.index) * kLanes + lane, launch.block, tid);
    for (int i = 0; i < 3; ++i) warp.Reg(kTidX + i)[lane] = tid[i];
    const uint32_t bit = 1u << lane;
    warp.Reg(kLaneId)[lane] = lane;
    warp.Reg(kLaneMaskEq)[lane] = bit;
    warp.Reg(kLaneMaskLt)[lane] = bit - 1;
    warp.Reg(kLaneMaskLe)[lane] = bit | (bit - 1);
    warp.Reg(kLaneMaskGt)[lane] = ~(bit | (bit - 1));
    warp.Reg(kLaneMaskGe)[lane] = ~(bit - 1);
  }
}

}  // namespace jaxpipe::ptx
