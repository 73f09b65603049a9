// 8-bit floating point (sm_89 and later). The hardware conversion saturates; XLA's does not:
// e4m3fn has no infinity, so what overflows is NaN, and e5m2 overflows to infinity.

struct float8_e4m3fn {
  unsigned char bits;
};
struct float8_e5m2 {
  unsigned char bits;
};

__device__ __forceinline__ float to_float(float8_e4m3fn x) {
  unsigned pair, low;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)x.bits));
  low = pair & 0xffffu;
  return to_float(float16{(unsigned short)low});
}
__device__ __forceinline__ float to_float(float8_e5m2 x) {
  return to_float(float16{(unsigned short)(x.bits << 8)});  // e5m2 is the upper half of float16
}
template <>
__device__ __forceinline__ float8_e4m3fn round_to<float8_e4m3fn>(float x) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  const bool overflows = fabsf(x) > 464.0f;
  return {(unsigned char)(overflows ? sign | 0x7fu : pair & 0xffu)};
}
template <>
__device__ __forceinline__ float8_e5m2 round_to<float8_e5m2>(float x) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  const bool overflows = fabsf(x) >= 61440.0f;
  return {(unsigned char)(overflows ? sign | 0x7cu : pair & 0xffu)};
}
