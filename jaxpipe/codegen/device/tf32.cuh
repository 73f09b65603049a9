// float32 bits to the nearest TensorFloat-32, ties away from zero.
__device__ __forceinline__ unsigned round_tf32(unsigned bits) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
}
