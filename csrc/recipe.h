// Recipe: how a kernel is launched, as the flat words that travel inside a custom call.
//
// jaxpipe/runtime/recipe.py writes it, the CUDA launcher and the PTX interpreter read it. Decoding
// fills one fixed-size struct: no allocation, so a handler may decode on every call. The words are
// (all int64; `names` are the lines of a string: kernel, target, then the entry of every launch):
//
//   version
//   operand count, then (role, bytes) of each     in the order of the custom call's operands
//   result count, then (role, bytes) of each      in the order of its results
//   launch count, then each launch:
//     grid x y z, block x y z, cluster x y z, shared bytes, parameter count, then each parameter:
//       0 Pointer:   role, offset bytes
//       1 Scalar:    kind, bits (float32: its bit pattern)
//       2 TensorMap: role, offset bytes, dtype, rank, dims[rank], strides_bytes[rank-1],
//                    box[rank], element_strides[rank], swizzle bytes, L2 promotion bytes
//
// Version 2 is for kernels of which the call brings sizes (rows, batch entries): how many there are
// is read off the buffers. It has, in addition: after the version the count of sizes, then (role of
// the buffer to read it off, largest value) of each; after the bytes of each buffer, which are
// those of ones, the sizes that they are times (a mask); after the shared bytes of each launch, for
// every size (scale, tile), grid x being times ceil(size * scale / tile), tile 0 for not; and
//       3 Size:      number of the size, scale
// in the place of an int32 scalar; after a tensor map's strides the masks of its dims, of its
// strides. A size is the bytes of its buffer over those of ones and of the sizes before it.
#ifndef JAXPIPE_RECIPE_H_
#define JAXPIPE_RECIPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "status.h"

namespace jaxpipe {

inline constexpr int64_t kRecipeVersion = 1, kSizesVersion = 2;
inline constexpr int kMaxBuffers = 8;
inline constexpr int kMaxLaunches = 4;
inline constexpr int kMaxParams = 24;
inline constexpr int kMaxTensorMaps = 6;  // of one launch
inline constexpr int kMaxRank = 5;
inline constexpr int kMaxSizes = 2;

// The order is that of BUFFER_ROLES in jaxpipe/kernel.py.
enum class Role : int8_t { kLhs, kRhs, kBias, kResidual, kOut, kPreactivation, kWorkspace };
inline constexpr int kRoleCount = 7;
const char* RoleName(Role role);

enum class ScalarKind : int8_t { kInt32, kInt64, kFloat32 };

// The order is that of TENSOR_DTYPES in jaxpipe/runtime/recipe.py.
enum class TensorDtype : int8_t { kFloat32, kBFloat16, kFloat16, kUInt8, kInt32, kTFloat32 };
inline constexpr int kTensorDtypeCount = 6;
int ElementBytes(TensorDtype dtype);

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

// One operand or result of the call; `bytes` is what the kernel was lowered for, of ones in the
// place of `sizes`.
struct BufferRecipe {
  Role role;
  size_t bytes;
  uint32_t sizes;
};

// A size that the call brings: where it is read off, its largest value.
struct SizeRecipe {
  Role role;
  uint64_t limit;
};

// grid x is times ceil(size * scale / tile); 0: it is not.
struct GridFactor {
  uint64_t scale, tile;
};

struct TensorMapRecipe {
  TensorDtype dtype;
  int rank;
  uint64_t dims[kMaxRank];               // elements, innermost first
  uint64_t strides_bytes[kMaxRank - 1];  // of dims 1 .. rank-1
  uint32_t box[kMaxRank];
  uint32_t element_strides[kMaxRank];
  int swizzle_bytes;       // 0, 32, 64, 128
  int l2_promotion_bytes;  // 0, 64, 128, 256
  uint32_t dim_sizes[kMaxRank], stride_sizes[kMaxRank - 1];
};

struct ParamRecipe {
  enum class Kind : int8_t { kPointer, kScalar, kTensorMap, kSize } kind;
  Role role;               // pointer, tensor map
  uint64_t offset_bytes;   // pointer, tensor map
  ScalarKind scalar_kind;  // scalar
  uint64_t scalar_bits;    // scalar, 32-bit kinds use the low half; size: its scale
  int tensor_map;          // tensor map: index in LaunchRecipe::tensor_maps
  int size;                // size: index in Recipe::sizes
};

struct LaunchRecipe {
  std::string_view entry;
  Dim3 grid, block, cluster;
  uint32_t shared_bytes;
  GridFactor factors[kMaxSizes];
  int param_count;
  ParamRecipe params[kMaxParams];
  int tensor_map_count;
  TensorMapRecipe tensor_maps[kMaxTensorMaps];
};

struct Recipe {
  std::string_view kernel, target;
  int operand_count, result_count, launch_count, size_count;
  bool is_empty;  // settled on a size of 0: there is nothing to launch
  SizeRecipe sizes[kMaxSizes];
  BufferRecipe operands[kMaxBuffers], results[kMaxBuffers];
  LaunchRecipe launches[kMaxLaunches];
};

// Bytes of one parameter as the kernel declares it: 4, 8, or 128 for a tensor map.
size_t ParamBytes(const ParamRecipe& param);

// Reads `count` words and the `names` that they refer to (which must outlive `*recipe`). Checks
// everything that can be checked without buffers; the Status says which word and why.
Status DecodeRecipe(const int64_t* words, size_t count, std::string_view names, Recipe* recipe);

// Bytes of as many buffers as a recipe can name; zeros after a call's last.
using BufferBytes = std::array<size_t, kMaxBuffers>;

// Of a call's `count` buffers; whoever binds them tells of counts that a recipe does not name.
template <class Buffer>
BufferBytes BytesOf(const Buffer* buffers, size_t count) {
  BufferBytes bytes = {};
  for (size_t i = 0; i < count && i < bytes.size(); ++i) bytes[i] = buffers[i].bytes;
  return bytes;
}

// Puts the sizes of a call, whose operands and results have these bytes, into a decoded recipe:
// what is left has none. Each size must be whole and every buffer's bytes must follow from the
// sizes.
Status SettleSizes(const BufferBytes& operands, const BufferBytes& results, Recipe* recipe);

// One line a launch, for tests, `explain` and bug reports.
std::string DescribeRecipe(const Recipe& recipe);

}  // namespace jaxpipe

#endif  // JAXPIPE_RECIPE_H_
