// Vector operations in the compiler's own 16-byte vectors: SSE2 on x86-64, NEON on AArch64.
#ifndef JAXPIPE_HOST_SIMD_PORTABLE_H_
#define JAXPIPE_HOST_SIMD_PORTABLE_H_

#include <cstdint>

namespace jaxpipe::host {
namespace {

struct Simd {
  static constexpr int kLanes = 4;
  typedef float V __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));

  static V Zero() { return V{0, 0, 0, 0}; }
  static V Set1(float x) { return V{x, x, x, x}; }
  static I SetWord1(int32_t w) { return I{w, w, w, w}; }
  static I SetWord(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return SetWord1(word);
  }
  static V Load(const float* p) {
    V v;
    __builtin_memcpy(&v, p, 16);
    return v;
  }
  static V LoadAligned(const void* p) { return *static_cast<const V*>(p); }
  static void Store(float* p, V v) { __builtin_memcpy(p, &v, 16); }
  static void StoreWords(void* p, I v) { __builtin_memcpy(p, &v, 16); }
  static I AsWords(V v) { return reinterpret_cast<I>(v); }
  static V AsFloats(I v) { return reinterpret_cast<V>(v); }
  static void Keep(V&) {}
  static void Keep(I&) {}

  // Fused where the compiler contracts (AArch64), two roundings on plain SSE2.
  static V Fma(V a, V b, V c) { return a * b + c; }
  static V Add(V a, V b) { return a + b; }
  static V Sub(V a, V b) { return a - b; }
  static V Mul(V a, V b) { return a * b; }
  static V Div(V a, V b) { return a / b; }
  static V Select(I mask, V yes, V no) {
    return AsFloats((mask & AsWords(yes)) | (~mask & AsWords(no)));
  }
  static V Max(V a, V b) { return Select(a > b, a, b); }  // b where either is NaN
  static V Min(V a, V b) { return Select(a < b, a, b); }  // b where either is NaN
  static V Abs(V a) { return AsFloats(AsWords(a) & SetWord1(0x7fffffff)); }
  static V CopySign(V magnitude, V sign) {
    return AsFloats(AsWords(magnitude) ^ (AsWords(sign) & SetWord1(INT32_MIN)));
  }
  static V SelectLess(V a, V b, V less, V other) { return Select(a < b, less, other); }
  // Exact for |a| < 2^22, which is all that Exp asks.
  static V Round(V a) {
    const V magic = Set1(12582912.0f);
    V shifted = a + magic;
    asm("" : "+m"(shifted));  // keeps the compiler from cancelling the two
    return shifted - magic;
  }
  static V Scale(V p, V n) {
    const I exponent = __builtin_convertvector(n, I);
    return AsFloats(AsWords(p) + (exponent << 23));
  }
  static I MaddS16(I acc, I a, I b) {
    const I low = ((a << 16) >> 16) * ((b << 16) >> 16);
    return acc + low + (a >> 16) * (b >> 16);
  }

  static uint32_t Bits(float x) {
    uint32_t u;
    __builtin_memcpy(&u, &x, 4);
    return u;
  }
  static float FromBits(uint32_t u) {
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
  }
  static float WidenF16(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
    if (exponent == 0) {  // zero and denormals are multiples of 2^-24, exact in float32
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return FromBits(Bits(magnitude) | sign);
    }
    const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return FromBits(sign | wide << 23 | mantissa << 13);
  }
  static uint16_t NarrowF16(float x) {
    const uint32_t u = Bits(x), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    if (a >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to infinity
    if (a < 0x38800000) {  // denormal: round to a multiple of 2^-24 by adding 0.5
      const uint32_t r = Bits(FromBits(a) + 0.5f) - 0x3f000000;
      return static_cast<uint16_t>(sign | r);
    }
    return static_cast<uint16_t>(sign | ((a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13));
  }
  static uint16_t NarrowBF16(float x) {
    const uint32_t u = Bits(x);
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0;
    return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  static V LoadBF16(const void* p) {
    uint16_t h[4];
    __builtin_memcpy(h, p, 8);
    return AsFloats(I{h[0], h[1], h[2], h[3]} << 16);
  }
  static V LoadF16(const void* p) {
    uint16_t h[4];
    __builtin_memcpy(h, p, 8);
    return V{WidenF16(h[0]), WidenF16(h[1]), WidenF16(h[2]), WidenF16(h[3])};
  }
  static void StoreBF16(void* p, V v) {
    const uint16_t h[4] = {NarrowBF16(v[0]), NarrowBF16(v[1]), NarrowBF16(v[2]), NarrowBF16(v[3])};
    __builtin_memcpy(p, h, 8);
  }
  static void StoreF16(void* p, V v) {
    const uint16_t h[4] = {NarrowF16(v[0]), NarrowF16(v[1]), NarrowF16(v[2]), NarrowF16(v[3])};
    __builtin_memcpy(p, h, 8);
  }
  static I PairU16(const void* a, const void* b) {
    uint16_t lo[4], hi[4];
    __builtin_memcpy(lo, a, 8);
    __builtin_memcpy(hi, b, 8);
    return I{lo[0], lo[1], lo[2], lo[3]} | (I{hi[0], hi[1], hi[2], hi[3]} << 16);
  }
  static I PairS8(const void* a, const void* b) {
    int8_t lo[4], hi[4];
    __builtin_memcpy(lo, a, 4);
    __builtin_memcpy(hi, b, 4);
    return (I{lo[0], lo[1], lo[2], lo[3]} & SetWord1(0xffff)) |
           (I{hi[0], hi[1], hi[2], hi[3]} << 16);
  }
  static I LoadWords(const void* p) {
    I v;
    __builtin_memcpy(&v, p, 16);
    return v;
  }
  static I WidenS8(const void* p) {
    int8_t b[8];
    __builtin_memcpy(b, p, 8);
    return (I{b[0], b[2], b[4], b[6]} & SetWord1(0xffff)) | (I{b[1], b[3], b[5], b[7]} << 16);
  }
  static void Transpose(V r[kLanes]) {
    const V a = r[0], b = r[1], c = r[2], d = r[3];
    for (int i = 0; i < 4; ++i) r[i] = V{a[i], b[i], c[i], d[i]};
  }
};

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_SIMD_PORTABLE_H_
