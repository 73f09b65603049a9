// A convolution's image as rows of a matrix (im2col of a few rows at a time).
#ifndef JAXPIPE_HOST_IMAGE_H_
#define JAXPIPE_HOST_IMAGE_H_

#include <cstdint>

#include "host/kernels.h"
#include "host/problem.h"

namespace jaxpipe::host {

// A rectangle of the implicit lhs: result pixels m0..m1, terms k0..k1.
struct ImageRect {
  int64_t m0, m1, k0, k1;
};

// Writes `rect` as rows of words of `kind` (kF32 or kBF16), row_bytes apart, at dst.
void GatherImage(const Gemm& gemm, const Kernels& kernels, WordKind kind, const ImageRect& rect,
                 int64_t row_bytes, char* dst);

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_IMAGE_H_
