// mbarrier: a counter in shared memory with a phase bit and a transaction count.
// A phase completes when all expected arrivals came and all expected bytes landed; then the count
// re-arms and the parity flips. On a fresh barrier a wait for parity 1 passes at once.
// The unqualified forms are meant: .release.cluster and .acquire.cluster put MEMBAR.ALL.GPU and
// CCTL.IVALL into the main loop. Source: PTX ISA, Parallel Synchronization: mbarrier.

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the initialised barriers known to the cluster and to the copy engine.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives on the barrier at the same shared address of block `rank` of the cluster.
__device__ __forceinline__ void mbarrier_arrive_remote(unsigned barrier, unsigned rank) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Announces `bytes` of asynchronous copies, then arrives once.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Returns once the phase of this parity has completed. try_wait may give up after a while: loop.
__device__ __forceinline__ void mbarrier_wait_parity(unsigned barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "$wait_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra $done_%=;\n"
      "bra $wait_%=;\n"
      "$done_%=: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
