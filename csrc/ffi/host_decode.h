// The int64 array that jaxpipe/runtime/host.py writes, as a problem and a schedule.
// One array, because every named attribute costs the handler a look-up on each call.
#ifndef JAXPIPE_FFI_HOST_DECODE_H_
#define JAXPIPE_FFI_HOST_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "host/kernels.h"
#include "host/problem.h"
#include "host/schedule.h"
#include "status.h"

namespace jaxpipe {

inline constexpr int64_t kHostConfigVersion = 3;

struct HostBuffer {
  void* data = nullptr;
  host::DType dtype = host::DType::kF32;
  int64_t elements = 0;
  const int64_t* dims = nullptr;
  size_t rank = 0;
};

struct HostCall {
  std::vector<HostBuffer> operands, results;
  host::Gemm gemm;
  host::Image image;  // of a convolution: gemm.image points here
  host::Schedule schedule;
  const host::Kernels* kernels = nullptr;
};

// Fills gemm, schedule and kernels from `config` and the buffers; checks that every element that
// the problem names lies inside its buffer.
Status DecodeHostCall(const int64_t* config, size_t size, HostCall* call);

}  // namespace jaxpipe

#endif  // JAXPIPE_FFI_HOST_DECODE_H_
