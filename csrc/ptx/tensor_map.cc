#include "ptx/tensor_map.h"

#include <algorithm>
#include <cstring>

#include "ptx/address.h"

namespace jaxpipe::ptx {
namespace {

// u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz, f64, bf16, tf32, tf32.ftz.
constexpr uint8_t kElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4};
constexpr uint32_t kMaxBox = 256;

uint32_t StrideOf(const TensorMapBits& map, int i) {
  return std::max<uint32_t>(map.element_strides[i], 1);
}

// Elements that the box takes along dimension i.
uint32_t Taken(const TensorMapBits& map, int i) {
  if (i == 0) return map.box[0];  // the innermost dimension has no stride
  const uint32_t stride = StrideOf(map, i);
  return (map.box[i] + stride - 1) / stride;
}

// tensormap.replace: the field is type, imm its ordinal (dimension), width the bytes of the value.
enum Field : int32_t {
  kAddress,
  kRank,
  kBoxDim,
  kGlobalDim,
  kGlobalStride,
  kElementStride,
  kElementType,
  kInterleave,
  kSwizzleMode,
  kFillMode
};

void Replace(TensorMapBits* map, int field, int ordinal, uint64_t value) {
  switch (field) {
    case kAddress:
      map->address = value;
      break;
    case kRank:
      map->rank = static_cast<uint8_t>(value + 1);
      break;  // the field is rank - 1
    case kBoxDim:
      map->box[ordinal] = static_cast<uint16_t>(value);
      break;
    case kGlobalDim:
      map->dims[ordinal] = static_cast<uint32_t>(value);
      break;
    case kGlobalStride:
      map->strides[std::min(ordinal, kMaxRank - 2)] = value;
      break;
    case kElementStride:
      map->element_strides[ordinal] = static_cast<uint8_t>(value);
      break;
    case kElementType:
      map->type = static_cast<uint8_t>(value);
      break;
    case kSwizzleMode:
      map->swizzle = static_cast<uint8_t>(value);
      break;
    case kFillMode:
      map->fill = static_cast<uint8_t>(value);
      break;
    default:
      break;  // interleave: only 0 exists here, encode.py sees to it
  }
  map->magic = kTensorMapMagic;
}

// src 0 is the address (type bit 8: shared, bit 9: 64-bit), src 1 the value; target the ordinal.
Flow ReplaceField(Step& s) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    const bool is_shared = (s.ins.type >> 8 & 1) != 0;
    const uint64_t address =
        s.SrcAsU64(0, lane, (s.ins.type >> 9 & 1) != 0) + static_cast<uint64_t>(s.ins.imm);
    uint8_t* bytes = nullptr;
    if (is_shared) {
      Location at;
      good = ResolveShared(s, address, kTensorMapBytes, kTensorMapBytes, lane, &at);
      if (!good) return;
      if (s.checks())
        at.cta->shadow.Write(s.Who(lane), static_cast<uint32_t>(at.offset), kTensorMapBytes,
                             nullptr);
      bytes = at.data;
    } else {
      bytes = GlobalForWrite(s, address, kTensorMapBytes, 64, lane);
      good = bytes != nullptr;
      if (!good) return;
    }
    TensorMapBits map;
    std::memcpy(&map, bytes, sizeof map);
    Replace(&map, s.ins.type & 0xff, s.ins.target, s.SrcAsU64(1, lane, s.ins.width == 8));
    std::memcpy(bytes, &map, sizeof map);
  });
  return good ? Flow::kNext : Flow::kStop;
}

// tensormap.cp_fenceproxy: 128 bytes from shared (src 1) to global memory (src 0).
Flow CopyFenced(Step& s) {
  const int lane = FirstLane(s.mask);
  Location from;
  if (!ResolveShared(s, s.SrcAsU64(1, lane, (s.ins.type & 1) != 0), kTensorMapBytes,
                     kTensorMapBytes, lane, &from))
    return Flow::kStop;
  uint8_t* to =
      GlobalForWrite(s, s.SrcAsU64(0, lane, true), kTensorMapBytes, kTensorMapBytes, lane);
  if (to == nullptr) return Flow::kStop;
  if (s.checks())
    from.cta->shadow.Read(s.Who(lane), static_cast<uint32_t>(from.offset), kTensorMapBytes);
  std::memcpy(to, from.data, kTensorMapBytes);
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {{Op::kTensormapReplace, ReplaceField},
                                {Op::kTensormapCopy, CopyFenced}};

}  // namespace

uint32_t TensorElementBytes(uint8_t type) {
  return type < sizeof kElementBytes ? kElementBytes[type] : 0;
}

std::string CheckTensorMap(const TensorMapBits& map, int rank) {
  if (map.magic != kTensorMapMagic) return "the 128 bytes are no tensor map";
  if (map.rank != rank)
    return "the map has rank " + std::to_string(map.rank) + ", the instruction " +
           std::to_string(rank);
  const uint32_t element = TensorElementBytes(map.type);
  if (element == 0) return "element type " + std::to_string(map.type) + " does not exist";
  if (map.address % 16 != 0) return "the tensor is not aligned to 16 bytes";
  for (int i = 0; i < rank; ++i) {
    if (map.dims[i] == 0) return "dimension " + std::to_string(i) + " is 0";
    if (map.box[i] == 0 || map.box[i] > kMaxBox)
      return "box " + std::to_string(i) + " is " + std::to_string(map.box[i]) + ", not 1 to 256";
    if (i > 0 && map.strides[i - 1] % 16 != 0)
      return "stride " + std::to_string(i) + " is no multiple of 16 bytes";
  }
  const uint32_t inner = map.box[0] * element;
  if (inner % 16 != 0)
    return "the inner box has " + std::to_string(inner) + " bytes, no multiple of 16";
  if (map.swizzle > 3) return "swizzle mode " + std::to_string(map.swizzle) + " does not exist";
  if (map.swizzle != 0 && inner > static_cast<uint32_t>(SwizzleBytes(map)))
    return "the inner box of " + std::to_string(inner) + " bytes exceeds the swizzle";
  if (map.fill != 0) return "filling with NaN is not modelled";
  return "";
}

Box WalkBox(const TensorMapBits& map, const int32_t (&coordinates)[kMaxRank]) {
  Box box;
  const uint32_t element = TensorElementBytes(map.type);
  const uint32_t row_bytes = map.box[0] * element;
  uint32_t rows = 1;
  for (int i = 1; i < map.rank; ++i) rows *= Taken(map, i);
  box.bytes = rows * row_bytes;
  const int64_t first = std::max<int64_t>(coordinates[0], 0);
  const int64_t last = std::min<int64_t>(int64_t{coordinates[0]} + map.box[0], map.dims[0]);
  if (first >= last) return box;
  for (uint32_t row = 0; row < rows; ++row) {
    uint32_t rest = row;
    uint64_t address = map.address + static_cast<uint64_t>(first) * element;
    bool inside = true;
    for (int i = 1; i < map.rank; ++i) {
      const uint32_t step = rest % Taken(map, i);
      rest /= Taken(map, i);
      const int64_t at = int64_t{coordinates[i]} + int64_t{step} * StrideOf(map, i);
      inside = inside && at >= 0 && at < static_cast<int64_t>(map.dims[i]);
      address += static_cast<uint64_t>(at) * map.strides[i - 1];
    }
    if (!inside) continue;
    const uint32_t skipped = static_cast<uint32_t>(first - coordinates[0]) * element;
    box.runs.push_back(
        {address, row * row_bytes + skipped, static_cast<uint32_t>(last - first) * element});
  }
  return box;
}

void AddTensorMapHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
