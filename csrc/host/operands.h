// Copies of operands into what kernels read: rows of words, columns of words, panels.
#ifndef JAXPIPE_HOST_OPERANDS_H_
#define JAXPIPE_HOST_OPERANDS_H_

#include <cstdint>

#include "host/plan.h"

namespace jaxpipe::host {

// Rows m0..m1 and terms k0..k1 of lhs.
struct LhsRect {
  int64_t batch, m0, m1, k0, k1;
};

// Address of element (row, col) of batch entry `batch` (of batch[0] * batch[1]).
const char* ElementAt(const Gemm& gemm, const Operand& operand, int64_t batch, int64_t row,
                      int64_t col);

// Writes `rect` as rows of words, plan.lhs_row_bytes apart.
void CopyLhsRows(const Plan& plan, const LhsRect& rect, char* dst);

// Writes `rect` as dense words, [step][row], padded with zeros (what stream kernels read).
void CopyLhsColumns(const Plan& plan, const LhsRect& rect, char* dst);

// Writes rhs columns n.. (one panel) and terms k0..k1; columns beyond the last are zero.
void PackPanel(const Plan& plan, int64_t batch, int64_t n, int64_t k0, int64_t k1, char* dst);

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_OPERANDS_H_
