// Operations on mbarrier objects that other asynchronous instructions need too.
#ifndef JAXPIPE_PTX_MBARRIER_H_
#define JAXPIPE_PTX_MBARRIER_H_

#include "ptx/machine.h"

namespace jaxpipe::ptx {

// The mbarrier at a shared address, checked to be initialised and visible, or null after a fault.
Mbarrier* FindMbarrier(Step& s, uint64_t address, int lane, Cta** owner);

// Adds to the transaction count of the phase. Returns false when it leaves its range.
bool AddBytes(Mbarrier* barrier, int64_t bytes);

// Counts arrivals of the current phase. Returns false when it expects fewer.
bool CountArrivals(Mbarrier* barrier, uint32_t count);

// Completes the phase when no arrival and no byte is missing; wakes the warps that wait.
void CompleteIfDone(Cluster& cluster, Mbarrier* barrier);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_MBARRIER_H_
