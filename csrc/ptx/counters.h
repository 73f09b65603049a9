// What is counted for each instruction, and how accesses map to banks and sectors.
#ifndef JAXPIPE_PTX_COUNTERS_H_
#define JAXPIPE_PTX_COUNTERS_H_

#include <cstdint>
#include <vector>

#include "ptx/program.h"

namespace jaxpipe::ptx {

// Per instruction, over all blocks. A request is one warp's access; a wavefront is one pass over
// the 32 banks of shared memory; a sector is 32 bytes of global memory.
struct Counters {
  uint64_t executions = 0;  // by warps
  uint64_t lanes = 0;       // by threads
  uint64_t shared_requests = 0;
  uint64_t shared_wavefronts = 0;
  uint64_t ideal_wavefronts = 0;  // without bank conflicts
  uint64_t shared_bytes = 0;
  uint64_t global_requests = 0;
  uint64_t global_sectors = 0;
  uint64_t global_bytes = 0;

  void Add(const Counters& other);
};
inline constexpr int kCounterFields = 9;

// Counts one warp's access of `size` bytes a lane to shared memory at the given byte addresses.
// Hardware serves 32 lanes of up to 4 bytes, 16 of 8 or 8 of 16 in one wavefront; lanes that read
// the same word share it.
void CountShared(Counters& counters, const uint32_t* addresses, uint32_t mask, int size);

// Counts one warp's access of `size` bytes a lane to global memory.
void CountGlobal(Counters& counters, const uint64_t* addresses, uint32_t mask, int size);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_COUNTERS_H_
