// Copies of operands into words: lhs rows and rhs panels, widened and transposed on the way.
// Include after one of simd_*.h.
#ifndef JAXPIPE_HOST_COPY_KERNEL_H_
#define JAXPIPE_HOST_COPY_KERNEL_H_

#include "host/kernels.h"

namespace jaxpipe::host {
namespace {

inline int64_t MinOf(int64_t a, int64_t b) { return a < b ? a : b; }

// A source seen as a matrix of words. A word is kRows x kCols source elements (1x1, 1x2 or 2x1).
// Vector() reads kLanes words along a row of words; elements outside rows x cols read as zero in
// Word() and must not be asked of Vector().
template <int kElementBytes, int kRowsPerWord, int kColsPerWord>
struct Source {
  static constexpr int kRows = kRowsPerWord;
  static constexpr int kCols = kColsPerWord;
  static const char* At(const CopyArgs& args, int64_t row, int64_t col) {
    return static_cast<const char*>(args.src) + (row * args.src_row + col) * kElementBytes;
  }
};

struct F32Source : Source<4, 1, 1> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    return Simd::Load(reinterpret_cast<const float*>(At(args, r, c)));
  }
};
struct BF16Source : Source<2, 1, 1> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    return Simd::LoadBF16(At(args, r, c));
  }
};
struct F16Source : Source<2, 1, 1> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    return Simd::LoadF16(At(args, r, c));
  }
};
// Pairs along a row of the source ("12") or down a column of it ("21").
struct U16Pairs12 : Source<2, 1, 2> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    return Simd::AsFloats(Simd::LoadWords(At(args, r, 2 * c)));
  }
};
struct U16Pairs21 : Source<2, 2, 1> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    return Simd::AsFloats(Simd::PairU16(At(args, 2 * r, c), At(args, 2 * r + 1, c)));
  }
};
struct S8Pairs12 : Source<1, 1, 2> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    return Simd::AsFloats(Simd::WidenS8(At(args, r, 2 * c)));
  }
};
struct S8Pairs21 : Source<1, 2, 1> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    return Simd::AsFloats(Simd::PairS8(At(args, 2 * r, c), At(args, 2 * r + 1, c)));
  }
};

// float32 rounded to a type of 16 bits on the way.
template <void (*kStore)(void*, Simd::V), Simd::V (*kLoad)(const void*)>
struct Rounded : Source<4, 1, 1> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    alignas(64) uint16_t half[Simd::kLanes];
    kStore(half, F32Source::Vector(args, r, c));
    return kLoad(half);
  }
};
using RoundedBF16 = Rounded<&Simd::StoreBF16, &Simd::LoadBF16>;
using RoundedF16 = Rounded<&Simd::StoreF16, &Simd::LoadF16>;
struct RoundedPairs21 : Source<4, 2, 1> {
  static Simd::V Vector(const CopyArgs& args, int64_t r, int64_t c) {
    alignas(64) uint16_t even[Simd::kLanes], odd[Simd::kLanes];
    Simd::StoreBF16(even, F32Source::Vector(args, 2 * r, c));
    Simd::StoreBF16(odd, F32Source::Vector(args, 2 * r + 1, c));
    return Simd::AsFloats(Simd::PairU16(even, odd));
  }
};

// kLanes words that start at word (r, c), `count` of them inside; the rest, and halves of words
// that lie outside the source, are zero. Goes through a zeroed copy of the source's corner.
template <class S, int kElementBytes>
inline Simd::V Corner(const CopyArgs& args, int64_t r, int64_t c, int64_t count) {
  alignas(64) char corner[S::kRows][S::kCols * Simd::kLanes * kElementBytes + 64] = {};
  const int64_t cols = MinOf(count * S::kCols, args.cols - c * S::kCols);
  for (int i = 0; i < S::kRows && r * S::kRows + i < args.rows; ++i) {
    __builtin_memcpy(corner[i], S::At(args, r * S::kRows + i, c * S::kCols), cols * kElementBytes);
  }
  CopyArgs local;
  local.src = corner;
  local.src_row = sizeof(corner[0]) / kElementBytes;
  return S::Vector(local, 0, 0);
}

template <class S, int kElementBytes>
inline Simd::V LoadWordRow(const CopyArgs& args, int64_t r, int64_t c, int64_t whole_rows,
                           int64_t whole_cols, int64_t word_cols) {
  if (r < whole_rows && c + Simd::kLanes <= whole_cols) return S::Vector(args, r, c);
  return Corner<S, kElementBytes>(args, r, c, MinOf(Simd::kLanes, word_cols - c));
}

