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

// Descriptor of a tile with 128-byte swizzle that starts at a multiple of 1024 bytes.
// stride_bytes: from 8 rows to the next 8. leading_bytes: between panels of an MN-major tile.
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned shared,
                                                               unsigned leading_bytes,
                                                               unsigned stride_bytes) {
  const unsigned long long swizzle_128 = 1ull << 62;
  return (unsigned long long)((shared & 0x3FFFFu) >> 4) |
         (unsigned long long)(leading_bytes >> 4) << 16 |
         (unsigned long long)(stride_bytes >> 4) << 32 | swizzle_128;
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
