// A 64x64x32 bf16 product with a cp.async pipeline. STAGES, STAGE (bytes) and SWIZZLED come
// as definitions from tests/ptx/kernels.py.
typedef unsigned int u32;
typedef unsigned short half_t;
constexpr int M_TILE = 64, N_TILE = 64, K_TILE = 32;
__device__ __forceinline__ u32 shared(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void load_a(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_b(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 place_a(int row, int chunk) {
  return row * 64 + (chunk ^ (SWIZZLED ? (row >> 1) & 3 : 0)) * 16;
}
__device__ __forceinline__ u32 place_b(int row, int chunk) {
  return row * 128 + (chunk ^ (SWIZZLED ? row & 7 : 0)) * 16;
}

extern "C" __global__ void __launch_bounds__(128)
    gemm(const half_t* __restrict__ a, const half_t* __restrict__ b, float* __restrict__ c, int m,
         int n, int k) {
  extern __shared__ __align__(128) unsigned char smem[];
  const u32 base = shared(smem);
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int warp_m = (warp >> 1) * 32, warp_n = (warp & 1) * 32;
  const int m0 = blockIdx.y * M_TILE, n0 = blockIdx.x * N_TILE, trips = (k + K_TILE - 1) / K_TILE;
  float acc[2][4][4] = {};
  auto load = [&](int t) {
    const u32 to = base + (t % STAGES) * STAGE;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int id = i * 128 + thread, row = id / 4, chunk = id % 4, kk = t * K_TILE + chunk * 8;
      const bool in = m0 + row < m && kk < k;
      copy16(to + place_a(row, chunk), a + (in ? (size_t)(m0 + row) * k + kk : 0), in ? 16 : 0);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int id = i * 128 + thread, row = id / 8, chunk = id % 8, kk = t * K_TILE + row;
      const bool in = n0 + chunk * 8 < n && kk < k;
      copy16(to + M_TILE * 64 + place_b(row, chunk), b + (in ? (size_t)kk * n + n0 + chunk * 8 : 0),
             in ? 16 : 0);
    }
  };
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < trips) load(s);
    commit();
  }
#pragma unroll 1
  for (int t = 0; t < trips; ++t) {
    wait_group<STAGES - 2>();
    __syncthreads();  // landed
    const u32 from = base + (t % STAGES) * STAGE, from_b = from + M_TILE * 64;
    if (t + STAGES - 1 < trips) load(t + STAGES - 1);
    commit();
#pragma unroll
    for (int kk = 0; kk < 2; ++kk) {
      u32 fa[2][4], fb[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_a(fa[i], from + place_a(warp_m + i * 16 + (lane & 15), kk * 2 + (lane >> 4)));
#pragma unroll
      for (int j = 0; j < 2; ++j)
        load_b(fb[j], from_b + place_b(kk * 16 + (lane & 15), warp_n / 8 + j * 2 + (lane >> 4)));
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          mma(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = m0 + warp_m + i * 16 + (lane >> 2) + h * 8,
                  column = n0 + warp_n + j * 8 + (lane & 3) * 2;
        if (row < m && column < n)
          *(float2*)(c + (size_t)row * n + column) =
              make_float2(acc[i][j][h * 2], acc[i][j][h * 2 + 1]);
      }
}
