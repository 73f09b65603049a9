// Roles, fences, named barriers and clusters. Source: PTX ISA.

// The warp's index as a value that the compiler knows to be uniform: roles branch on it.
__device__ __forceinline__ int uniform_warp() {
  return __shfl_sync(0xffffffffu, (int)threadIdx.x >> 5, 0);
}

// True in exactly one lane of a converged warp.
__device__ __forceinline__ bool elect_sync() {
  unsigned elected;
  asm volatile(
      "{ .reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one; }"
      : "=r"(elected));
  return elected != 0;
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Makes this thread's ordinary writes to shared memory visible to TMA and wgmma.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ unsigned cluster_ctarank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster meet. Relaxed arrival: what needs ordering before it
// (barrier initialisation) is ordered by its own fence.
__device__ __forceinline__ void barrier_cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Barrier of one warpgroup: identifiers 1 and up, 0 is __syncthreads.
__device__ __forceinline__ void bar_sync_group(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup) : "memory");
}

// x, computed anew wherever this stands: the compiler cannot move what depends on it out of a loop.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
