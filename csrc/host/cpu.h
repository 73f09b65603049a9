// What this CPU can do: instruction sets and cache sizes.
#ifndef JAXPIPE_HOST_CPU_H_
#define JAXPIPE_HOST_CPU_H_

#include <cstdint>
#include <string>
#include <vector>

namespace jaxpipe::host {

struct CpuInfo {
  std::string name;
  int logical_cores = 1;
  int64_t l1d_bytes = 32 << 10;  // of one core
  int64_t l2_bytes = 512 << 10;  // of one core
  int64_t l3_bytes = 0;          // shared, 0 where unknown
  int l3_sharers = 1;            // logical cores that share one l3
};

const CpuInfo& ThisCpu();

// Instruction sets that this build holds and this CPU runs, best first; "portable" is always last.
const std::vector<std::string>& UsableIsas();

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_CPU_H_
