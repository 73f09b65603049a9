// From float32 sums to the result: alpha, bias, activation and residual in either order, one
// rounding.
// Include after one of simd_*.h and simd_math.h.
#ifndef JAXPIPE_HOST_EPILOGUE_KERNEL_H_
#define JAXPIPE_HOST_EPILOGUE_KERNEL_H_

#include "host/kernels.h"

namespace jaxpipe::host {
namespace {

template <DType kType>
inline Simd::V LoadAs(const char* p) {
  if constexpr (kType == DType::kBF16) return Simd::LoadBF16(p);
  if constexpr (kType == DType::kF16) return Simd::LoadF16(p);
  return Simd::Load(reinterpret_cast<const float*>(p));
}

template <DType kType>
inline void StoreAs(char* p, Simd::V v) {
  if constexpr (kType == DType::kF32) Simd::Store(reinterpret_cast<float*>(p), v);
  if constexpr (kType == DType::kBF16) Simd::StoreBF16(p, v);
  if constexpr (kType == DType::kF16) Simd::StoreF16(p, v);
}

template <DType kType>
inline Simd::V LoadSome(const char* p, int64_t count) {
  if (count >= Simd::kLanes) return LoadAs<kType>(p);
  alignas(64) char lanes[Simd::kLanes * 4] = {};
  __builtin_memcpy(lanes, p, count * SizeOf(kType));
  return LoadAs<kType>(lanes);
}

template <DType kType>
inline void StoreSome(char* p, Simd::V v, int64_t count) {
  if (count >= Simd::kLanes) return StoreAs<kType>(p, v);
  alignas(64) char lanes[Simd::kLanes * 4];
  StoreAs<kType>(lanes, v);
  __builtin_memcpy(p, lanes, count * SizeOf(kType));
}

inline Simd::V LoadBias(const EpilogueArgs& args, const void* bias, int64_t index, int64_t count) {
  const char* p = static_cast<const char*>(bias) + index * SizeOf(args.bias_dtype);
  switch (args.bias_dtype) {
    case DType::kBF16:
      return LoadSome<DType::kBF16>(p, count);
    case DType::kF16:
      return LoadSome<DType::kF16>(p, count);
    default:
      return LoadSome<DType::kF32>(p, count);
  }
}

inline float ScalarBias(const EpilogueArgs& args, int64_t row) {
  alignas(64) float lanes[Simd::kLanes];
  Simd::Store(lanes, LoadBias(args, args.row_bias, row, 1));
  return lanes[0];
}

// One vector of one row: `sum` is alpha * acc + bias already.
template <DType kOut, Activation kActivation>
inline void FinishVector(const EpilogueArgs& args, Simd::V sum, int64_t offset, int64_t count) {
  constexpr int64_t kSize = SizeOf(kOut);
  Simd::V residual = Simd::Zero();
  if (args.residual != nullptr) {
    residual = LoadSome<kOut>(static_cast<const char*>(args.residual) + offset * kSize, count);
  }
  if (args.residual_first) sum = Simd::Add(sum, residual);
  if (args.preactivation != nullptr) {
    StoreSome<kOut>(static_cast<char*>(args.preactivation) + offset * kSize, sum, count);
  }
  Simd::V y = Activate<kActivation>(sum);
  if (args.residual != nullptr && !args.residual_first) {
    const bool gated = args.derivative != Activation::kNone;
    y = gated ? Simd::Mul(y, Derivative(args.derivative, residual)) : Simd::Add(y, residual);
  }
  StoreSome<kOut>(static_cast<char*>(args.out) + offset * kSize, y, count);
}

template <DType kOut, Activation kActivation>
void FinishTile(const EpilogueArgs& args) {
  for (int64_t j = 0; j < args.cols; j += Simd::kLanes) {
    const int64_t count = args.cols - j;
    Simd::V bias = Simd::Zero();
    if (args.column_bias != nullptr) bias = LoadBias(args, args.column_bias, j, count);
    for (int64_t i = 0; i < args.rows; ++i) {
      Simd::V sum = Simd::Load(args.sums + i * args.sums_row + j);
      if (args.alpha != 1.0f) sum = Simd::Mul(sum, Simd::Set1(args.alpha));
      if (args.column_bias != nullptr) sum = Simd::Add(sum, bias);
      if (args.row_bias != nullptr) sum = Simd::Add(sum, Simd::Set1(ScalarBias(args, i)));
      FinishVector<kOut, kActivation>(args, sum, i * args.out_row + j, count);
    }
  }
}

template <DType kOut>
void FillEpiloguesOf(Kernels* table) {
  EpilogueFn* row = table->epilogue[static_cast<int>(kOut)];
  row[static_cast<int>(Activation::kNone)] = &FinishTile<kOut, Activation::kNone>;
  row[static_cast<int>(Activation::kRelu)] = &FinishTile<kOut, Activation::kRelu>;
  row[static_cast<int>(Activation::kGeluTanh)] = &FinishTile<kOut, Activation::kGeluTanh>;
  row[static_cast<int>(Activation::kGeluErf)] = &FinishTile<kOut, Activation::kGeluErf>;
  row[static_cast<int>(Activation::kSilu)] = &FinishTile<kOut, Activation::kSilu>;
  row[static_cast<int>(Activation::kTanh)] = &FinishTile<kOut, Activation::kTanh>;
}

inline void FillEpilogues(Kernels* table) {
  FillEpiloguesOf<DType::kF32>(table);
  FillEpiloguesOf<DType::kBF16>(table);
  FillEpiloguesOf<DType::kF16>(table);
}

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_EPILOGUE_KERNEL_H_
