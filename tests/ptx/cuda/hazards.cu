// One small kernel for every kind of hazard. With BROKEN, the line that is marked `FAULT kind` is
// the one at which the interpreter must report that kind; without it, the kernel is right.
#ifdef BROKEN
#define WRONG(code) code
#define RIGHT(code)
#else
#define WRONG(code)
#define RIGHT(code) code
#endif
#define KERNEL(name) \
  extern "C" __global__ void name(unsigned* data, const unsigned* input, unsigned words)
#define ASM(...) asm volatile(__VA_ARGS__ : "memory")
#define ST(at, value) asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(value) : "memory")
#define LD(value, at) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(at) : "memory")
#define COPY(at, from) \
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory")
#define COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT() asm volatile("cp.async.wait_group 0;" ::: "memory")
#define INIT(at, n) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory")
#define ARRIVE(at)                                                                                 \
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory")
#define INVAL(at) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory")

extern __shared__ __align__(1024) unsigned shared_words[];

__device__ __forceinline__ unsigned base() {
  return (unsigned)__cvta_generic_to_shared(shared_words);
}

// ---------------------------------------------------------------- asynchronous copies
KERNEL(read_pending) {
  const unsigned t = threadIdx.x, at = base() + 4 * t;
  unsigned v;
  COPY(at, input + t);
  COMMIT();
  RIGHT(WAIT();)
  LD(v, at);  // FAULT read_pending
  WAIT();
  data[t] = v;
}

KERNEL(overwrite_pending) {
  const unsigned t = threadIdx.x, at = base() + 4 * t;
  COPY(at, input + t);
  COMMIT();
  RIGHT(WAIT();)
  ST(at, t);  // FAULT overwrite_pending
  WAIT();
}

KERNEL(exit_pending) {
  const unsigned t = threadIdx.x, at = base() + 4 * t;
  COPY(at, input + t);  // FAULT exit_pending
  COMMIT();
  RIGHT(WAIT();)
}

// ---------------------------------------------------------------- order between warps and lanes
KERNEL(read_race) {
  const unsigned t = threadIdx.x, other = t ^ 32;
  unsigned v;
  ST(base() + 4 * t, t);
  RIGHT(__syncthreads();)
  LD(v, base() + 4 * other);  // FAULT read_race
  data[t] = v;
}

KERNEL(write_race) {
  const unsigned t = threadIdx.x;
  ST(base() + 4 * (t % 32) RIGHT(+128 * (t / 32)), t);  // FAULT write_race
}

KERNEL(overwrite_race) {
  const unsigned t = threadIdx.x, other = t ^ 32;
  unsigned v;
  ST(base() + 4 * t, t);
  __syncthreads();
  LD(v, base() + 4 * other);
  RIGHT(__syncthreads();)
  ST(base() + 4 * t, v + 1);  // FAULT overwrite_race
}

KERNEL(lane_race) {
  const unsigned t = threadIdx.x, other = t ^ 1;
  unsigned v;
  ST(base() + 4 * t, t);
  RIGHT(__syncwarp();)
  LD(v, base() + 4 * other);  // FAULT lane_race
  data[t] = v;
}

// ---------------------------------------------------------------- memory
KERNEL(unwritten_shared) {
  const unsigned t = threadIdx.x, at = base() + 4 * t;
  unsigned v;
  RIGHT(ST(at, t);)
  LD(v, at);  // FAULT unwritten_shared
  data[t] = v;
}

KERNEL(unwritten_global) {
  const unsigned t = threadIdx.x;
  RIGHT(data[t] = t;)
  data[t + 64] = *(volatile unsigned*)(data + t);  // FAULT unwritten_global
}

KERNEL(shared_bounds) {
  ST(base() + 4 * threadIdx.x WRONG(+(1 << 16)), 1);  // FAULT shared_bounds
}

KERNEL(global_bounds) {
  data[threadIdx.x WRONG(+words)] = 1;  // FAULT global_bounds
}

KERNEL(global_read_only) {
  ((unsigned*)RIGHT(data) WRONG(input))[threadIdx.x] = 1;  // FAULT global_read_only
}

