// matmul 512x3072x760 nn bfloat16->bfloat16 bias+gelu_erf
// block_m=128,block_n=128,block_k=32,smem_stages=3,reg_stages=2
// for sm_80; emitted by jaxpipe

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

// kCount neighbouring elements of a row as float or int values, in the widest accesses that their
// common alignment (kCount * sizeof(element) bytes, a power of two) allows.

template <int kBytes>
struct Access {
  using type = uint4;
};
template <>
struct Access<8> {
  using type = uint2;
};
template <>
struct Access<4> {
  using type = unsigned;
};
template <>
struct Access<2> {
  using type = unsigned short;
};
template <>
struct Access<1> {
  using type = unsigned char;
};

__device__ __forceinline__ float to_float(signed char x) { return (float)x; }
template <class T>
__device__ __forceinline__ void convert(float& to, T from) {
  to = to_float(from);
}
__device__ __forceinline__ void convert(float& to, float from) { to = from; }
__device__ __forceinline__ void convert(int& to, int from) { to = from; }
__device__ __forceinline__ void convert(int& to, signed char from) { to = from; }
template <class T>
__device__ __forceinline__ void convert(T& to, float from) {
  to = round_to<T>(from);
}
__device__ __forceinline__ void convert(signed char& to, int from) { to = (signed char)from; }

template <int kCount, class T, class V>
__device__ __forceinline__ void load_vector(V (&to)[kCount], const T* from) {
  using Word = typename Access<kCount * sizeof(T)>::type;
  constexpr int kWords = kCount * sizeof(T) / sizeof(Word);
  union {
    Word words[kWords];
    T elements[kCount];
  } u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) u.words[i] = __ldg((const Word*)from + i);
#pragma unroll
  for (int i = 0; i < kCount; ++i) convert(to[i], u.elements[i]);
}

template <int kCount, class T, class V>
__device__ __forceinline__ void store_vector(T* to, const V (&from)[kCount]) {
  using Word = typename Access<kCount * sizeof(T)>::type;
  constexpr int kWords = kCount * sizeof(T) / sizeof(Word);
  union {
    Word words[kWords];
    unsigned pairs[kCount * sizeof(T) / 4 + 1];
    T elements[kCount];
  } u;
  if constexpr (sizeof(T) == 2 && kCount % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) u.pairs[i / 2] = pack_pair<T>(from[i], from[i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) convert(u.elements[i], from[i]);
  }
#pragma unroll
  for (int i = 0; i < kWords; ++i) ((Word*)to)[i] = u.words[i];
}

// Shared memory by its 32-bit address.

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}
__device__ __forceinline__ void store_shared(unsigned to, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}
__device__ __forceinline__ void store_shared_pair(unsigned to, unsigned first, unsigned second) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
               :: "r"(to), "r"(first), "r"(second) : "memory");
}
__device__ __forceinline__ uint4 load_shared(unsigned from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ unsigned load_shared_word(unsigned from) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}

// Asynchronous copies from global to shared memory (sm_80 and later); PTX ISA, cp.async.

// Copies `bytes` bytes and fills the rest of 16 with zeros; 0 bytes touches no global memory.
__device__ __forceinline__ void copy_async_16(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async_16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :: "r"(to), "l"(from) : "memory");
}
// The same for 8 and 4 bytes, which go through L1.
template <int kBytes>
__device__ __forceinline__ void copy_async(unsigned to, const void* from, int bytes) {
  if constexpr (kBytes == 16) copy_async_16(to, from, bytes);
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                    :: "r"(to), "l"(from), "n"(kBytes), "r"(bytes) : "memory");
}
template <int kBytes>
__device__ __forceinline__ void copy_async(unsigned to, const void* from) {
  if constexpr (kBytes == 16) copy_async_16(to, from);
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                    :: "r"(to), "l"(from), "n"(kBytes) : "memory");
}
// Closes a group, also an empty one.
__device__ __forceinline__ void commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's newest groups are incomplete.
template <int kPending>
__device__ __forceinline__ void wait_group() {
  asm volatile("cp.async.wait_group %0;" :: "n"(kPending) : "memory");
}

// Four 8x8 matrices of 16-bit elements from shared memory; PTX ISA, ldmatrix.

