// Asynchronous copies from global to shared memory (sm_80 and later); PTX ISA, cp.async.

// Copies `bytes` bytes and fills the rest of 16 with zeros; 0 bytes touches no global memory.
__device__ __forceinline__ void copy_async_16(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async_16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :: "r"(to), "l"(from) : "memory");
}
// The same for 8 and 4 bytes, which go through L1.
template <int kBytes>
__device__ __forceinline__ void copy_async(unsigned to, const void* from, int bytes) {
  if constexpr (kBytes == 16) copy_async_16(to, from, bytes);
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                    :: "r"(to), "l"(from), "n"(kBytes), "r"(bytes) : "memory");
}
template <int kBytes>
__device__ __forceinline__ void copy_async(unsigned to, const void* from) {
  if constexpr (kBytes == 16) copy_async_16(to, from);
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                    :: "r"(to), "l"(from), "n"(kBytes) : "memory");
}
// Closes a group, also an empty one.
__device__ __forceinline__ void commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's newest groups are incomplete.
template <int kPending>
__device__ __forceinline__ void wait_group() {
  asm volatile("cp.async.wait_group %0;" :: "n"(kPending) : "memory");
}
