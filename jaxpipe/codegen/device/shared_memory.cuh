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
