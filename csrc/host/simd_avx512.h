// Vector operations of AVX-512 (F, BW, DQ, VL). Include only from a file built for it.
#ifndef JAXPIPE_HOST_SIMD_AVX512_H_
#define JAXPIPE_HOST_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace jaxpipe::host {
namespace {

struct Simd {
  static constexpr int kLanes = 16;
  using V = __m512;
  using I = __m512i;

  static V Zero() { return _mm512_setzero_ps(); }
  static V Set1(float x) { return _mm512_set1_ps(x); }
  static I SetWord(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }
  static I SetWord1(int32_t word) { return _mm512_set1_epi32(word); }
  static V Load(const float* p) { return _mm512_loadu_ps(p); }
  static V LoadAligned(const void* p) { return _mm512_load_ps(p); }
  static void Store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void StoreWords(void* p, I v) { _mm512_storeu_si512(p, v); }
  static I AsWords(V v) { return _mm512_castps_si512(v); }
  static V AsFloats(I v) { return _mm512_castsi512_ps(v); }
  // Keeps a loaded value in a register: GCC otherwise folds the load into every FMA that uses it.
  static void Keep(V& v) { asm("" : "+v"(v)); }
  static void Keep(I& v) { asm("" : "+v"(v)); }

  static V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V Add(V a, V b) { return _mm512_add_ps(a, b); }
  static V Sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V Mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V Div(V a, V b) { return _mm512_div_ps(a, b); }
  static V Max(V a, V b) { return _mm512_max_ps(a, b); }  // b where either is NaN
  static V Min(V a, V b) { return _mm512_min_ps(a, b); }  // b where either is NaN
  static V Abs(V a) { return _mm512_abs_ps(a); }
  static V CopySign(V magnitude, V sign) {
    return _mm512_xor_ps(magnitude, _mm512_and_ps(sign, Set1(-0.0f)));
  }
  static V SelectLess(V a, V b, V less, V other) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), other, less);
  }
  // (nearest integer of a as float, p * 2^that)
  static V Round(V a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static V Scale(V p, V n) {
    return AsFloats(_mm512_add_epi32(AsWords(p), _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23)));
  }
  static I MaddS16(I acc, I a, I b) { return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b)); }

  static V LoadBF16(const void* p) {
    const __m256i half = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return AsFloats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static V LoadF16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static void StoreBF16(void* p, V v) {
    const I bits = AsWords(v);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    I r = _mm512_add_epi32(bits, _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd));
    r = _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                              _mm512_set1_epi32(0x7fc00000));
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
  }
  static void StoreF16(void* p, V v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Lane i: low half from a[i], high half from b[i].
  static I PairU16(const void* a, const void* b) {
    const I lo = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(a)));
    const I hi = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(b)));
    return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
  }
  static I PairS8(const void* a, const void* b) {
    const I lo = _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(a)));
    const I hi = _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(b)));
    return _mm512_or_si512(_mm512_and_si512(lo, _mm512_set1_epi32(0xffff)),
                           _mm512_slli_epi32(hi, 16));
  }
  static I LoadWords(const void* p) { return _mm512_loadu_si512(p); }
  static I WidenS8(const void* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }

  static void Transpose(V r[kLanes]) {
    __m512d d[16];
    for (int i = 0; i < 4; ++i) {
      const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * i], r[4 * i + 1]));
      const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * i], r[4 * i + 1]));
      const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * i + 2], r[4 * i + 3]));
      const __m512d e = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * i + 2], r[4 * i + 3]));
      d[4 * i] = _mm512_unpacklo_pd(a, c);
      d[4 * i + 1] = _mm512_unpackhi_pd(a, c);
      d[4 * i + 2] = _mm512_unpacklo_pd(b, e);
      d[4 * i + 3] = _mm512_unpackhi_pd(b, e);
    }
    for (int j = 0; j < 4; ++j) {
      const V a = _mm512_castpd_ps(d[j]), b = _mm512_castpd_ps(d[4 + j]);
      const V c = _mm512_castpd_ps(d[8 + j]), e = _mm512_castpd_ps(d[12 + j]);
      const V ab_even = _mm512_shuffle_f32x4(a, b, 0x88), ab_odd = _mm512_shuffle_f32x4(a, b, 0xdd);
      const V ce_even = _mm512_shuffle_f32x4(c, e, 0x88), ce_odd = _mm512_shuffle_f32x4(c, e, 0xdd);
      r[j] = _mm512_shuffle_f32x4(ab_even, ce_even, 0x88);
      r[8 + j] = _mm512_shuffle_f32x4(ab_even, ce_even, 0xdd);
      r[4 + j] = _mm512_shuffle_f32x4(ab_odd, ce_odd, 0x88);
      r[12 + j] = _mm512_shuffle_f32x4(ab_odd, ce_odd, 0xdd);
    }
  }
};

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_SIMD_AVX512_H_
