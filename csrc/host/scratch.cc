#include "host/scratch.h"

#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace jaxpipe::host {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

void* Allocate(size_t bytes) {
  const bool large = bytes >= kHugePage;
  const size_t align = large ? kHugePage : 64;
  void* block = std::aligned_alloc(align, (bytes + align - 1) / align * align);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (large && block != nullptr) madvise(block, bytes, MADV_HUGEPAGE);
#endif
  return block;
}

class Block {
 public:
  ~Block() { std::free(data_); }
  void* Get(size_t bytes) {
    if (bytes > size_ || data_ == nullptr) {  // no bytes are memory too: a product without k
      std::free(data_);
      size_ = bytes + bytes / 8 + 4096;
      data_ = Allocate(size_);
      if (data_ == nullptr) size_ = 0;
    }
    return data_;
  }
  void Trim() {
    if (size_ <= kScratchKeepBytes) return;
    std::free(data_);
    data_ = nullptr;
    size_ = 0;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

thread_local Block blocks[static_cast<int>(ScratchSlot::kCount)];

}  // namespace

void* ThreadScratch(ScratchSlot slot, size_t bytes) {
  return blocks[static_cast<int>(slot)].Get(bytes);
}

void TrimThreadScratch() {
  for (Block& block : blocks) block.Trim();
}

}  // namespace jaxpipe::host
