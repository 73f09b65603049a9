// The kernels of AVX2 with FMA and F16C: 6 x 16 register tiles.
#include <cstdint>

#include "host/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

// clang-format off
#include "host/simd_avx2.h"
#include "host/fill_kernels.h"
// clang-format on

namespace jaxpipe::host {

const Kernels* Avx2Kernels() {
  static const Kernels table = FillKernels<6, 6, 16, 12>("avx2");
  return &table;
}

}  // namespace jaxpipe::host

#else

const jaxpipe::host::Kernels* jaxpipe::host::Avx2Kernels() { return nullptr; }

#endif
