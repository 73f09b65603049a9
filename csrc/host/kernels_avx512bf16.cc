// What AVX512-BF16 adds to AVX-512: products of bfloat16 pairs, two k a lane and step.
//
// vdpbf16ps adds the odd product, then the even one, each exact and each sum rounded to nearest
// even; it flushes denormals, as XLA:CPU does. So it is a chain of float32 FMAs (checked on random
// bits: tests/host/test_gemm.py), at twice the rate.
#include <cstdint>

#include "host/kernels.h"

#if defined(__AVX512BF16__)

// clang-format off
#include "host/simd_avx512.h"
#include "host/stream_kernel.h"
// clang-format on

namespace jaxpipe::host {
namespace {

struct BF16Words {
  static constexpr int kPerWord = 2;
  using Acc = Simd::V;
  using Operand = Simd::I;
  static Operand FromVector(Simd::V v) { return Simd::AsWords(v); }
  static Acc Zero() { return Simd::Zero(); }
  static Operand Panel(const char* p) { return Simd::LoadWords(p); }
  static Operand Lhs(const char* p) { return Simd::SetWord(p); }
  static Operand LhsHalf(const char* p) {  // the last, odd k: what follows it is not ours
    uint16_t low;
    __builtin_memcpy(&low, p, 2);
    return Simd::SetWord1(low);
  }
  static Acc MulAdd(Acc acc, Operand a, Operand b) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static Acc LoadAcc(const float* p) { return Simd::Load(p); }
  static void StoreAcc(float* p, Acc v) { Simd::Store(p, v); }
};

Kernels Build() {
  Kernels table = *Avx512Kernels();
  table.isa = "avx512_bf16";
  table.has_bf16 = true;
  FillTiles<BF16Words, 14>(&table, WordKind::kBF16);
  FillStreams<BF16Words, U16Pairs21, 2, 32, 16>(&table, WordKind::kBF16, DType::kBF16);
  return table;
}

}  // namespace

const Kernels* Avx512Bf16Kernels() {
  static const Kernels table = Build();
  return &table;
}

}  // namespace jaxpipe::host

#else

const jaxpipe::host::Kernels* jaxpipe::host::Avx512Bf16Kernels() { return nullptr; }

#endif
