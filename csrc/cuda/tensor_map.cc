#include "cuda/tensor_map.h"

#include <sstream>

namespace jaxpipe::cuda {
namespace {

// CUtensorMapDataType, in the order of TensorDtype.
constexpr int kDataType[kTensorDtypeCount] = {7, 9, 6, 0, 4, 11};
constexpr int kNoInterleave = 0;
constexpr int kZeroFill = 0;  // elements outside read as zero

// CUtensorMapSwizzle and CUtensorMapL2promotion; -1 for a size that has no code.
int SwizzleCode(int bytes) {
  return bytes == 0 ? 0 : bytes == 32 ? 1 : bytes == 64 ? 2 : bytes == 128 ? 3 : -1;
}
int L2PromotionCode(int bytes) {
  return bytes == 0 ? 0 : bytes == 64 ? 1 : bytes == 128 ? 2 : bytes == 256 ? 3 : -1;
}

template <typename T>
std::string List(const T* values, int count) {
  std::ostringstream text;
  for (int i = 0; i < count; ++i) text << (i ? "x" : "") << values[i];
  return text.str();
}

std::string Describe(const TensorMapRecipe& r, uint64_t address) {
  std::ostringstream text;
  text << "dims " << List(r.dims, r.rank) << ", strides " << List(r.strides_bytes, r.rank - 1)
       << " bytes, box " << List(r.box, r.rank) << ", element strides "
       << List(r.element_strides, r.rank) << ", " << ElementBytes(r.dtype)
       << "-byte elements, swizzle " << r.swizzle_bytes << ", L2 promotion " << r.l2_promotion_bytes
       << ", address " << address
       << " (TMA needs the address and strides to be multiples of 16 bytes, boxes of at most 256 "
          "elements, and an inner box of at most the swizzle's bytes)";
  return text.str();
}

}  // namespace

Status EncodeTensorMap(const Driver& driver, const TensorMapRecipe& recipe, uint64_t address,
                       TensorMap* map) {
  const int swizzle = SwizzleCode(recipe.swizzle_bytes);
  const int promotion = L2PromotionCode(recipe.l2_promotion_bytes);
  if (swizzle < 0 || promotion < 0) {
    return InvalidArgument(
        "tensor map: swizzle is 0, 32, 64 or 128 bytes, L2 promotion 0, 64, 128 "
        "or 256; got " +
        Describe(recipe, address));
  }
  const CUresult result = driver.TensorMapEncodeTiled(
      map, kDataType[static_cast<int>(recipe.dtype)], static_cast<unsigned>(recipe.rank),
      reinterpret_cast<void*>(address), recipe.dims, recipe.strides_bytes, recipe.box,
      recipe.element_strides, kNoInterleave, swizzle, promotion, kZeroFill);
  if (result == kSuccess) return Status();
  return Check(driver, result, "cuTensorMapEncodeTiled", Describe(recipe, address));
}

}  // namespace jaxpipe::cuda
