// What the host executor computes, as plain data: out = epilogue(sum_k lhs[m,k] * rhs[k,n]).
#ifndef JAXPIPE_HOST_PROBLEM_H_
#define JAXPIPE_HOST_PROBLEM_H_

#include <cstdint>

#include "host/dtype.h"

namespace jaxpipe::host {

enum class Activation : int { kNone = 0, kRelu, kGeluTanh, kGeluErf, kSilu, kTanh };
inline constexpr int kNumActivations = 6;
enum class BiasKind : int { kNone = 0, kColumn, kRow };

// A matrix in memory: element (r, c) of batch entry (i, j) lies at
// data + i * batch_stride[0] + j * batch_stride[1] + r * row_stride + c * col_stride (elements).
// One of row_stride and col_stride is 1.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  int64_t batch_stride[2] = {0, 0};
};

// y = activation(alpha * acc + bias) + residual, rounded once; preactivation = alpha * acc + bias.
// With residual_first, y = activation(alpha * acc + bias + residual), preactivation with it.
// With a derivative, y = (alpha * acc + bias) * derivative'(residual).
struct Epilogue {
  float alpha = 1.0f;
  BiasKind bias_kind = BiasKind::kNone;
  DType bias_dtype = DType::kF32;
  const void* bias = nullptr;
  Activation activation = Activation::kNone;
  const void* residual = nullptr;  // dense, the result's shape and dtype
  bool residual_first = false;
  Activation derivative = Activation::kNone;
  void* preactivation = nullptr;  // dense, the result's shape and dtype

  bool IsIdentity() const {
    return alpha == 1.0f && bias_kind == BiasKind::kNone && activation == Activation::kNone &&
           residual == nullptr && preactivation == nullptr;
  }
};

// The image of a convolution, NHWC. As the lhs of a product it has one row a result pixel and one
// column a (filter row, filter column, channel); pixels outside the image are zero.
struct Image {
  int64_t height = 0, width = 0, channels = 0;
  int64_t out_height = 0, out_width = 0;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_left = 0;
  int64_t dilation_h = 1, dilation_w = 1;
};

// rhs.dtype may be float32 where lhs.dtype has 16 bits: rhs is rounded to lhs.dtype as it is
// packed.
struct Gemm {
  int64_t batch[2] = {1, 1};
  int64_t m = 0, n = 0, k = 0;
  Operand lhs;                   // [m, k]; only data and dtype count where `image` is set
  const Image* image = nullptr;  // lhs is a convolution's image
  Operand rhs;                   // [k, n]
  // rhs.data is the whole rhs in panels, the same for every batch entry: [panel][step][column]
  // words of the kernels that run this, or, where those widen rhs.dtype, its elements in that
  // order.
  bool is_rhs_packed = false;
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  Epilogue epilogue;
};

// True when rhs is rounded as it is packed.
inline bool IsRounded(const Gemm& gemm) {
  const bool is_narrow = gemm.lhs.dtype == DType::kBF16 || gemm.lhs.dtype == DType::kF16;
  return is_narrow && gemm.rhs.dtype == DType::kF32;
}

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_PROBLEM_H_
