// wgmma: products of shared-memory tiles by the four warps of a warpgroup, asynchronously.
// Source: PTX ISA, Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operations.

// Orders this thread's accesses to accumulator registers before the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Returns once all but the newest `kPending` groups are complete: their accumulators may be read,
// their shared tiles overwritten.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// A descriptor of a tile whose rows are 128 bytes, swizzled, from a multiple of 1024 bytes on.
// Its low word holds the address and the bytes between panels of an MN-major tile, both in units
// of 16 bytes: adding to it moves the start. The high word is fixed: 8 rows are 1024 bytes,
// 128-byte swizzle.
__device__ __forceinline__ unsigned wgmma_descriptor_low(unsigned shared, unsigned panel_bytes) {
  return (shared & 0x3FFFFu) >> 4 | panel_bytes >> 4 << 16;
}

__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned low) {
  const unsigned long long high = 1024 >> 4 | 1u << 30;
  return high << 32 | low;
}

// Keeps every use of these accumulators on its side of this point: the compiler does not know
// that a wgmma in flight still writes them.
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(int (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
