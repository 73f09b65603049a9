// Rows that are aligned to less than 4 bytes: aligned words and a funnel shift make 16 bytes.

// `bytes` bytes from `from`, the rest of 16 zero. Reads whole aligned words that hold at least one
// of the wanted bytes, so at most 3 bytes beyond them, never another word.
__device__ __forceinline__ uint4 load_unaligned(const char* from, int bytes) {
  const unsigned long long address = (unsigned long long)from;
  const unsigned* words = (const unsigned*)(address & ~3ull);
  const int skip = (int)(address & 3), reach = bytes <= 0 ? 0 : min(bytes, 16) + skip;
  unsigned word[5], out[4];
#pragma unroll
  for (int i = 0; i < 5; ++i) word[i] = 4 * i < reach ? __ldg(words + i) : 0u;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned joined = __funnelshift_r(word[i], word[i + 1], 8 * skip);
    const int left = bytes - 4 * i;
    out[i] = left >= 4 ? joined : left <= 0 ? 0u : joined & (0xffffffffu >> (32 - 8 * left));
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// All 16 bytes, or zeros where the row lies outside.
__device__ __forceinline__ uint4 load_unaligned_or_zero(const char* from, bool inside) {
  const unsigned long long address = (unsigned long long)from;
  const unsigned* words = (const unsigned*)(address & ~3ull);
  const int skip = (int)(address & 3);
  unsigned word[5];
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = inside ? __ldg(words + i) : 0u;
  word[4] = inside && skip ? __ldg(words + 4) : 0u;
  return make_uint4(__funnelshift_r(word[0], word[1], 8 * skip),
                    __funnelshift_r(word[1], word[2], 8 * skip),
                    __funnelshift_r(word[2], word[3], 8 * skip),
                    __funnelshift_r(word[3], word[4], 8 * skip));
}
