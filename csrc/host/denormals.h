// Per-thread floating-point control: denormals are flushed, as XLA:CPU flushes them (measured:
// XLA's dots give 0 for denormal operands and for products that underflow). Every participant sets
// this, so the bits do not depend on which thread computes an element.
#ifndef JAXPIPE_HOST_DENORMALS_H_
#define JAXPIPE_HOST_DENORMALS_H_

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace jaxpipe::host {

#if defined(__x86_64__) || defined(_M_X64)

// Round to nearest, exceptions masked, flush-to-zero and denormals-are-zero; restored at the end.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(kFlushing); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushing = 0x1f80 | 0x8000 | 0x0040;
  unsigned saved_;
};
inline void CpuRelax() { _mm_pause(); }

#elif defined(__aarch64__)

class FlushDenormals {
 public:
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{1} << 24));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint64_t saved_ = 0;
};
inline void CpuRelax() { asm volatile("yield"); }

#else

class FlushDenormals {
 public:
  FlushDenormals() {}
  ~FlushDenormals() {}
};
inline void CpuRelax() {}

#endif

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_DENORMALS_H_
