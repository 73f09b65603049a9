// From an address in PTX to bytes on this machine, with every check that an access needs.
#ifndef JAXPIPE_PTX_ADDRESS_H_
#define JAXPIPE_PTX_ADDRESS_H_

#include "ptx/machine.h"

namespace jaxpipe::ptx {

// State spaces; the numbers are shared with encode.py.
enum class Space : int32_t { kGeneric, kGlobal, kShared, kLocal, kParam };

struct Location {
  Space space = Space::kGlobal;
  Cta* cta = nullptr;              // of shared memory
  uint64_t offset = 0;             // in the shared memory, the buffer, the lane's local memory
  const Buffer* buffer = nullptr;  // of global memory
  uint8_t* data = nullptr;
  uint32_t inside = 0;  // bytes of the access that lie inside the buffer
};

// Where `size` bytes at `address` lie. On a fault it is reported and false returned.
// A load of an aligned word whose first bytes are a buffer's last may overhang its end, as hardware
// allows: `overhangs` says that the caller copes with `inside` < size.
bool Resolve(Step& s, Space space, uint64_t address, uint32_t size, int lane, Location* out,
             bool overhangs = false);
// The same for shared memory alone, with an alignment of its own.
bool ResolveShared(Step& s, uint64_t address, uint32_t size, uint32_t alignment, int lane,
                   Location* out);
// Bytes of global memory that are about to be read, or null. Unwritten bytes are a hazard.
const uint8_t* GlobalForRead(Step& s, uint64_t address, uint32_t size, uint32_t alignment,
                             int lane);
// Bytes of global memory that are about to be written, or null; marks them written.
uint8_t* GlobalForWrite(Step& s, uint64_t address, uint32_t size, uint32_t alignment, int lane);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_ADDRESS_H_
