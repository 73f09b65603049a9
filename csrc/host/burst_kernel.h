// The FMA limit: independent chains of multiply-adds, as many as hide the latency.
// Include after one of simd_*.h.
#ifndef JAXPIPE_HOST_BURST_KERNEL_H_
#define JAXPIPE_HOST_BURST_KERNEL_H_

namespace jaxpipe::host {
namespace {

// Returns the flops done. The sums are kept alive by a register barrier, not by a store.
template <int kChains>
double FmaBurst(int64_t iterations) {
  Simd::V acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = Simd::Set1(1e-3f * static_cast<float>(c));
  Simd::V scale = Simd::Set1(0.999f), shift = Simd::Set1(1e-6f);
  Simd::Keep(scale);
  Simd::Keep(shift);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) acc[c] = Simd::Fma(acc[c], scale, shift);
  }
  for (int c = 0; c < kChains; ++c) Simd::Keep(acc[c]);
  float sink[Simd::kLanes];
  Simd::V sum = acc[0];
  for (int c = 1; c < kChains; ++c) sum = Simd::Add(sum, acc[c]);
  Simd::Store(sink, sum);
  volatile float use = sink[0];
  static_cast<void>(use);
  return 2.0 * kChains * Simd::kLanes * static_cast<double>(iterations);
}

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_BURST_KERNEL_H_
