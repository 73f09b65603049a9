// The interpreter's tensor map: what TMA instructions find in the 128 bytes of a map.
//
// The hardware's format is opaque; ours is written by jaxpipe/ptx/tensor_map.py and changed by
// tensormap.replace. Source of the semantics: PTX ISA, "Tensors" and "tensormap.replace".
#ifndef JAXPIPE_PTX_TENSOR_MAP_H_
#define JAXPIPE_PTX_TENSOR_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

namespace jaxpipe::ptx {

inline constexpr uint32_t kTensorMapBytes = 128;
inline constexpr uint32_t kTensorMapMagic = 0x70616d54;
inline constexpr int kMaxRank = 5;

// The layout is shared with tensor_map.py.
struct TensorMapBits {
  uint32_t magic;
  uint8_t rank;
  uint8_t type;     // as in tensormap.replace .elemtype
  uint8_t swizzle;  // 0 none, 1 32 bytes, 2 64, 3 128
  uint8_t fill;     // 0 zeros, 1 NaN
  uint64_t address;
  uint64_t strides[kMaxRank - 1];  // bytes, of dims 1 ..
  uint32_t dims[kMaxRank];         // elements, innermost first
  uint16_t box[kMaxRank];
  uint8_t element_strides[kMaxRank];  // 0 counts as 1
};
static_assert(sizeof(TensorMapBits) == 88, "tensor_map.py relies on the layout");

// Bytes of one element by type code, 0 when the code is unknown.
uint32_t TensorElementBytes(uint8_t type);

// Why TMA cannot use the map, or an empty string.
std::string CheckTensorMap(const TensorMapBits& map, int rank);

// One run of contiguous elements of a box: inside the tensor `size` bytes at `address`, which
// belong at `offset` of the (unswizzled) box image.
struct BoxRun {
  uint64_t address;
  uint32_t offset;
  uint32_t size;
};

// The box at `coordinates` (innermost first): bytes of its image, and the runs inside the tensor.
struct Box {
  uint32_t bytes = 0;
  std::vector<BoxRun> runs;
};
Box WalkBox(const TensorMapBits& map, const int32_t (&coordinates)[kMaxRank]);

// Where byte `address` of shared memory goes under a swizzle of 0, 32, 64 or 128 bytes: chunks of
// 16 bytes are permuted inside rows of that width, by address bits 7 to 9.
inline uint32_t Swizzle(uint32_t address, int swizzle_bytes) {
  const uint32_t mask = swizzle_bytes == 128  ? 0x70
                        : swizzle_bytes == 64 ? 0x30
                        : swizzle_bytes == 32 ? 0x10
                                              : 0;
  return address ^ ((address >> 3) & mask);
}

inline int SwizzleBytes(const TensorMapBits& map) {
  return map.swizzle == 0 ? 0 : 16 << map.swizzle;
}

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_TENSOR_MAP_H_
