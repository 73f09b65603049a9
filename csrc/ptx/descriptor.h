// The matrix descriptors of wgmma: which bytes of shared memory hold which elements.
//
// Fields of the 64-bit descriptor: address / 16 in bits 0-13, leading byte offset (LBO) / 16 in
// 16-29, stride byte offset (SBO) / 16 in 32-45, base offset in 49-51, swizzle in 62-63 (1: 128
// bytes, 2: 64, 3: 32). With W the swizzle width, before the swizzle of absolute addresses:
//   K-major:  start + (row / 8) SBO + (row % 8) W + k bytes          (LBO is ignored)
//   MN-major: start + (i / (W/2)) LBO + (i % (W/2)) 2 + (k / 8) SBO + (k % 8) W, 16-bit types only
// Without a swizzle, K-major: core matrices of 8 rows x 16 bytes, LBO apart along K, SBO along
// rows. Source: PTX ISA, "Matrix Descriptor Format"; checked against Triton's kernels (tests/ptx).
#ifndef JAXPIPE_PTX_DESCRIPTOR_H_
#define JAXPIPE_PTX_DESCRIPTOR_H_

#include <cstdint>
#include <string>

#include "ptx/tensor_map.h"

namespace jaxpipe::ptx {

struct MatrixDescriptor {
  uint32_t start, leading, stride;
  int base_offset, swizzle_bytes;

  explicit MatrixDescriptor(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4),
        base_offset(static_cast<int>(bits >> 49 & 7)) {
    constexpr int kWidths[] = {0, 128, 64, 32};
    swizzle_bytes = kWidths[bits >> 62];
  }

  // Why it is not modelled, or an empty string.
  std::string Check(bool mn_major) const {
    if (base_offset != 0) return "base offset " + std::to_string(base_offset) + " is not modelled";
    if (swizzle_bytes == 0 && mn_major) return "MN-major without a swizzle is not modelled";
    return "";
  }

  // The chunk of 16 bytes with row (of M or N) `row` and half `half` of the 32 bytes of K.
  uint32_t KMajor(int row, int half) const {
    if (swizzle_bytes == 0) return start + (row / 8) * stride + half * leading + (row % 8) * 16;
    return Swizzle(start + (row / 8) * stride + (row % 8) * swizzle_bytes + half * 16,
                   swizzle_bytes);
  }
  // The chunk of 8 elements along M or N from `i` (a multiple of 8) at step k.
  uint32_t MnMajor(int i, int k) const {
    const int panel = swizzle_bytes / 2;
    return Swizzle(start + (i / panel) * leading + (i % panel) * 2 + (k / 8) * stride +
                       (k % 8) * swizzle_bytes,
                   swizzle_bytes);
  }
};

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_DESCRIPTOR_H_
