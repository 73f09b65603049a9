// The table of one instruction set's kernels. Include after one of simd_*.h.
#ifndef JAXPIPE_HOST_FILL_KERNELS_H_
#define JAXPIPE_HOST_FILL_KERNELS_H_

// clang-format off
#include "host/simd_math.h"
#include "host/burst_kernel.h"
#include "host/epilogue_kernel.h"
#include "host/stream_kernel.h"
// clang-format on

namespace jaxpipe::host {
namespace {

// kTileRows: rows of the tallest register tile; kStreamRows: of the tallest streamed product;
// kRegisters: vector registers; kChains: multiply-adds in flight that hide their latency.
template <int kTileRows, int kStreamRows, int kRegisters, int kChains>
Kernels FillKernels(const char* isa) {
  static_assert(kTileRows <= kMaxTileRows && kStreamRows <= kMaxStreamRows);
  static_assert(2 * Simd::kLanes <= kMaxPanelCols);
  Kernels table;
  table.isa = isa;
  table.lanes = Simd::kLanes;
  table.panel_cols = 2 * Simd::kLanes;
  table.tile_rows = kTileRows;
  table.stream_rows = kStreamRows;
  FillTiles<F32Words, kTileRows>(&table, WordKind::kF32);
  FillTiles<S16Words, kTileRows>(&table, WordKind::kS16);
  FillCopies(&table);
  FillFloatStreams<kRegisters, kStreamRows>(&table);
  FillEpilogues(&table);
  table.fma_burst = &FmaBurst<kChains>;
  return table;
}

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_FILL_KERNELS_H_
