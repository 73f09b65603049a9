// Copies by the threads of the producer, for operands that TMA cannot address: the shared image is
// the one TMA would write. A line is one 128-byte shared row; chunk c of line l lies at chunk
// c ^ (l % 8). Source: PTX ISA, cp.async; zero-fill by its source size.

template <int kBytes>
__device__ __forceinline__ void cp_async(unsigned shared, const void* global, unsigned keep) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global),
               "n"(kBytes), "r"(keep)
               : "memory");
}

__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Sixteen bytes from an address that is only a multiple of an element: aligned words, shifted.
// Bytes from `keep` on are zero; words without a byte to keep are not read.
__device__ __forceinline__ uint4 load_unaligned_16(const char* global, int keep) {
  const unsigned shift = (unsigned)((unsigned long long)global & 3) * 8;
  const unsigned* words = (const unsigned*)((unsigned long long)global & ~3ull);
  const int wanted = keep > 0 ? keep + (int)(shift / 8) : 0;
  unsigned w[5], out[4];
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = 4 * i < wanted ? __ldg(words + i) : 0u;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int left = keep - 4 * i;
    const unsigned mask = left >= 4 ? ~0u : left > 0 ? (1u << (8 * left)) - 1 : 0u;
    out[i] = __funnelshift_r(w[i], w[i + 1], shift) & mask;
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// Starts the copy of one line: `valid` bytes (at most 128) from `global`, zeros after them.
// Thread `lane` of `kLanes` copies every kLanes-th chunk of kChunk bytes.
template <int kChunk>
__device__ __forceinline__ void copy_chunk(unsigned tile, int line, int chunk, const char* global,
                                           int valid) {
  const int byte = chunk * kChunk, left = valid - byte;
  const unsigned keep = left <= 0 ? 0u : left < kChunk ? (unsigned)left : (unsigned)kChunk;
  const unsigned shared =
      tile + line * 128u + ((unsigned)(byte / 16 ^ (line & 7)) << 4) + (unsigned)(byte % 16);
  cp_async<kChunk>(shared, global + (keep ? byte : 0), keep);
}

// The same for rows at any multiple of an element: through registers, 16 bytes at a time.
__device__ __forceinline__ void copy_unaligned_16(unsigned tile, int line, int chunk,
                                                  const char* global, int valid) {
  const uint4 v = load_unaligned_16(global + (valid > chunk * 16 ? chunk * 16 : 0),
                                    min(valid - chunk * 16, 16));
  const unsigned shared = tile + line * 128u + ((unsigned)(chunk ^ (line & 7)) << 4);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