// Stores `count` words of v.
inline void StoreWords(float* p, Simd::V v, int64_t count) {
  if (count >= Simd::kLanes) return Simd::Store(p, v);
  alignas(64) float lanes[Simd::kLanes];
  Simd::Store(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// kVectors (0: as many as `full` words are) whole vectors of word row r.
template <class S, int kElementBytes, int kVectors>
inline void CopyWholeRow(const CopyArgs& args, int64_t r, int64_t full, float* dst) {
  const int64_t words = kVectors > 0 ? kVectors * Simd::kLanes : full;
  const int64_t ahead = args.prefetch_rows * S::kRows * args.src_row * kElementBytes;
#pragma GCC unroll 2
  for (int64_t c = 0; c < words; c += Simd::kLanes) {
    for (int i = 0; i < S::kRows; ++i) {
      const char* src = S::At(args, r * S::kRows + i, c * S::kCols);
      if (ahead > 0) __builtin_prefetch(src + ahead, 0, 3);
    }
    Simd::Store(dst + c, S::Vector(args, r, c));
  }
}

// dst[r][c] = word(r, c).
template <class S, int kElementBytes>
void CopyStraight(const CopyArgs& args) {
  constexpr int kL = Simd::kLanes;
  const int64_t rows = (args.rows + S::kRows - 1) / S::kRows;
  const int64_t cols = (args.cols + S::kCols - 1) / S::kCols;
  const int64_t whole_rows = args.rows / S::kRows;
  const int64_t full = args.cols / S::kCols / kL * kL;
  float* dst = static_cast<float*>(args.dst);
  for (int64_t r = 0; r < rows; ++r, dst += args.dst_row) {
    const bool whole = r < whole_rows;
    if (whole && full == 2 * kL) {
      CopyWholeRow<S, kElementBytes, 2>(args, r, full, dst);
    } else if (whole) {
      CopyWholeRow<S, kElementBytes, 0>(args, r, full, dst);
    }
    for (int64_t c = whole ? full : 0; c < cols; c += kL) {
      StoreWords(dst + c, Corner<S, kElementBytes>(args, r, c, MinOf(kL, cols - c)), cols - c);
    }
  }
}

// dst[c][r] = word(r, c), in blocks of kLanes x kLanes.
template <class S, int kElementBytes>
void CopyTransposed(const CopyArgs& args) {
  constexpr int kL = Simd::kLanes;
  const int64_t rows = (args.rows + S::kRows - 1) / S::kRows;
  const int64_t cols = (args.cols + S::kCols - 1) / S::kCols;
  const int64_t whole_rows = args.rows / S::kRows, whole_cols = args.cols / S::kCols;
  float* dst = static_cast<float*>(args.dst);
  for (int64_t r = 0; r < rows; r += kL) {
    const int64_t height = MinOf(kL, rows - r);
    for (int64_t c = 0; c < cols; c += kL) {
      Simd::V block[kL];
      for (int i = 0; i < kL; ++i) {
        block[i] = i < height
                       ? LoadWordRow<S, kElementBytes>(args, r + i, c, whole_rows, whole_cols, cols)
                       : Simd::Zero();
      }
      Simd::Transpose(block);
      const int64_t width = MinOf(kL, cols - c);
      for (int j = 0; j < width; ++j) {
        StoreWords(dst + (c + j) * args.dst_row + r, block[j], height);
      }
    }
  }
}

template <class S, int kElementBytes>
void FillFloatCopies(Kernels* table, DType dtype) {
  const int d = static_cast<int>(dtype);
  table->lhs_rows[0][d] = table->rhs_rows[0][d] = &CopyStraight<S, kElementBytes>;
  table->lhs_transposed[0][d] = table->rhs_transposed[0][d] = &CopyTransposed<S, kElementBytes>;
}

template <class Pairs12, class Pairs21, int kElementBytes>
void FillPairCopies(Kernels* table, WordKind kind, DType dtype) {
  const int k = static_cast<int>(kind), d = static_cast<int>(dtype);
  table->lhs_rows[k][d] = &CopyStraight<Pairs12, kElementBytes>;
  table->lhs_transposed[k][d] = &CopyTransposed<Pairs21, kElementBytes>;
  table->rhs_rows[k][d] = &CopyStraight<Pairs21, kElementBytes>;
  table->rhs_transposed[k][d] = &CopyTransposed<Pairs12, kElementBytes>;
}

inline void FillCopies(Kernels* table) {
  FillFloatCopies<F32Source, 4>(table, DType::kF32);
  FillFloatCopies<BF16Source, 2>(table, DType::kBF16);
  FillFloatCopies<F16Source, 2>(table, DType::kF16);
  FillPairCopies<U16Pairs12, U16Pairs21, 2>(table, WordKind::kBF16, DType::kBF16);
  FillPairCopies<S8Pairs12, S8Pairs21, 1>(table, WordKind::kS16, DType::kS8);
  CopyFn(&widened)[kNumFloatTypes] = table->rhs_rounded[static_cast<int>(WordKind::kF32)];
  widened[static_cast<int>(DType::kBF16)] = &CopyStraight<RoundedBF16, 4>;
  widened[static_cast<int>(DType::kF16)] = &CopyStraight<RoundedF16, 4>;
  CopyFn(&pairs)[kNumFloatTypes] = table->rhs_rounded[static_cast<int>(WordKind::kBF16)];
  pairs[static_cast<int>(DType::kBF16)] = &CopyStraight<RoundedPairs21, 4>;
}

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_COPY_KERNEL_H_
