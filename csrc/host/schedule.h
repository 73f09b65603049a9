// How the host executor computes it. Mirrors jaxpipe.schedule.HostSchedule field by field.
#ifndef JAXPIPE_HOST_SCHEDULE_H_
#define JAXPIPE_HOST_SCHEDULE_H_

#include <cstdint>

namespace jaxpipe::host {

enum class Path : int { kPacked = 0, kStream = 1 };
enum class Order : int { kPanel = 0, kRow = 1 };
enum class PackWhere : int { kItem = 0, kShared = 1 };

struct Schedule {
  Path path = Path::kPacked;
  int64_t rows = 0;     // register tile rows, 0: the kernels' maximum
  int64_t strip = 0;    // columns of one work item, 0: one panel
  int64_t block_m = 0;  // rows of one work item, 0: all
  int64_t block_k = 0;  // k of one pass, 0: all
  Order order = Order::kPanel;
  PackWhere pack = PackWhere::kItem;
  int64_t stages = 2;         // 1: no prefetch; 2: the next tile's operands while this one runs
  int64_t prefetch_rows = 8;  // rhs rows ahead that a streaming kernel asks for
  bool copy_lhs = false;      // copy lhs to dense rows once for the whole call
  int64_t threads = 0;        // 0: all of the pool
};

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_SCHEDULE_H_
