// Times a kernel by itself: launches captured in a CUDA graph, replayed between events.
#ifndef JAXPIPE_CUDA_TIMER_H_
#define JAXPIPE_CUDA_TIMER_H_

#include <string_view>
#include <vector>

#include "cuda/launcher.h"
#include "recipe.h"
#include "status.h"

namespace jaxpipe::cuda {

// The buffers of one call, in the recipe's order.
struct CallBuffers {
  std::vector<Buffer> operands, results;
};

// Launches once over every entry of `calls` in the primary context of `device`, and waits.
Status RunCalls(int device, const Recipe& recipe, std::string_view key, std::string_view compressed,
                const std::vector<CallBuffers>& calls);

// Seconds per launch, one entry a sample. One graph holds `launches` launches, taking the entries
// of `calls` in turn, so that operands come from memory when the calls together exceed the cache;
// a sample is one replay between two events. The first replay is not counted.
Status TimeCalls(int device, const Recipe& recipe, std::string_view key,
                 std::string_view compressed, const std::vector<CallBuffers>& calls, int launches,
                 int samples, std::vector<double>* seconds);

}  // namespace jaxpipe::cuda

#endif  // JAXPIPE_CUDA_TIMER_H_
