#include "ptx/address.h"

#include <algorithm>
#include <sstream>

namespace jaxpipe::ptx {
namespace {

constexpr uint32_t kWordBytes = 4;

std::string Hex(uint64_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return out.str();
}

std::string Sized(const char* what, uint64_t address, uint32_t size) {
  return std::to_string(size) + " bytes at " + what + " " + Hex(address);
}

bool Aligned(Step& s, uint64_t address, uint32_t alignment, int lane) {
  if ((address & (alignment - 1)) == 0) return true;
  s.Fault(HazardKind::kMisaligned, lane, address,
          "address " + Hex(address) + " is no multiple of " + std::to_string(alignment));
  return false;
}

const Buffer* FindBuffer(Step& s, uint64_t address, uint32_t size, int lane, uint64_t* offset) {
  const Buffer* buffer = s.cluster.global.Find(address, size, offset);
  if (buffer != nullptr) return buffer;
  std::string detail = Sized("address", address, size);
  const uint64_t index = (address >> kBufferShift) - kFirstBuffer;
  const auto& buffers = s.cluster.global.buffers();
  if (index < buffers.size()) {
    const int64_t at = static_cast<int64_t>(address & ((uint64_t{1} << kBufferShift) - 1)) -
                       buffers[index].misalignment;
    detail = std::to_string(size) + " bytes at offset " + std::to_string(at) + " of buffer " +
             std::to_string(index) + ", which has " + std::to_string(buffers[index].size) +
             " bytes";
  }
  s.Fault(HazardKind::kGlobalBounds, lane, address, detail);
  return nullptr;
}

bool ResolveLocal(Step& s, uint64_t offset, uint32_t size, int lane, Location* out) {
  const uint32_t bytes = s.cluster.program.local_bytes;
  if (offset > bytes || size > bytes - offset) {
    s.Fault(HazardKind::kLocalBounds, lane, offset, Sized("local address", offset, size));
    return false;
  }
  *out = Location{Space::kLocal,
                  nullptr,
                  offset,
                  nullptr,
                  &s.warp.local[static_cast<size_t>(lane) * bytes + offset],
                  size};
  return true;
}

bool ResolveParam(Step& s, uint64_t offset, uint32_t size, int lane, Location* out) {
  const auto& params = s.cluster.launch.params;
  if (offset > params.size() || size > params.size() - offset) {
    s.Fault(HazardKind::kLocalBounds, lane, offset, Sized("parameter offset", offset, size));
    return false;
  }
  // Parameters are only read; the pointer is shared with spaces that are written.
  *out = Location{Space::kParam, nullptr, offset, nullptr,
                  const_cast<uint8_t*>(params.data()) + offset};
  return true;
}

}  // namespace

bool ResolveShared(Step& s, uint64_t address, uint32_t size, uint32_t alignment, int lane,
                   Location* out) {
  if (address >> kWindowShift == kSharedWindow >> kWindowShift) address -= kSharedWindow;
  Cta* cta = &s.cta;
  const uint64_t rank = address >> kSharedRankShift;
  const uint64_t offset = address & ((uint64_t{1} << kSharedRankShift) - 1);
  if (rank != 0)
    cta = rank <= UINT32_MAX ? s.cluster.FindCta(static_cast<uint32_t>(rank - 1)) : nullptr;
  if (cta == nullptr || offset < kSharedBase || offset + size > cta->shared.size()) {
    const uint64_t bytes = s.cta.shared.size() - kSharedBase;
    s.Fault(HazardKind::kSharedBounds, lane, address,
            Sized("shared address", address, size) + "; the block has " + std::to_string(bytes) +
                " bytes from " + std::to_string(kSharedBase));
    return false;
  }
  if (!Aligned(s, offset, alignment, lane)) return false;
  if (cta != &s.cta && cta->ended() && s.checks())
    s.Report(HazardKind::kClusterExit, lane, address);
  *out = Location{Space::kShared, cta, offset, nullptr, &cta->shared[offset]};
  return true;
}

bool Resolve(Step& s, Space space, uint64_t address, uint32_t size, int lane, Location* out,
             bool overhangs) {
  if (space == Space::kGeneric) {
    switch (address >> kWindowShift) {
      case kSharedWindow >> kWindowShift:
        space = Space::kShared;
        break;
      case kParamWindow >> kWindowShift:
        space = Space::kParam, address -= kParamWindow;
        break;
      case kLocalWindow >> kWindowShift:
        space = Space::kLocal, address -= kLocalWindow;
        break;
      default:
        space = Space::kGlobal;
    }
  }
  if (space == Space::kShared) return ResolveShared(s, address, size, size, lane, out);
  if (!Aligned(s, address, size, lane)) return false;
  if (space == Space::kLocal) return ResolveLocal(s, address, size, lane, out);
  if (space == Space::kParam) return ResolveParam(s, address, size, lane, out);
  uint64_t offset = 0;
  uint32_t inside = size;
  if (overhangs && size == kWordBytes)
    while (inside > 1 && s.cluster.global.Find(address, inside, &offset) == nullptr) --inside;
  const Buffer* buffer = FindBuffer(s, address, inside, lane, &offset);
  if (buffer == nullptr) return false;
  *out = Location{Space::kGlobal, nullptr, offset, buffer, buffer->data + offset, inside};
  return true;
}

const uint8_t* GlobalForRead(Step& s, uint64_t address, uint32_t size, uint32_t alignment,
                             int lane) {
  if (!Aligned(s, address, alignment, lane)) return nullptr;
  uint64_t offset = 0;
  const Buffer* buffer = FindBuffer(s, address, size, lane, &offset);
  if (buffer == nullptr) return nullptr;
  if (buffer->written != nullptr && s.checks()) {
    const uint8_t* written = buffer->written + offset;
    if (!std::all_of(written, written + size, [](uint8_t w) { return w != 0; }))
      s.Report(HazardKind::kUnwrittenGlobal, lane, address,
               "offset " + std::to_string(offset) + " of a buffer of " +
                   std::to_string(buffer->size) + " bytes");
  }
  return buffer->data + offset;
}

uint8_t* GlobalForWrite(Step& s, uint64_t address, uint32_t size, uint32_t alignment, int lane) {
  if (!Aligned(s, address, alignment, lane)) return nullptr;
  uint64_t offset = 0;
  const Buffer* buffer = FindBuffer(s, address, size, lane, &offset);
  if (buffer == nullptr) return nullptr;
  if (!buffer->writable) {
    s.Fault(HazardKind::kGlobalReadOnly, lane, address, "offset " + std::to_string(offset));
    return nullptr;
  }
  if (buffer->written != nullptr) std::fill_n(buffer->written + offset, size, uint8_t{1});
  return buffer->data + offset;
}

}  // namespace jaxpipe::ptx
