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
