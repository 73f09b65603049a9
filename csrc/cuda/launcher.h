// Launches a recipe on a stream: parameters bound to today's addresses, tensor maps encoded.
#ifndef JAXPIPE_CUDA_LAUNCHER_H_
#define JAXPIPE_CUDA_LAUNCHER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cuda/driver.h"
#include "cuda/module.h"
#include "recipe.h"
#include "status.h"

namespace jaxpipe::cuda {

// A buffer of the call, in device memory.
struct Buffer {
  uint64_t address;
  size_t bytes;
};

// The context of a stream.
Status ContextOf(const Driver& driver, CUstream stream, CUcontext* context);

// The initialize stage: everything slow. Loads the kernel into the stream's context.
Status Initialize(CUstream stream, const Recipe& recipe, std::string_view key,
                  std::string_view compressed);

// The execute stage: looks the functions up, binds parameters, launches. No loading, no
// allocation, no synchronisation: safe under stream capture. `operands` and `results` are as the
// recipe lists them; a count, size or alignment that differs is an error, not a fault.
Status Execute(CUstream stream, const Recipe& recipe, std::string_view key, const Buffer* operands,
               size_t operand_count, const Buffer* results, size_t result_count);

}  // namespace jaxpipe::cuda

#endif  // JAXPIPE_CUDA_LAUNCHER_H_
