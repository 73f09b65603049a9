// Element types without CUDA headers, conversions that round once, and the activations.
// Shared by every family. Errors against exact functions, relative: silu and gelu_tanh 1e-6,
// gelu_erf 5e-7 for x > -1 and 1e-5 in its negative tail; tanh is CUDA's own.

struct bfloat16 {
  unsigned short bits;
};
struct float16 {
  unsigned short bits;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(int x) { return (float)x; }
__device__ __forceinline__ float to_float(bfloat16 x) {
  return __uint_as_float((unsigned)x.bits << 16);
}
__device__ __forceinline__ float to_float(float16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <class T>
__device__ __forceinline__ T round_to(float x);
template <>
__device__ __forceinline__ float round_to<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ int round_to<int>(float x) {
  return __float2int_rn(x);
}
template <>
__device__ __forceinline__ bfloat16 round_to<bfloat16>(float x) {
  bfloat16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ float16 round_to<float16>(float x) {
  float16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// Two neighbours in one register, the first in the low half (cvt takes the high half first).
template <class T>
__device__ __forceinline__ unsigned pack_pair(float low, float high);
template <>
__device__ __forceinline__ unsigned pack_pair<bfloat16>(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ unsigned pack_pair<float16>(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Bits of one 32-bit element.
__device__ __forceinline__ unsigned bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ unsigned bits_of(int x) { return (unsigned)x; }

// *pointer as float, or 0 where it is outside.
template <class T>
__device__ __forceinline__ float load_or_zero(const T* pointer, bool inside) {
  return inside ? to_float(*pointer) : 0.0f;
}

// max(x, 0) that keeps NaN.
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }
__device__ __forceinline__ int relu(int x) { return max(x, 0); }

// 2^x and 1/x to one or two units in the last place; subnormal numbers count as zero.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + e^-x).
__device__ __forceinline__ float sigmoid(float x) {
  return reciprocal_approx(1.0f + exp2_approx(-1.4426950408889634f * x));
}

__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

// 0.5 x (1 + tanh(u)) is x * sigmoid(2u): no cancellation for negative x.
__device__ __forceinline__ float gelu_tanh(float x) {
  const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return x * sigmoid(2.0f * u);
}

// Phi(x) with erfc(z) = t * exp(-z^2 + polynomial(t)), t = 1 / (1 + z / 2), which is exact to
// 1.2e-7 of itself for every z >= 0 (Press et al., Numerical Recipes, erfcc): no branch, and no
// cancellation for negative x.
__device__ __forceinline__ float normal_cdf(float x) {
  const float z = fabsf(x) * 0.7071067811865476f, t = reciprocal_approx(fmaf(0.5f, z, 1.0f));
  float p = 0.17087277f;
  p = fmaf(p, t, -0.82215223f);
  p = fmaf(p, t, 1.48851587f);
  p = fmaf(p, t, -1.13520398f);
  p = fmaf(p, t, 0.27886807f);
  p = fmaf(p, t, -0.18628806f);
  p = fmaf(p, t, 0.09678418f);
  p = fmaf(p, t, 0.37409196f);
  p = fmaf(p, t, 1.00002368f);
  const float exponent = fmaf(-z, z, fmaf(p, t, -1.26551223f));
  const float half_erfc = 0.5f * t * exp2_approx(1.4426950408889634f * exponent);
  return x < 0.0f ? half_erfc : 1.0f - half_erfc;
}

__device__ __forceinline__ float gelu_erf(float x) { return x * normal_cdf(x); }

// First derivatives. A cube or a square that would overflow meets a factor that is 0 by then.
__device__ __forceinline__ float relu_derivative(float x) { return x > 0.0f ? 1.0f : 0.0f; }
// Of x * sigmoid(z): s + x s (1 - s) times z's own slope; 1 - s is e s with e = exp(-z).
__device__ __forceinline__ float times_sigmoid_derivative(float x, float z, float slope) {
  const float e = fminf(exp2_approx(-1.4426950408889634f * z), 1.0e30f);
  const float s = reciprocal_approx(1.0f + e);
  return fmaf(x * s * (e * s), slope, s);
}
__device__ __forceinline__ float silu_derivative(float x) {
  return times_sigmoid_derivative(x, x, 1.0f);
}
__device__ __forceinline__ float tanh_derivative(float x) {
  const float t = tanhf(x);
  return fmaf(-t, t, 1.0f);
}
__device__ __forceinline__ float gelu_tanh_derivative(float x) {
  const float square = fminf(x * x, 1.0e6f);
  const float z = 1.5957691216057308f * x * fmaf(0.044715f, square, 1.0f);
  return times_sigmoid_derivative(x, z, 1.5957691216057308f * fmaf(0.134145f, square, 1.0f));
}
__device__ __forceinline__ float gelu_erf_derivative(float x) {
  const float density = 0.3989422804014327f * exp2_approx(-0.7213475204444817f * x * x);
  return fmaf(x, density, normal_cdf(x));
}

// Two neighbours as floats, 0 where outside. kAligned: the address is a multiple of the pair and
// both are inside or outside together, so that one load serves.
template <bool kAligned, class T>
__device__ __forceinline__ float2 load_pair_or_zero(const T* pointer, bool first, bool second) {
  float2 pair = make_float2(0.0f, 0.0f);
  if constexpr (kAligned && sizeof(T) == 2) {
    const unsigned both = first ? *(const unsigned*)pointer : 0u;
    pair.x = to_float(T{(unsigned short)both});
    pair.y = to_float(T{(unsigned short)(both >> 16)});
  } else if constexpr (kAligned && sizeof(T) == 4) {
    struct alignas(8) Both {
      T low, high;
    };
    if (first) {
      const Both both = *(const Both*)pointer;
      pair = make_float2(to_float(both.low), to_float(both.high));
    }
  } else {
    pair.x = load_or_zero(pointer, first);
    pair.y = load_or_zero(pointer + 1, second);
  }
  return pair;
}

// Stores the first `keep` bytes of 16 by pieces of kBytes; both are multiples of an element.
template <int kBytes>
__device__ __forceinline__ void store_pieces(char* to, uint4 value, int keep) {
  const unsigned words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int byte = 0; byte < 16; byte += kBytes) {
    if (byte + kBytes > keep) continue;
    const unsigned word = words[byte / 4];
    if constexpr (kBytes == 8) {
      *(uint2*)(to + byte) = make_uint2(word, words[byte / 4 + 1]);
    } else if constexpr (kBytes == 4) {
      *(unsigned*)(to + byte) = word;
    } else {
      *(unsigned short*)(to + byte) = (unsigned short)(word >> (byte % 4 * 8));
    }
  }
}
