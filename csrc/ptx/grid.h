// Runs all blocks of a launch on all cores.
#ifndef JAXPIPE_PTX_GRID_H_
#define JAXPIPE_PTX_GRID_H_

#include <vector>

#include "ptx/machine.h"
#include "status.h"

namespace jaxpipe::ptx {

struct Outcome {
  std::vector<Hazard> hazards;
  std::vector<Counters> counters;  // one an instruction
};

// Executes `launch` of `program` on `threads` worker threads. Faults of the kernel are hazards in
// the outcome; the status tells of arguments that describe no launch.
Status RunGrid(const Program& program, const Launch& launch, const GlobalMemory& global,
               int threads, Outcome* outcome);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_GRID_H_
