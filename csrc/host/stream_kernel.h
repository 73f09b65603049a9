// Few rows: rhs is read once, in place, and widened in registers. Include after copy_kernel.h.
#ifndef JAXPIPE_HOST_STREAM_KERNEL_H_
#define JAXPIPE_HOST_STREAM_KERNEL_H_

#include "host/copy_kernel.h"
#include "host/tile_kernel.h"

namespace jaxpipe::host {
namespace {

// kRows x (kVecs vectors) of columns from `col` on, over all of k. kEdge: only `count` columns of
// one vector are inside.
template <class Words, class S, int kElementBytes, int kRows, int kVecs, bool kEdge>
void StreamPiece(const StreamArgs& args, const CopyArgs& rhs, int64_t col, int64_t count) {
  typename Words::Acc acc[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) acc[i][j] = Words::Zero();
  }
  const char* lhs = static_cast<const char*>(args.lhs);
  const int64_t whole = kEdge ? 0 : args.k / Words::kPerWord;
  const int64_t steps = (args.k + Words::kPerWord - 1) / Words::kPerWord;
  for (int64_t s = 0; s < steps; ++s) {
    typename Words::Operand b[kVecs];
    if (s < whole) {
      const char* next = S::At(rhs, s * S::kRows + args.prefetch_rows, col);
#pragma GCC unroll 8
      for (int l = 0; l < (kVecs * Simd::kLanes * kElementBytes + 63) / 64; ++l) {
        __builtin_prefetch(next + 64 * l, 0, 3);
      }
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        b[j] = Words::FromVector(S::Vector(rhs, s, col + j * Simd::kLanes));
      }
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) {
        b[j] = Words::FromVector(Corner<S, kElementBytes>(rhs, s, col + j * Simd::kLanes, count));
      }
    }
    const bool half = args.k % Words::kPerWord != 0 && s == steps - 1;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const char* p = lhs + i * args.lhs_row_bytes + 4 * s;
      const typename Words::Operand a = half ? Words::LhsHalf(p) : Words::Lhs(p);
#pragma GCC unroll 8
      for (int j = 0; j < kVecs; ++j) acc[i][j] = Words::MulAdd(acc[i][j], a, b[j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVecs; ++j) {
      Words::StoreAcc(args.out + i * args.out_row + col + j * Simd::kLanes, acc[i][j]);
    }
  }
}

template <class Words, class S, int kElementBytes, int kRows, int kVecs>
void Stream(const StreamArgs& args) {
  CopyArgs rhs;
  rhs.src = args.rhs;
  rhs.src_row = args.rhs_row;
  rhs.rows = args.k;
  rhs.cols = args.cols;
  constexpr int64_t kWide = kVecs * Simd::kLanes;
  int64_t c = 0;
  for (; c + kWide <= args.cols; c += kWide) {
    StreamPiece<Words, S, kElementBytes, kRows, kVecs, false>(args, rhs, c, Simd::kLanes);
  }
  for (; c + Simd::kLanes <= args.cols; c += Simd::kLanes) {
    StreamPiece<Words, S, kElementBytes, kRows, 1, false>(args, rhs, c, Simd::kLanes);
  }
  if (c < args.cols) {
    StreamPiece<Words, S, kElementBytes, kRows, 1, true>(args, rhs, c, args.cols - c);
  }
}

// As many vectors as fit beside kRows broadcast words in kRegisters registers, at most eight.
template <int kRegisters, int kRows>
constexpr int StreamVecs() {
  constexpr int kFit = (kRegisters - 1) / (kRows + 1);
  return kFit >= 8 ? 8 : kFit >= 6 ? 6 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
}

template <class Words, class S, int kElementBytes, int kRegisters, int kRows>
void FillStreams(Kernels* table, WordKind kind, DType dtype) {
  if constexpr (kRows > 0) {
    constexpr int kVecs = StreamVecs<kRegisters, kRows>();
    table->stream[static_cast<int>(kind)][static_cast<int>(dtype)][kRows] =
        &Stream<Words, S, kElementBytes, kRows, kVecs>;
    FillStreams<Words, S, kElementBytes, kRegisters, kRows - 1>(table, kind, dtype);
  }
}

template <int kRegisters, int kRows>
void FillFloatStreams(Kernels* table) {
  FillStreams<F32Words, F32Source, 4, kRegisters, kRows>(table, WordKind::kF32, DType::kF32);
  FillStreams<F32Words, BF16Source, 2, kRegisters, kRows>(table, WordKind::kF32, DType::kBF16);
  FillStreams<F32Words, F16Source, 2, kRegisters, kRows>(table, WordKind::kF32, DType::kF16);
}

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_STREAM_KERNEL_H_