__device__ __forceinline__ void ldmatrix(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}

// d += a * b on one 16x8 tile of results, 16 deep; PTX ISA, mma.sync.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4],
                                            unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// acc += lhs * rhs on a warp tile, 16 deep: 4 x 8 tiles of 16 x 8.
// Columns go back and forth, so that the last operand is used again.
__device__ __forceinline__ void multiply(float (&acc)[4][8][4],
                                         const unsigned (&lhs)[4][4],
                                         const unsigned (&rhs)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int j = i % 2 ? 7 - c : c;
      mma_m16n8k16_bf16(acc[i][j], lhs[i], rhs[j / 2][j % 2 * 2], rhs[j / 2][j % 2 * 2 + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(128, 1)
jaxpipe_ampere(const bfloat16* __restrict__ lhs, const bfloat16* __restrict__ rhs, const bfloat16* __restrict__ bias, bfloat16* __restrict__ out) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  const unsigned shared = shared_address(dynamic_shared);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int tile = blockIdx.x;
  const int m0 = tile % 4, n0 = tile / 4;
  const int wm = warp % 2;
  const int wn = warp / 2;

  // lhs -> lhs_shared: 4 x 16 bytes a thread
  const int lhs_row = thread / 4, lhs_column = thread % 4 * 8;
  const unsigned lhs_to = shared + lhs_row * 64 + (lhs_column * 2 ^ (lhs_row >> 1 & 3) * 16);
  const char* lhs_from = (const char*)lhs + ((long long)lhs_row * 760 + lhs_column + m0 * 97280ll) * 2;
  const int lhs_columns = 760 - lhs_column;

  // rhs -> rhs_shared: 4 x 16 bytes a thread
  const int rhs_row = thread / 16, rhs_column = thread % 16 * 8;
  const unsigned rhs_to = shared + 24576 + rhs_row * 256 + (rhs_column * 2 ^ (rhs_row & 7) * 16);
  const char* rhs_from = (const char*)rhs + ((long long)rhs_row * 3072 + rhs_column + n0 * 128ll) * 2;
  const int rhs_rows = 760 - rhs_row;

  // Fragments and accumulators
  const int lhs_fragment_row = wm * 64 + lane % 16;
  const unsigned lhs_fragment = shared + lhs_fragment_row * 64 + ((lane / 16 * 16) ^ (lhs_fragment_row >> 1 & 3) * 16);
  unsigned lhs_reg[2][4][4];
  const int rhs_fragment_row = lane % 16;
  const unsigned rhs_fragment = shared + 24576 + rhs_fragment_row * 256 + (((wn * 64 + lane / 16 * 8) * 2) ^ (rhs_fragment_row & 7) * 16);
  unsigned rhs_reg[2][4][4];
  float acc[4][8][4];

#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = 0;

  // Prologue: fill the pipeline
  {
    const char* from = lhs_from;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      copy_async<16>(lhs_to + i * 2048, from + i * 48640);
  }
  {
    const char* from = rhs_from;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      copy_async<16>(rhs_to + i * 2048, from + i * 49152);
  }
  commit_group();
  {
    const char* from = lhs_from + 64;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      copy_async<16>(lhs_to + 8192 + i * 2048, from + i * 48640);
  }
  {
    const char* from = rhs_from + 196608;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      copy_async<16>(rhs_to + 8192 + i * 2048, from + i * 49152);
  }
  commit_group();
  wait_group<1>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[0][i], lhs_fragment + i * 1024);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[0][i], ((rhs_fragment) ^ (i * 32)));

  // Steady state: load ahead, multiply
  {
    int ko_0_3 = 0, ko_1_3 = 1, ko_2_3 = 2;
#pragma unroll 1
    for (int ko = 0; ko < 21; ++ko) {
#pragma unroll
      for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[1][i], ((lhs_fragment + ko_0_3 * 8192) ^ (32)) + i * 1024);
#pragma unroll
      for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[1][i], ((rhs_fragment + ko_0_3 * 8192) ^ (i * 32)) + 4096);
      {
        const char* from = lhs_from + ko * 64 + 128;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          copy_async<16>(lhs_to + ko_2_3 * 8192 + i * 2048, from + i * 48640);
      }
      {
        const char* from = rhs_from + ko * 196608 + 393216;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          copy_async<16>(rhs_to + ko_2_3 * 8192 + i * 2048, from + i * 49152);
      }
      commit_group();
      multiply(acc, lhs_reg[0], rhs_reg[0]);
      wait_group<1>();
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[0][i], lhs_fragment + ko_1_3 * 8192 + i * 1024);
#pragma unroll
      for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[0][i], ((rhs_fragment + ko_1_3 * 8192) ^ (i * 32)));
      multiply(acc, lhs_reg[1], rhs_reg[1]);
      ko_0_3 = ko_0_3 == 2 ? 0 : ko_0_3 + 1;
      ko_1_3 = ko_1_3 == 2 ? 0 : ko_1_3 + 1;
      ko_2_3 = ko_2_3 == 2 ? 0 : ko_2_3 + 1;
    }
  }

  // Drain: what is loaded already
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[1][i], ((lhs_fragment) ^ (32)) + i * 1024);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[1][i], ((rhs_fragment) ^ (i * 32)) + 4096);
  {
    const char* from = lhs_from + 1472;
    const int bytes = min(max((lhs_columns - (736)) * 2, 0), 16);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      copy_async<16>(lhs_to + 16384 + i * 2048, from + i * 48640, bytes);
  }
  {
    const char* from = rhs_from + 4521984;
    const int rows = rhs_rows - (736);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      copy_async<16>(rhs_to + 16384 + i * 2048, from + i * 49152, i * 8 < rows ? 16 : 0);
  }
  commit_group();
  multiply(acc, lhs_reg[0], rhs_reg[0]);
  wait_group<1>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[0][i], lhs_fragment + 8192 + i * 1024);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[0][i], ((rhs_fragment + 8192) ^ (i * 32)));
  multiply(acc, lhs_reg[1], rhs_reg[1]);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[1][i], ((lhs_fragment + 8192) ^ (32)) + i * 1024);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[1][i], ((rhs_fragment + 8192) ^ (i * 32)) + 4096);
  commit_group();
  multiply(acc, lhs_reg[0], rhs_reg[0]);
  wait_group<1>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[0][i], lhs_fragment + 16384 + i * 1024);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[0][i], ((rhs_fragment + 16384) ^ (i * 32)));
  multiply(acc, lhs_reg[1], rhs_reg[1]);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix(lhs_reg[1][i], ((lhs_fragment + 16384) ^ (32)) + i * 1024);
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_transposed(rhs_reg[1][i], ((rhs_fragment + 16384) ^ (i * 32)) + 4096);
  commit_group();
  multiply(acc, lhs_reg[0], rhs_reg[0]);
  multiply(acc, lhs_reg[1], rhs_reg[1]);
  __syncthreads();

  // Epilogue
  const unsigned staging = shared + warp * 4608;
  const int first_row = m0 * 128 + wm * 64;
  const int first_column = n0 * 128 + wn * 64;
  auto finish = [&](float (&x)[8], int row, int column) {
    float bias_values[8];
    load_vector<8>(bias_values, bias + column);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] += bias_values[e];
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] = gelu_erf(x[e]);
    store_vector<8>(out + (long long)column + row * 3072ll, x);
  };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const unsigned to = staging + lane / 4 * 288 + h * 2304 + (2 * j + lane % 4 / 2) % 2 * 144 + (2 * j + lane % 4 / 2) / 2 * 16 + lane % 2 * 8;
        store_shared_pair(to, bits_of(acc[i][j][2 * h]), bits_of(acc[i][j][2 * h + 1]));
      }
    __syncwarp();
#pragma unroll 1
    for (int v = 0; v < 4; ++v) {
      const int index = v * 32 + lane, down = index / 8;
      const int row = first_row + i * 16 + down;
      const int right = index % 8, column = first_column + right * 8;
      float x[8];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const uint4 four = load_shared(staging + down * 288 + q * 144 + right * 16);
        x[4 * q + 0] = __uint_as_float(four.x);
        x[4 * q + 1] = __uint_as_float(four.y);
        x[4 * q + 2] = __uint_as_float(four.z);
        x[4 * q + 3] = __uint_as_float(four.w);
      }
      finish(x, row, column);
    }
  }
}
