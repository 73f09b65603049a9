// The kernels of any CPU: 16-byte vectors (SSE2, NEON).
#include <cstdint>

// clang-format off
#include "host/simd_portable.h"
#include "host/fill_kernels.h"
// clang-format on

namespace jaxpipe::host {

const Kernels* PortableKernels() {
  static const Kernels table = FillKernels<6, 6, 16, 12>("portable");
  return &table;
}

}  // namespace jaxpipe::host
