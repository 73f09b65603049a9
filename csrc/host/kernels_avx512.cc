// The kernels of AVX-512: up to 14 x 32 register tiles.
#include <cstdint>

#include "host/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

// clang-format off
#include "host/simd_avx512.h"
#include "host/fill_kernels.h"
// clang-format on

namespace jaxpipe::host {

const Kernels* Avx512Kernels() {
  static const Kernels table = FillKernels<14, 16, 32, 16>("avx512");
  return &table;
}

}  // namespace jaxpipe::host

#else

const jaxpipe::host::Kernels* jaxpipe::host::Avx512Kernels() { return nullptr; }

#endif
