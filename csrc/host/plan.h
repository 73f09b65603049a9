// From a problem and a schedule to loop bounds: everything that is fixed before the first item.
#ifndef JAXPIPE_HOST_PLAN_H_
#define JAXPIPE_HOST_PLAN_H_

#include <cstdint>

#include "host/kernels.h"
#include "host/problem.h"
#include "host/schedule.h"

namespace jaxpipe::host {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How lhs reaches the kernels.
enum class LhsMode {
  kDirect,      // rows are read where they lie
  kSharedCopy,  // rows of words, copied once for the whole call (phase 0)
  kItemCopy,    // rows of words of one k block, copied by each item
};

struct Plan {
  Gemm gemm;  // broadcast batches folded into m where possible
  Schedule schedule;
  const Kernels* kernels = nullptr;
  WordKind kind = WordKind::kF32;
  int64_t per_word = 1;  // k of one word
  bool stream = false;
  LhsMode lhs_mode = LhsMode::kDirect;
  bool panels_given = false;  // rhs comes as words in panels
  bool shared_rhs = false;    // panels packed once for the whole call (phase 0), or by the caller
  bool direct_out = false;    // sums are the result: kernels store into it
  int64_t batches = 1;
  int64_t tile_rows = 1;
  int64_t block_m = 0, block_k = 0, strip = 0;
  int64_t blocks_m = 0, blocks_k = 0, strips = 0;
  int64_t panels = 0;         // panels of rhs, all strips
  int64_t words = 0;          // words of one lhs row that the kernels read
  int64_t lhs_row_bytes = 0;  // of the rows that the kernels read
  int threads = 1;

  int64_t items() const { return batches * blocks_m * strips; }
};

// `threads` is what the pool has. The problem must be valid and not empty.
Plan MakePlan(const Gemm& gemm, const Schedule& schedule, const Kernels& kernels, int threads);

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_PLAN_H_
