// Modules: a kernel's binary, loaded once per content and context.
//
// A function handle is valid in one context only, so the cache key is (content key, context).
// Modules stay loaded until UnloadModules: programs that XLA still holds, or CUDA graphs that
// captured a launch, may use them at any time.
#ifndef JAXPIPE_CUDA_MODULE_H_
#define JAXPIPE_CUDA_MODULE_H_

#include <string_view>

#include "cuda/driver.h"
#include "recipe.h"
#include "status.h"

namespace jaxpipe::cuda {

// The functions of a recipe's launches, in order, in one context.
struct Functions {
  CUfunction of_launch[kMaxLaunches];
};

// Loads the binary of `recipe` (zlib-compressed) into `context` unless it is there, raises the
// dynamic shared memory limit of its functions, and loads their code. Call it outside of captures.
Status LoadModule(const Driver& driver, CUcontext context, const Recipe& recipe,
                  std::string_view key, std::string_view compressed);

// The functions that LoadModule made ready. Takes a shared lock, allocates nothing, never loads.
Status FindFunctions(const Driver& driver, CUcontext context, const Recipe& recipe,
                     std::string_view key, Functions* functions);

// Unloads every module of the process and gives their number. The caller vouches that nothing
// runs and that no program or graph will use them before the next LoadModule.
int UnloadModules(const Driver& driver);

// Binaries that were loaded so far, and how many are loaded now: for tests and doctor.
struct ModuleCounts {
  int loads, live;
};
ModuleCounts CountModules();

}  // namespace jaxpipe::cuda

#endif  // JAXPIPE_CUDA_MODULE_H_
