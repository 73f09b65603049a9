#include "host/operands.h"

#include <algorithm>
#include <cstring>

#include "host/image.h"

namespace jaxpipe::host {
namespace {

// rows x cols of `operand` from (row, col) on, in storage order: contiguous along the columns.
CopyArgs Source(const Plan& plan, const Operand& operand, int64_t batch, int64_t row, int64_t col,
                int64_t rows, int64_t cols) {
  const bool transposed = operand.col_stride != 1;
  CopyArgs args;
  args.src = ElementAt(plan.gemm, operand, batch, row, col);
  args.src_row = transposed ? operand.col_stride : operand.row_stride;
  args.rows = transposed ? cols : rows;
  args.cols = transposed ? rows : cols;
  return args;
}

CopyFn Pick(const Plan& plan, const Operand& operand, const CopyFn (&straight)[kNumWordKinds][4],
            const CopyFn (&transposed)[kNumWordKinds][4]) {
  const int kind = static_cast<int>(plan.kind), dtype = static_cast<int>(operand.dtype);
  return (operand.col_stride == 1 ? straight : transposed)[kind][dtype];
}

// Rows k0..k1 of the panel at column n, which lie one after another in rhs's own dtype.
void WidenPanel(const Plan& plan, int64_t n, int64_t k0, int64_t k1, char* dst) {
  const DType dtype = plan.gemm.rhs.dtype;
  CopyArgs args;
  args.src = static_cast<const char*>(plan.gemm.rhs.data) +
             (n * plan.gemm.k + k0 * plan.kernels->panel_cols) * SizeOf(dtype);
  args.src_row = args.dst_row = args.cols = plan.kernels->panel_cols;
  args.rows = k1 - k0;
  args.dst = dst;
  plan.kernels->rhs_rows[static_cast<int>(plan.kind)][static_cast<int>(dtype)](args);
}

}  // namespace

const char* ElementAt(const Gemm& gemm, const Operand& operand, int64_t batch, int64_t row,
                      int64_t col) {
  const int64_t i = batch / gemm.batch[1], j = batch % gemm.batch[1];
  const int64_t offset = i * operand.batch_stride[0] + j * operand.batch_stride[1] +
                         row * operand.row_stride + col * operand.col_stride;
  return static_cast<const char*>(operand.data) + offset * SizeOf(operand.dtype);
}

void CopyLhsRows(const Plan& plan, const LhsRect& rect, char* dst) {
  const Kernels& kernels = *plan.kernels;
  if (plan.gemm.image != nullptr) {
    const ImageRect image_rect = {rect.m0, rect.m1, rect.k0, rect.k1};
    return GatherImage(plan.gemm, image_rect, plan.lhs_row_bytes, dst);
  }
  const Operand& lhs = plan.gemm.lhs;
  CopyArgs args =
      Source(plan, lhs, rect.batch, rect.m0, rect.k0, rect.m1 - rect.m0, rect.k1 - rect.k0);
  args.dst = dst;
  args.dst_row = plan.lhs_row_bytes / 4;
  Pick(plan, lhs, kernels.lhs_rows, kernels.lhs_transposed)(args);
}

void CopyLhsColumns(const Plan& plan, const LhsRect& rect, char* dst) {
  const Operand& lhs = plan.gemm.lhs;
  const int64_t rows = rect.m1 - rect.m0;
  CopyArgs args = Source(plan, lhs, rect.batch, rect.m0, rect.k0, rows, rect.k1 - rect.k0);
  args.dst = dst;
  args.dst_row = rows;
  // A panel of rhs is [step][column]; here rows take the part of its columns.
  Pick(plan, lhs, plan.kernels->rhs_transposed, plan.kernels->rhs_rows)(args);
}

void PackPanel(const Plan& plan, int64_t batch, int64_t n, int64_t k0, int64_t k1, char* dst) {
  const Operand& rhs = plan.gemm.rhs;
  const Kernels& kernels = *plan.kernels;
  const int64_t panel = kernels.panel_cols, cols = std::min(panel, plan.gemm.n - n);
  if (plan.gemm.is_rhs_packed) return WidenPanel(plan, n, k0, k1, dst);
  CopyArgs args = Source(plan, rhs, batch, k0, n, k1 - k0, cols);
  args.dst = dst;
  args.dst_row = panel;
  args.prefetch_rows = plan.schedule.prefetch_rows;
  if (cols < panel) std::memset(dst, 0, CeilDiv(k1 - k0, plan.per_word) * panel * 4);
  if (IsRounded(plan.gemm)) {
    return kernels.rhs_rounded[static_cast<int>(plan.kind)][static_cast<int>(plan.gemm.lhs.dtype)](
        args);
  }
  Pick(plan, rhs, kernels.rhs_rows, kernels.rhs_transposed)(args);
}

}  // namespace jaxpipe::host
