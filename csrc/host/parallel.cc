#include "host/parallel.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "host/denormals.h"

namespace jaxpipe::host {
namespace {

constexpr int kMaxShares = 64;
constexpr int kSpinsBeforeYield = 2000;

struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

struct Phase {
  std::unique_ptr<Share[]> shares;
  int64_t items = 0;
  alignas(64) std::atomic<int64_t> done{0};
};

// Outlives the call: helpers that start late find every share exhausted and leave.
struct Loop {
  Phase phases[kMaxPhases];
  int num_phases = 0;
  int num_shares = 0;
  std::atomic<int> joined{1};                               // the caller is participant 0
  const std::function<void(int, int64_t)>* body = nullptr;  // only valid while an item is claimed
};

void InitPhase(Phase* phase, int64_t items, int shares) {
  phase->items = items;
  phase->shares = std::make_unique<Share[]>(shares);
  for (int s = 0; s < shares; ++s) {
    phase->shares[s].next.store(items * s / shares, std::memory_order_relaxed);
    phase->shares[s].end = items * (s + 1) / shares;
  }
}

void DrainShare(Loop* loop, int p, Share* share) {
  Phase& phase = loop->phases[p];
  while (share->next.load(std::memory_order_relaxed) < share->end) {
    const int64_t item = share->next.fetch_add(1, std::memory_order_relaxed);
    if (item >= share->end) return;
    (*loop->body)(p, item);
    phase.done.fetch_add(1, std::memory_order_release);
  }
}

void AwaitPhase(const Phase& phase) {
  for (int spins = 0; phase.done.load(std::memory_order_acquire) < phase.items; ++spins) {
    if (spins < kSpinsBeforeYield) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }
}

void Participate(Loop* loop, int self) {
  for (int p = 0; p < loop->num_phases; ++p) {
    for (int s = 0; s < loop->num_shares; ++s) {
      DrainShare(loop, p, &loop->phases[p].shares[(self + s) % loop->num_shares]);
    }
    AwaitPhase(loop->phases[p]);
  }
}

bool AllDone(const Loop& loop) {
  const Phase& last = loop.phases[loop.num_phases - 1];
  return last.done.load(std::memory_order_acquire) >= last.items;
}

void RunSerially(const Phases& phases, const std::function<void(int, int64_t)>& body) {
  FlushDenormals flush;
  for (int p = 0; p < phases.count; ++p) {
    for (int64_t i = 0; i < phases.items[p]; ++i) body(p, i);
  }
}

}  // namespace

void RunPhases(TaskPool* pool, int threads, const Phases& phases,
               const std::function<void(int phase, int64_t item)>& body) {
  int64_t widest = 0;
  for (int p = 0; p < phases.count; ++p) widest = std::max(widest, phases.items[p]);
  const int workers = static_cast<int>(std::min<int64_t>({threads, widest, kMaxShares}));
  if (workers <= 1 || pool == nullptr) return RunSerially(phases, body);

  auto loop = std::make_shared<Loop>();
  loop->num_phases = phases.count;
  loop->num_shares = workers;
  loop->body = &body;
  for (int p = 0; p < phases.count; ++p) InitPhase(&loop->phases[p], phases.items[p], workers);
  for (int h = 1; h < workers; ++h) {
    pool->Schedule([loop] {
      if (AllDone(*loop)) return;
      FlushDenormals flush;
      Participate(loop.get(), loop->joined.fetch_add(1, std::memory_order_relaxed));
    });
  }
  FlushDenormals flush;
  Participate(loop.get(), 0);
}

}  // namespace jaxpipe::host
