// The kernels of AVX2 with FMA and F16C: 6 x 16 register tiles.
#include <cstdint>

#include "host/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

// clang-format off
#include "host/simd_avx2.h"
#include "host/simd_math.h"
#include "host/burst_kernel.h"
#include "host/epilogue_kernel.h"
#include "host/stream_kernel.h"
// clang-format on

namespace jaxpipe::host {
namespace {

Kernels Build() {
  Kernels table;
  table.isa = "avx2";
  table.lanes = Simd::kLanes;
  table.panel_cols = 2 * Simd::kLanes;
  table.tile_rows = 6;
  table.stream_rows = 6;
  FillTiles<F32Words, 6>(&table, WordKind::kF32);
  FillTiles<S16Words, 6>(&table, WordKind::kS16);
  FillCopies(&table);
  FillFloatStreams<16, 6>(&table);
  FillEpilogues(&table);
  table.fma_burst = &FmaBurst<12>;
  return table;
}

}  // namespace

const Kernels* Avx2Kernels() {
  static const Kernels table = Build();
  return &table;
}

}  // namespace jaxpipe::host

#else

const jaxpipe::host::Kernels* jaxpipe::host::Avx2Kernels() { return nullptr; }

#endif