KERNEL(local_bounds) {
  volatile unsigned local[4];
  for (unsigned i = 0; i < 4; ++i) local[i] = i;
  data[threadIdx.x] = local[words RIGHT(% 4)];  // FAULT local_bounds
}

KERNEL(misaligned) {
  *(unsigned*)((char*)data + 4 * threadIdx.x WRONG(+2)) = 1;  // FAULT misaligned
}

// ---------------------------------------------------------------- control
KERNEL(divergence) {
  if (threadIdx.x % 2 == 0 RIGHT(|| words != 0)) {
    ASM("bar.sync 1, 64;" ::);  // FAULT divergence
  } else {
    ASM("bar.sync 2, 64;" ::);
  }
}

KERNEL(barrier_count) {
  const unsigned count = 64 WRONG(+threadIdx.x / 32 * 32);
  ASM("bar.sync 1, %0;" ::"r"(count));  // FAULT barrier_count
}

KERNEL(deadlock) {
  if (threadIdx.x < 64 WRONG(-32)) {
    ASM("bar.sync 1, 64;" ::);  // FAULT deadlock
  }
  data[threadIdx.x] = 1;
}

KERNEL(step_limit) {
  for (unsigned i = 0; i < 3; i += WRONG(0 *) 1) {
    ST(base() + 4 * threadIdx.x, i);  // FAULT step_limit
  }
}

KERNEL(trap) {
  if (input[0] == WRONG(input[0] +) 0) {
    ASM("trap;" ::);  // FAULT trap
  }
}

KERNEL(unsupported) {
  if (threadIdx.x == 0) {
    INIT(base(), 1 WRONG(-1));  // FAULT unsupported
  }
}

// ---------------------------------------------------------------- mbarriers
KERNEL(mbarrier_invalid) {
  if (threadIdx.x == 0) {
    RIGHT(INIT(base(), 1);)
    ARRIVE(base());  // FAULT mbarrier_invalid
  }
}

KERNEL(mbarrier_init_race) {
  if (threadIdx.x == 0) INIT(base(), 1);
  RIGHT(__syncthreads();)
  if (threadIdx.x == 32) {
    ARRIVE(base());  // FAULT mbarrier_init_race
  }
}

KERNEL(mbarrier_in_use) {
  if (threadIdx.x == 0) {
    INIT(base(), 1);
    RIGHT(INVAL(base());)
    INIT(base(), 2);  // FAULT mbarrier_in_use
  }
}

KERNEL(mbarrier_arrivals) {
  if (threadIdx.x == 0) {
    INIT(base(), 1 RIGHT(+1));
    ASM("{ .reg .b64 t; mbarrier.arrive_drop.shared.b64 t, [%0]; }" ::"r"(base()));
    ARRIVE(base());  // FAULT mbarrier_arrivals
  }
}

#if __CUDA_ARCH__ >= 900
#define FENCE() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define STORE(to, from)                                                                         \
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" ::"l"(to), "r"(from) \
               : "memory")
#define STORED()                                         \
  asm volatile("cp.async.bulk.commit_group;" ::: "memory"); \
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")

KERNEL(overwrite_async_read) {
  const unsigned at = base() + 16 * threadIdx.x;
  for (unsigned i = 0; i < 4; ++i) ST(at + 4 * i, i);
  FENCE();
  STORE(data + 4 * threadIdx.x, at);
  RIGHT(STORED();)
  ST(at, 7);  // FAULT overwrite_async_read
  STORED();
}

KERNEL(proxy_fence) {
  const unsigned at = base() + 16 * threadIdx.x;
  for (unsigned i = 0; i < 4; ++i) ST(at + 4 * i, i);
  RIGHT(FENCE();)
  STORE(data + 4 * threadIdx.x, at);  // FAULT proxy_fence
  STORED();
}

KERNEL(mbarrier_bytes) {
  if (threadIdx.x == 0) {
    INIT(base(), 1);
    for (unsigned i = 0; i < 2; ++i)
      ASM("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(base()),  // FAULT mbarrier_bytes
          "r"(1000000 RIGHT(/ 2)));
  }
}

