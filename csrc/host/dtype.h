// Element types of the host executor. The numbers are part of the FFI attribute format.
#ifndef JAXPIPE_HOST_DTYPE_H_
#define JAXPIPE_HOST_DTYPE_H_

#include <cstdint>

namespace jaxpipe::host {

enum class DType : int { kF32 = 0, kBF16 = 1, kF16 = 2, kS8 = 3, kS32 = 4 };
inline constexpr int kNumFloatTypes = 3;

inline constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kS32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kS8:
      return 1;
  }
  return 0;
}

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_DTYPE_H_
