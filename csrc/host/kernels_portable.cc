// The kernels of any CPU: 16-byte vectors (SSE2, NEON).
#include <cstdint>

// clang-format off
#include "host/simd_portable.h"
#include "host/simd_math.h"
#include "host/burst_kernel.h"
#include "host/epilogue_kernel.h"
#include "host/stream_kernel.h"
// clang-format on

namespace jaxpipe::host {
namespace {

Kernels Build() {
  Kernels table;
  table.isa = "portable";
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

const Kernels* PortableKernels() {
  static const Kernels table = Build();
  return &table;
}

}  // namespace jaxpipe::host
