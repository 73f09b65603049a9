#include "ptx/grid.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace jaxpipe::ptx {
namespace {

constexpr uint64_t kMaxThreadsPerBlock = 1024;
constexpr uint64_t kMaxReaders = 64;

uint64_t Product(const uint32_t (&dims)[3]) {
  return static_cast<uint64_t>(dims[0]) * dims[1] * dims[2];
}

Status Check(const Program& program, const Launch& launch) {
  const uint64_t threads = Product(launch.block);
  const uint64_t blocks = Product(launch.cluster);
  if (Product(launch.grid) == 0 || blocks == 0)
    return InvalidArgument("a grid and a cluster need at least one block");
  for (int i = 0; i < 3; ++i)
    if (launch.grid[i] % launch.cluster[i] != 0)
      return InvalidArgument("grid dimension " + std::to_string(i) + " is " +
                             std::to_string(launch.grid[i]) + ", no multiple of the cluster's " +
                             std::to_string(launch.cluster[i]));
  if (threads == 0 || threads > kMaxThreadsPerBlock || threads % kLanes != 0)
    return InvalidArgument("a block has " + std::to_string(threads) +
                           " threads: the interpreter takes multiples of 32 up to 1024");
  const uint64_t warps = threads / kLanes;
  if (blocks * (warps + (program.uses_wgmma ? (warps + 3) / 4 : 0)) > kMaxReaders)
    return InvalidArgument("a cluster of " + std::to_string(blocks) + " blocks of " +
                           std::to_string(threads) +
                           " threads is more than the interpreter follows (64 warps)");
  if (launch.params.size() < program.param_bytes)
    return InvalidArgument("parameters take " + std::to_string(program.param_bytes) +
                           " bytes, got " + std::to_string(launch.params.size()));
  return Status();
}

// Shared by the workers: the next cluster to run, and where they leave their results.
struct Work {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  HazardLog log;
  std::vector<Counters> counters;
};

void RunWorker(const Program& program, const Launch& launch, const GlobalMemory& global,
               uint64_t clusters, Work* work) {
  Cluster cluster(program, launch, global);
  while (!work->stop) {
    const uint64_t index = work->next++;
    if (index >= clusters) break;
    cluster.Run(index);
    if (cluster.stopped) work->stop = true;  // a fatal hazard: later blocks tell nothing new
  }
  const std::lock_guard<std::mutex> lock(work->mutex);
  work->log.Merge(cluster.log);
  for (size_t pc = 0; pc < work->counters.size(); ++pc)
    work->counters[pc].Add(cluster.counters[pc]);
}

}  // namespace

Status RunGrid(const Program& program, const Launch& launch, const GlobalMemory& global,
               int threads, Outcome* outcome) {
  JAXPIPE_RETURN_IF_ERROR(Check(program, launch));
  const uint64_t clusters = Product(launch.grid) / Product(launch.cluster);
  Work work;
  work.counters.resize(program.code.size());
  const int workers =
      static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(std::max(threads, 1)), clusters));
  std::vector<std::thread> pool;
  for (int i = 1; i < workers; ++i)
    pool.emplace_back(RunWorker, std::cref(program), std::cref(launch), std::cref(global), clusters,
                      &work);
  RunWorker(program, launch, global, clusters, &work);
  for (std::thread& thread : pool) thread.join();
  outcome->hazards = work.log.Sorted();
  outcome->counters = std::move(work.counters);
  return Status();
}

}  // namespace jaxpipe::ptx
