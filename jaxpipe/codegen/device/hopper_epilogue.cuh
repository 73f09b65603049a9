// Results from registers to shared panels. A panel has rows of 128 bytes whose 16-byte chunks are
// XORed with the row (the tensor map's 128-byte swizzle). Source: PTX ISA, stmatrix.

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(unsigned shared, unsigned r0, unsigned r1, unsigned r2,
                                            unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(unsigned shared, unsigned r0, unsigned r1,
                                                  unsigned r2, unsigned r3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
      : "memory");
}

__device__ __forceinline__ void stmatrix_x2_trans(unsigned shared, unsigned r0, unsigned r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared),
               "r"(r0), "r"(r1)
               : "memory");
}

__device__ __forceinline__ void st_shared_v2(unsigned shared, unsigned r0, unsigned r1) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(shared), "r"(r0), "r"(r1) : "memory");
}

__device__ __forceinline__ void st_shared(unsigned shared, unsigned r0) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(r0) : "memory");
}

__device__ __forceinline__ unsigned ld_shared(unsigned shared) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(shared) : "memory");
  return value;
}

// Read where it stands, never before a barrier in front of it.
__device__ __forceinline__ float ld_shared_once(unsigned shared) {
  float value;
  asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(value) : "r"(shared) : "memory");
  return value;
}

__device__ __forceinline__ unsigned short ld_shared_u16(unsigned shared) {
  unsigned short value;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(value) : "r"(shared) : "memory");
  return value;
}

__device__ __forceinline__ uint4 ld_shared_v4(unsigned shared) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared)
               : "memory");
  return v;
}
