// Loops over work items in dependent phases, shared between the caller and optional helpers.
#ifndef JAXPIPE_HOST_PARALLEL_H_
#define JAXPIPE_HOST_PARALLEL_H_

#include <cstdint>
#include <functional>

#include "host/task_pool.h"

namespace jaxpipe::host {

inline constexpr int kMaxPhases = 2;

struct Phases {
  int count = 0;
  int64_t items[kMaxPhases] = {0, 0};
};

// Calls body(phase, item) once for every item of every phase; an item of phase p starts after all
// items of phase p-1 ended. At most `threads` run at once: the caller and threads-1 scheduled
// helpers. The caller never waits for a helper that has not begun an item, so a pool whose threads
// are all busy (or all inside calls like this one) delays nothing and cannot deadlock.
// Each participant starts in its own contiguous share of the items and then helps the others, so
// that repeated calls touch the same memory from the same thread.
void RunPhases(TaskPool* pool, int threads, const Phases& phases,
               const std::function<void(int phase, int64_t item)>& body);

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_PARALLEL_H_
