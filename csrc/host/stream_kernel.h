// Few rows: rhs is read once, in place, and widened in registers. Include after copy_kernel.h.
//
// Two loops with the same chain over k for every element, so with the same bits:
//   sweep    up to kSweepRows rows: a few k at a time run along all columns, the sums wait in L1.
//            Memory sees long runs, which is what counts when every product is a new rhs element.
//   columns  more rows: a few vectors of columns run down all of k, the sums wait in registers.
#ifndef JAXPIPE_HOST_STREAM_KERNEL_H_
#define JAXPIPE_HOST_STREAM_KERNEL_H_

#include "host/copy_kernel.h"
#include "host/tile_kernel.h"

namespace jaxpipe::host {
namespace {

constexpr int kSweepRows = 4;

inline CopyArgs StreamSource(const StreamArgs& args) {
  CopyArgs rhs;
  rhs.src = args.rhs;
  rhs.src_row = args.rhs_row;
  rhs.rows = args.k;
  rhs.cols = args.cols;
  return rhs;
}

// kSteps words of k, from word `step` on, times every column of the strip. kWhole: all rhs rows of
// these words exist.
template <class Words, class S, int kElementBytes, int kRows, int kSteps, bool kWhole>
void SweepSteps(const StreamArgs& args, const CopyArgs& rhs, int64_t step) {
  typename Words::Operand a[kSteps][kRows];
#pragma GCC unroll 16
  for (int u = 0; u < kSteps; ++u) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      a[u][i] = Words::Lhs(static_cast<const char*>(args.lhs) + ((step + u) * kRows + i) * 4);
      Simd::Keep(a[u][i]);
    }
  }
  const int64_t full = kWhole ? args.cols / Simd::kLanes * Simd::kLanes : 0;
  for (int64_t c = 0; c < full; c += Simd::kLanes) {
    typename Words::Acc acc[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) acc[i] = Words::LoadAcc(args.out + i * args.out_row + c);
#pragma GCC unroll 16
    for (int u = 0; u < kSteps; ++u) {
      const typename Words::Operand b = Words::FromVector(S::Vector(rhs, step + u, c));
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) acc[i] = Words::MulAdd(acc[i], a[u][i], b);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) Words::StoreAcc(args.out + i * args.out_row + c, acc[i]);
  }
  for (int64_t c = full; c < args.cols; c += Simd::kLanes) {
    const int64_t count = MinOf(Simd::kLanes, args.cols - c);
    for (int u = 0; u < kSteps; ++u) {
      const typename Words::Operand b =
          Words::FromVector(Corner<S, kElementBytes>(rhs, step + u, c, count));
      for (int i = 0; i < kRows; ++i) {
        float* out = args.out + i * args.out_row + c;
        Words::StoreAcc(out, Words::MulAdd(Words::LoadAcc(out), a[u][i], b));
      }
    }
  }
}

template <class Words, class S, int kElementBytes, int kRows, int kSteps>
void StreamSweep(const StreamArgs& args) {
  const CopyArgs rhs = StreamSource(args);
  const int64_t padded = (args.cols + Simd::kLanes - 1) / Simd::kLanes * Simd::kLanes;
  for (int i = 0; i < kRows; ++i) {
    for (int64_t c = 0; c < padded; c += Simd::kLanes) {
      Words::StoreAcc(args.out + i * args.out_row + c, Words::Zero());
    }
  }
  const int64_t whole = args.k / Words::kPerWord;
  int64_t s = 0;
  for (; s + kSteps <= whole; s += kSteps) {
    SweepSteps<Words, S, kElementBytes, kRows, kSteps, true>(args, rhs, s);
  }
  for (; s < whole; ++s) SweepSteps<Words, S, kElementBytes, kRows, 1, true>(args, rhs, s);
  if (args.k % Words::kPerWord != 0) {
    SweepSteps<Words, S, kElementBytes, kRows, 1, false>(args, rhs, s);
  }
}

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
  for (int64_t s = 0; s < steps; ++s, lhs += 4 * kRows) {
    typename Words::Operand b[kVecs];
    if (s < whole) {
      const char* next = S::At(rhs, s * S::kRows + args.prefetch_rows, col);
#pragma GCC unroll 8
      for (int l = 0; l < (kVecs * Simd::kLanes * kElementBytes + 63) / 64; ++l) {
        for (int r = 0; r < S::kRows; ++r) {
          __builtin_prefetch(next + 64 * l + r * args.rhs_row * kElementBytes, 0, 3);
        }
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
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const typename Words::Operand a = Words::Lhs(lhs + 4 * i);
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
void StreamColumns(const StreamArgs& args) {
  const CopyArgs rhs = StreamSource(args);
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

// Words of k that a sweep takes at once: their lhs words stay in registers, at most eight a row.
template <int kRegisters, int kRows>
constexpr int SweepDepth() {
  constexpr int kFit = (kRegisters - 2 - kRows) / kRows;
  return kFit >= 8 ? 8 : kFit >= 4 ? 4 : 2;
}

template <class Words, class S, int kElementBytes, int kRegisters, int kRows>
void FillStreams(Kernels* table, WordKind kind, DType dtype) {
  if constexpr (kRows > 0) {
    StreamFn& entry = table->stream[static_cast<int>(kind)][static_cast<int>(dtype)][kRows];
    if constexpr (kRows <= kSweepRows) {
      entry = &StreamSweep<Words, S, kElementBytes, kRows, SweepDepth<kRegisters, kRows>()>;
    } else {
      entry = &StreamColumns<Words, S, kElementBytes, kRows, StreamVecs<kRegisters, kRows>()>;
    }
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
