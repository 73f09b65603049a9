// Reusable memory of one thread. Large blocks sit on huge pages; what exceeds the bound is given
// back at the end of the call that asked for it.
#ifndef JAXPIPE_HOST_SCRATCH_H_
#define JAXPIPE_HOST_SCRATCH_H_

#include <cstddef>

namespace jaxpipe::host {

inline constexpr size_t kScratchKeepBytes = size_t{64} << 20;  // per thread and slot, after a call

enum class ScratchSlot { kImage, kLhs, kRhs, kItemLhs, kPanel, kSums, kTile, kCount };

// At least `bytes` bytes, 64-byte aligned, contents undefined; valid until the same thread asks
// the same slot again or trims. nullptr when the system has no memory.
void* ThreadScratch(ScratchSlot slot, size_t bytes);

// Frees the calling thread's blocks above kScratchKeepBytes.
void TrimThreadScratch();

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_SCRATCH_H_
