// The host executor's matrix product.
#ifndef JAXPIPE_HOST_GEMM_H_
#define JAXPIPE_HOST_GEMM_H_

#include "host/kernels.h"
#include "host/problem.h"
#include "host/schedule.h"
#include "host/task_pool.h"
#include "status.h"

namespace jaxpipe::host {

// Computes `gemm` on the calling thread and helpers of `pool` (nullptr: no helpers). Every bit of
// the result is independent of `schedule` and of the number of threads.
Status RunGemm(const Gemm& gemm, const Schedule& schedule, const Kernels& kernels, TaskPool* pool);

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_GEMM_H_
