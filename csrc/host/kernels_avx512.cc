// The kernels of AVX-512: up to 14 x 32 register tiles.
#include <cstdint>

#include "host/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

// clang-format off
#include "host/simd_avx512.h"
#include "host/simd_math.h"
#include "host/burst_kernel.h"
#include "host/epilogue_kernel.h"
#include "host/stream_kernel.h"
// clang-format on

namespace jaxpipe::host {
namespace {

Kernels Build() {
  Kernels table;
  table.isa = "avx512";
  table.lanes = Simd::kLanes;
  table.panel_cols = 2 * Simd::kLanes;
  table.tile_rows = 14;
  table.stream_rows = 16;
  FillTiles<F32Words, 14>(&table, WordKind::kF32);
  FillTiles<S16Words, 14>(&table, WordKind::kS16);
  FillCopies(&table);
  FillFloatStreams<32, 16>(&table);
  FillEpilogues(&table);
  table.fma_burst = &FmaBurst<16>;
  return table;
}

}  // namespace

const Kernels* Avx512Kernels() {
  static const Kernels table = Build();
  return &table;
}

}  // namespace jaxpipe::host

#else

const jaxpipe::host::Kernels* jaxpipe::host::Avx512Kernels() { return nullptr; }

#endif
