// A convolution's image as rows of a matrix (im2col of a few rows at a time).
#ifndef JAXPIPE_HOST_IMAGE_H_
#define JAXPIPE_HOST_IMAGE_H_

#include <cstdint>

#include "host/kernels.h"
#include "host/problem.h"
#include "host/task_pool.h"
#include "status.h"

namespace jaxpipe::host {

// A rectangle of the implicit lhs: result pixels m0..m1, terms k0..k1.
struct ImageRect {
  int64_t m0, m1, k0, k1;
};

// Writes `rect` as rows of the image's elements, row_bytes apart, at dst.
void GatherImage(const Gemm& gemm, const ImageRect& rect, int64_t row_bytes, char* dst);

// Makes the image of 16-bit elements one of float32, in the caller's scratch memory: for kernels
// that widen, once instead of once a filter tap.
Status WidenImage(const Kernels& kernels, int threads, TaskPool* pool, Gemm* gemm);

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_IMAGE_H_
