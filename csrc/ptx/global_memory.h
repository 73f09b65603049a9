// Global memory: the buffers of a launch, each at an address of its own, with bounds.
#ifndef JAXPIPE_PTX_GLOBAL_MEMORY_H_
#define JAXPIPE_PTX_GLOBAL_MEMORY_H_

#include <cstdint>
#include <vector>

namespace jaxpipe::ptx {

// Address windows. The low 44 bits of an address are an offset inside its window; buffer i starts
// at (kFirstBuffer + i) << 36, so a buffer may hold 64 GiB and stray addresses hit no neighbour.
inline constexpr int kWindowShift = 44;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << kWindowShift;
inline constexpr uint64_t kParamWindow = uint64_t{2} << kWindowShift;
inline constexpr uint64_t kLocalWindow = uint64_t{3} << kWindowShift;
inline constexpr int kBufferShift = 36;
inline constexpr uint64_t kFirstBuffer = 0x400;
// Shared memory starts here, so that address 0 is never valid. Inside the shared window bits 24
// and up hold 1 + rank of a block of the cluster, or 0 for the own block.
inline constexpr uint32_t kSharedBase = 1024;
inline constexpr int kSharedRankShift = 24;

struct Buffer {
  uint8_t* data = nullptr;
  uint64_t size = 0;
  uint8_t* written = nullptr;  // one byte a byte, or null when all of it counts as written
  bool writable = true;
  uint32_t misalignment = 0;  // bytes by which the base misses 256-byte alignment
};

class GlobalMemory {
 public:
  // Returns the address of the new buffer.
  uint64_t Add(const Buffer& buffer) {
    buffers_.push_back(buffer);
    return ((kFirstBuffer + buffers_.size() - 1) << kBufferShift) + buffer.misalignment;
  }

  // The buffer that holds [address, address + size) and the offset in it, or null.
  const Buffer* Find(uint64_t address, uint64_t size, uint64_t* offset) const {
    const uint64_t index = (address >> kBufferShift) - kFirstBuffer;
    if (index >= buffers_.size()) return nullptr;
    const Buffer& buffer = buffers_[index];
    *offset = (address & ((uint64_t{1} << kBufferShift) - 1)) - buffer.misalignment;
    return *offset <= buffer.size && size <= buffer.size - *offset ? &buffer : nullptr;
  }

  const std::vector<Buffer>& buffers() const { return buffers_; }

 private:
  std::vector<Buffer> buffers_;
};

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_GLOBAL_MEMORY_H_
