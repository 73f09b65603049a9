// 8-bit operands that are stored along m or n: ldmatrix moves pairs of neighbours, PRMT parts them.
// Of 16 stored neighbours the even ones become the first half of a fragment, the odd ones the
// second, so results come out permuted by the same rule (the epilogue knows).

__device__ __forceinline__ void gather_lhs_bytes(unsigned (&to)[4], unsigned from) {
  unsigned pairs[4];
  ldmatrix_transposed(pairs, from);
  to[0] = __byte_perm(pairs[0], pairs[1], 0x6420);
  to[1] = __byte_perm(pairs[0], pairs[1], 0x7531);
  to[2] = __byte_perm(pairs[2], pairs[3], 0x6420);
  to[3] = __byte_perm(pairs[2], pairs[3], 0x7531);
}
__device__ __forceinline__ void gather_rhs_bytes(unsigned (&to)[4], unsigned from) {
  unsigned pairs[4];
  ldmatrix_transposed(pairs, from);
  to[0] = __byte_perm(pairs[0], pairs[1], 0x6420);
  to[1] = __byte_perm(pairs[2], pairs[3], 0x6420);
  to[2] = __byte_perm(pairs[0], pairs[1], 0x7531);
  to[3] = __byte_perm(pairs[2], pairs[3], 0x7531);
}
