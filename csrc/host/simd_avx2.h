// Vector operations of AVX2 with FMA and F16C. Include only from a file built for it.
#ifndef JAXPIPE_HOST_SIMD_AVX2_H_
#define JAXPIPE_HOST_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstdint>

namespace jaxpipe::host {
namespace {

struct Simd {
  static constexpr int kLanes = 8;
  using V = __m256;
  using I = __m256i;

  static V Zero() { return _mm256_setzero_ps(); }
  static V Set1(float x) { return _mm256_set1_ps(x); }
  static I SetWord(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
  }
  static I SetWord1(int32_t word) { return _mm256_set1_epi32(word); }
  static V Load(const float* p) { return _mm256_loadu_ps(p); }
  static V LoadAligned(const void* p) { return _mm256_load_ps(static_cast<const float*>(p)); }
  static void Store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static void StoreWords(void* p, I v) { _mm256_storeu_si256(static_cast<I*>(p), v); }
  static I AsWords(V v) { return _mm256_castps_si256(v); }
  static V AsFloats(I v) { return _mm256_castsi256_ps(v); }
  // Keeps a loaded value in a register: GCC otherwise folds the load into every FMA that uses it.
  static void Keep(V& v) { asm("" : "+x"(v)); }
  static void Keep(I& v) { asm("" : "+x"(v)); }

  static V Fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V Add(V a, V b) { return _mm256_add_ps(a, b); }
  static V Sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V Mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V Div(V a, V b) { return _mm256_div_ps(a, b); }
  static V Max(V a, V b) { return _mm256_max_ps(a, b); }  // b where either is NaN
  static V Min(V a, V b) { return _mm256_min_ps(a, b); }  // b where either is NaN
  static V Abs(V a) { return _mm256_andnot_ps(Set1(-0.0f), a); }
  static V CopySign(V magnitude, V sign) {
    return _mm256_xor_ps(magnitude, _mm256_and_ps(sign, Set1(-0.0f)));
  }
  static V SelectLess(V a, V b, V less, V other) {
    return _mm256_blendv_ps(other, less, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static V Round(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V Scale(V p, V n) {
    return AsFloats(_mm256_add_epi32(AsWords(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  }
  static I MaddS16(I acc, I a, I b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }

  static V LoadBF16(const void* p) {
    const __m128i half = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return AsFloats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static V LoadF16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static void StoreBF16(void* p, V v) {
    const I bits = AsWords(v);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    I r = _mm256_add_epi32(bits, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
    const I is_nan = AsWords(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc00000), is_nan);
    r = _mm256_srli_epi32(r, 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_castsi256_si128(r));
  }
  static void StoreF16(void* p, V v) {
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Lane i: low half from a[i], high half from b[i].
  static I PairU16(const void* a, const void* b) {
    const I lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(a)));
    const I hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(b)));
    return _mm256_or_si256(lo, _mm256_slli_epi32(hi, 16));
  }
  static I PairS8(const void* a, const void* b) {
    const I lo = _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(a)));
    const I hi = _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(b)));
    return _mm256_or_si256(_mm256_and_si256(lo, _mm256_set1_epi32(0xffff)),
                           _mm256_slli_epi32(hi, 16));
  }
  static I LoadWords(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
  static I WidenS8(const void* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }

  static void Transpose(V r[kLanes]) {
    V s[8];
    for (int i = 0; i < 2; ++i) {
      const V a = _mm256_unpacklo_ps(r[4 * i], r[4 * i + 1]);
      const V b = _mm256_unpackhi_ps(r[4 * i], r[4 * i + 1]);
      const V c = _mm256_unpacklo_ps(r[4 * i + 2], r[4 * i + 3]);
      const V d = _mm256_unpackhi_ps(r[4 * i + 2], r[4 * i + 3]);
      s[4 * i] = _mm256_shuffle_ps(a, c, 0x44);
      s[4 * i + 1] = _mm256_shuffle_ps(a, c, 0xee);
      s[4 * i + 2] = _mm256_shuffle_ps(b, d, 0x44);
      s[4 * i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int j = 0; j < 4; ++j) {
      r[j] = _mm256_permute2f128_ps(s[j], s[4 + j], 0x20);
      r[4 + j] = _mm256_permute2f128_ps(s[j], s[4 + j], 0x31);
    }
  }
};

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_SIMD_AVX2_H_
