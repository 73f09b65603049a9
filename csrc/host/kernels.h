// The inner loops, once per instruction set. Everything above this line is portable code that sees
// only this table.
//
// Words. A kernel consumes lhs as rows of 4-byte words and rhs as panels of `panel_cols` columns:
// one step of k is one word of each lhs row and `panel_cols` consecutive words of the panel.
//   kF32:  a word is one float, one step is one k.
//   kBF16: a word is two bfloat16 (k even in the low half), one step is two k, summed odd k first,
//          each product exact and each sum rounded to float32 (what vdpbf16ps does; with denormals
//          flushed it is bit for bit a chain of float32 FMAs).
//   kS16:  a word is two int16 (widened int8), one step is two k, sums in int32, exact.
// Every element of the result is one chain over k in one fixed order: no bit depends on tiles,
// blocking or threads.
#ifndef JAXPIPE_HOST_KERNELS_H_
#define JAXPIPE_HOST_KERNELS_H_

#include <cstdint>

#include "host/dtype.h"
#include "host/problem.h"

namespace jaxpipe::host {

enum class WordKind : int { kF32 = 0, kBF16 = 1, kS16 = 2 };
inline constexpr int kNumWordKinds = 3;
inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxStreamRows = 16;
inline constexpr int kMaxPanelCols = 32;

// One register tile: c[rows][panel_cols] (+)= lhs rows * panel.
struct TileArgs {
  int64_t k = 0;                // number of k, not of words
  const void* lhs = nullptr;    // first row
  int64_t lhs_row_bytes = 0;    // from one lhs row to the next
  const void* panel = nullptr;  // packed: steps * panel_cols words
  float* out = nullptr;         // float32 or int32 lanes
  int64_t out_row = 0;          // lanes from one out row to the next
  bool accumulate = false;      // start from out instead of zero
  // Lines to ask for while computing: ahead and ahead + ahead_second_bytes every four steps, ahead
  // moving by ahead_step_bytes up to ahead_end.
  const char* ahead = nullptr;
  const char* ahead_end = nullptr;
  int64_t ahead_second_bytes = 0;
  int64_t ahead_step_bytes = 0;
};
using TileFn = void (*)(const TileArgs&);

// A rows x cols piece of a matrix whose innermost stride is 1, to be copied.
struct CopyArgs {
  const void* src = nullptr;
  int64_t src_row = 0;        // elements
  int64_t rows = 0;           // rows of the source
  int64_t cols = 0;           // columns of the source, contiguous
  void* dst = nullptr;        // words (or 16-bit halves of words)
  int64_t dst_row = 0;        // words from one destination row to the next
  int64_t prefetch_rows = 0;  // source rows ahead to ask for, 0: none (straight copies)
};
using CopyFn = void (*)(const CopyArgs&);

// A product of few rows that reads rhs in place: out[rows][cols] = lhs * rhs. lhs is dense words,
// [step][row], padded with zeros where k does not fill the last word.
struct StreamArgs {
  int64_t k = 0;
  const void* lhs = nullptr;
  const void* rhs = nullptr;  // raw elements, innermost stride 1
  int64_t rhs_row = 0;        // elements
  int64_t cols = 0;
  float* out = nullptr;  // rows padded to whole vectors
  int64_t out_row = 0;
  int64_t prefetch_rows = 0;
};
using StreamFn = void (*)(const StreamArgs&);

// Finishes a tile of sums: everything that Epilogue says, then the one rounding.
struct EpilogueArgs {
  const float* sums = nullptr;
  int64_t sums_row = 0;
  int64_t rows = 0, cols = 0;
  float alpha = 1.0f;
  const void* column_bias = nullptr;  // at the tile's first column
  const void* row_bias = nullptr;     // at the tile's first row
  DType bias_dtype = DType::kF32;
  const void* residual = nullptr;  // at the tile's first element, like the two below
  bool residual_first = false;
  Activation derivative = Activation::kNone;
  void* out = nullptr;
  void* preactivation = nullptr;
  int64_t out_row = 0;  // elements, of residual, out and preactivation
};
using EpilogueFn = void (*)(const EpilogueArgs&);

struct Kernels {
  const char* isa = "";
  int lanes = 0;          // float32 lanes of a vector
  int panel_cols = 0;     // columns of a packed panel
  int tile_rows = 0;      // tallest register tile
  int stream_rows = 0;    // tallest product of the streaming kernels
  bool has_bf16 = false;  // WordKind::kBF16 is native

  // tile[kind][narrow][rows]: `narrow` computes only the first half of the panel's columns.
  TileFn tile[kNumWordKinds][2][kMaxTileRows + 1] = {};
  // Row-major copies of lhs and transposing copies; panels are made by the same functions.
  // kF32 widens a source of any float type, kBF16 keeps bfloat16 pairs, kS16 widens int8.
  CopyFn lhs_rows[kNumWordKinds][4] = {};        // [kind][DType]: src [m][k] -> dst [m][words]
  CopyFn lhs_transposed[kNumWordKinds][4] = {};  // src [k][m] -> dst [m][words]
  CopyFn rhs_rows[kNumWordKinds][4] = {};        // src [k][n] -> dst [words][n]
  CopyFn rhs_transposed[kNumWordKinds][4] = {};  // src [n][k] -> dst [words][n]
  CopyFn rhs_rounded[kNumWordKinds][kNumFloatTypes] = {};  // [kind][to]: float32, rounded
  StreamFn stream[kNumWordKinds][kNumFloatTypes][kMaxStreamRows + 1] = {};
  EpilogueFn epilogue[kNumFloatTypes][kNumActivations] = {};
  // float32 multiply-adds in flight for `iterations` rounds; returns flops done.
  double (*fma_burst)(int64_t iterations) = nullptr;
};

const Kernels* PortableKernels();
// nullptr where the build or the compiler has no such kernels.
const Kernels* Avx2Kernels();
const Kernels* Avx512Kernels();
const Kernels* Avx512Bf16Kernels();

// The best kernels that this CPU runs (see cpu.h), or those of `isa` (nullptr when it cannot).
const Kernels* BestKernels();
const Kernels* KernelsNamed(const char* isa);

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_KERNELS_H_
