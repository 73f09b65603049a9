// The register tile: kRows x (kVecs vectors) sums kept in registers over the whole of k.
// Include after one of simd_*.h.
#ifndef JAXPIPE_HOST_TILE_KERNEL_H_
#define JAXPIPE_HOST_TILE_KERNEL_H_

#include "host/kernels.h"

namespace jaxpipe::host {
namespace {

// What one step multiplies: how words become vectors and how a product joins a sum.
struct F32Words {
  static constexpr int kPerWord = 1;
  using Acc = Simd::V;
  using Operand = Simd::V;
  static Operand FromVector(Simd::V v) { return v; }
  static Acc Zero() { return Simd::Zero(); }
  static Operand Panel(const char* p) { return Simd::Load(reinterpret_cast<const float*>(p)); }
  static Operand Lhs(const char* p) { return Simd::AsFloats(Simd::SetWord(p)); }
  static Operand LhsHalf(const char* p) { return Lhs(p); }
  static Acc MulAdd(Acc acc, Operand a, Operand b) { return Simd::Fma(a, b, acc); }
  static Acc LoadAcc(const float* p) { return Simd::Load(p); }
  static void StoreAcc(float* p, Acc v) { Simd::Store(p, v); }
};

struct S16Words {
  static constexpr int kPerWord = 2;
  using Acc = Simd::I;
  using Operand = Simd::I;
  static Operand FromVector(Simd::V v) { return Simd::AsWords(v); }
  static Acc Zero() { return Simd::SetWord1(0); }
  static Operand Panel(const char* p) { return Simd::LoadWords(p); }
  static Operand Lhs(const char* p) { return Simd::SetWord(p); }
  static Operand LhsHalf(const char* p) { return Lhs(p); }  // copies of int8 are padded with zero
  static Acc MulAdd(Acc acc, Operand a, Operand b) { return Simd::MaddS16(acc, a, b); }
  static Acc LoadAcc(const float* p) { return Simd::LoadWords(p); }
  static void StoreAcc(float* p, Acc v) { Simd::StoreWords(p, v); }
};

// One step: kVecs panel vectors, each multiplied by every row's word. Rows are addressed as three
// per base pointer (x86 has no more addressing modes), so that no pointer spills.
template <class Words, int kRows, int kVecs, bool kHalf>
inline __attribute__((always_inline)) void TileStep(typename Words::Acc (&acc)[kRows][kVecs],
                                                    const char* const* rows, int64_t row_bytes,
                                                    int64_t offset, const char* panel) {
  typename Words::Operand b[kVecs];
#pragma GCC unroll 8
  for (int j = 0; j < kVecs; ++j) {
    b[j] = Words::Panel(panel + j * Simd::kLanes * 4);
    Simd::Keep(b[j]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const char* p = rows[i / 3] + (i % 3) * row_bytes + offset;
    typename Words::Operand a = kHalf ? Words::LhsHalf(p) : Words::Lhs(p);
    Simd::Keep(a);
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) acc[i][j] = Words::MulAdd(acc[i][j], a, b[j]);
  }
}

// kStride: vectors between panel rows (kVecs < kStride computes only the first columns).
template <class Words, int kRows, int kVecs, int kStride>
void Tile(const TileArgs& args) {
  constexpr int kGroups = (kRows + 2) / 3;
  constexpr int64_t kStepBytes = kStride * Simd::kLanes * 4;
  const int64_t row_bytes = args.lhs_row_bytes;
  const char* rows[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    rows[g] = static_cast<const char*>(args.lhs) + 3 * g * row_bytes;
  }
  typename Words::Acc acc[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      acc[i][j] = args.accumulate ? Words::LoadAcc(args.out + i * args.out_row + j * Simd::kLanes)
                                  : Words::Zero();
    }
  }
  const char* panel = static_cast<const char*>(args.panel);
  const char* ahead = args.ahead;
  int64_t steps = args.k / Words::kPerWord;
  for (; steps >= 4; steps -= 4) {
    if (ahead < args.ahead_end) {
      __builtin_prefetch(ahead, 0, 2);
      __builtin_prefetch(ahead + args.ahead_second_bytes, 0, 2);
      ahead += args.ahead_step_bytes;
    }
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      TileStep<Words, kRows, kVecs, false>(acc, rows, row_bytes, 4 * u, panel + u * kStepBytes);
    }
    panel += 4 * kStepBytes;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) rows[g] += 16;
  }
  for (; steps > 0; --steps) {
    TileStep<Words, kRows, kVecs, false>(acc, rows, row_bytes, 0, panel);
    panel += kStepBytes;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) rows[g] += 4;
  }
  if (args.k % Words::kPerWord != 0) {
    TileStep<Words, kRows, kVecs, true>(acc, rows, row_bytes, 0, panel);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      Words::StoreAcc(args.out + i * args.out_row + j * Simd::kLanes, acc[i][j]);
    }
  }
}

// Fills table->tile[kind][*][1..kRows]; panels are two vectors wide.
template <class Words, int kRows>
void FillTiles(Kernels* table, WordKind kind) {
  if constexpr (kRows > 0) {
    table->tile[static_cast<int>(kind)][0][kRows] = &Tile<Words, kRows, 2, 2>;
    table->tile[static_cast<int>(kind)][1][kRows] = &Tile<Words, kRows, 1, 2>;
    FillTiles<Words, kRows - 1>(table, kind);
  }
}

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_TILE_KERNEL_H_