struct __align__(64) Map {
  char bytes[128];
};

extern "C" __global__ void tensor_map(unsigned* data, const unsigned* input, unsigned words,
                                      const __grid_constant__ Map map) {
  if (threadIdx.x == 0) {
    INIT(base() + 2048, 1);
    ASM("fence.mbarrier_init.release.cluster;" ::);
    FENCE();
    ASM("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], 256; }" ::"r"(base() + 2048));
    const unsigned long long from = (unsigned long long)&map;
    ASM("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(base()), "l"(from), "r"(0), "r"(0), "r"(base() + 2048));  // FAULT tensor_map
    ASM("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(base() + 2048));
  }
}

KERNEL(register_limit) {
  if (threadIdx.x >= 128 RIGHT(+128)) {
    ASM("setmaxnreg.inc.sync.aligned.u32 240;" ::);  // FAULT register_limit
  } else {
    ASM("setmaxnreg.dec.sync.aligned.u32 40;" ::);
  }
}

KERNEL(cluster_exit) {
  unsigned rank, remote, v = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  ST(base() + 4 * threadIdx.x, rank);
  ASM("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::);
  if (rank == 1) {
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(remote) : "r"(base() + 4 * threadIdx.x));
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(v) : "r"(remote) : "memory");  // FAULT cluster_exit
  }
  data[threadIdx.x] = v;
  RIGHT(ASM("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::);)
}

// ---------------------------------------------------------------- wgmma: 64 x 8 x 16, K-major
#define GROUP_FENCE() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define GROUP_COMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define GROUP_WAIT() asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
#define MULTIPLY(a, b)                                                                          \
  asm volatile(                                                                                 \
      "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " \
      "{%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"                                              \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
      : "l"(a), "l"(b))

// No swizzle: core matrices of 8 rows x 16 bytes, 128 bytes apart along k, 256 along rows.
__device__ __forceinline__ unsigned long long descriptor(unsigned at) {
  return (unsigned long long)(at >> 4) | (8ull << 16) | (16ull << 32);
}

__device__ __forceinline__ void fill_operands() {
  for (unsigned i = threadIdx.x; i < 1024; i += 128) ST(base() + 4 * i, 0x3f803f80);
  FENCE();
  __syncthreads();
}

#define OPERANDS() \
  fill_operands(); \
  const unsigned long long a = descriptor(base()), b = descriptor(base() + 2048); \
  float d[4];                                                                     \
  for (int i = 0; i < 4; ++i) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(d[i]))

#define RESULTS() data[threadIdx.x] = (unsigned)(d[0] + d[1] + d[2] + d[3])

KERNEL(wgmma_register) {
  OPERANDS();
  GROUP_FENCE();
  MULTIPLY(a, b);
  GROUP_COMMIT();
  RIGHT(GROUP_WAIT();)
  asm volatile("add.f32 %0, %0, 1.0;" : "+f"(d[0]));  // FAULT wgmma_register
  GROUP_WAIT();
  RESULTS();
}

KERNEL(wgmma_fence) {
  OPERANDS();
  asm volatile("add.f32 %0, %0, 1.0;" : "+f"(d[0]));
  RIGHT(GROUP_FENCE();)
  MULTIPLY(a, b);  // FAULT wgmma_fence
  GROUP_COMMIT();
  GROUP_WAIT();
  RESULTS();
}

KERNEL(wgmma_mismatch) {
  OPERANDS();
  GROUP_FENCE();
  MULTIPLY(a, b WRONG(+threadIdx.x / 32 * 8));  // FAULT wgmma_mismatch
  GROUP_COMMIT();
  GROUP_WAIT();
  RESULTS();
}

KERNEL(wgmma_descriptor) {
  OPERANDS();
  GROUP_FENCE();
  MULTIPLY(a WRONG(| 1ull << 49), b);  // FAULT wgmma_descriptor
  GROUP_COMMIT();
  GROUP_WAIT();
  RESULTS();
}
#endif
