#include "recipe.h"

#include <cstring>
#include <sstream>

namespace jaxpipe {
namespace {

// A cursor over the words. After the first failure every read gives 0 and the Status stays.
class Reader {
 public:
  Reader(const int64_t* words, size_t count) : words_(words), count_(count) {}

  // The next word, which must lie in [low, high].
  int64_t Next(const char* what, int64_t low, int64_t high) {
    if (!status_.ok()) return 0;
    if (at_ == count_) {
      status_ = InvalidArgument("recipe ends at word " + std::to_string(at_) + ", before " + what);
      return 0;
    }
    const int64_t value = words_[at_++];
    if (value < low || value > high) {
      std::ostringstream text;
      text << "recipe word " << at_ - 1 << " (" << what << ") is " << value << ", limits are "
           << low << " to " << high;
      status_ = InvalidArgument(text.str());
      return 0;
    }
    return value;
  }

  void Fail(std::string message) {
    if (status_.ok()) status_ = InvalidArgument(std::move(message));
  }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  size_t left() const { return count_ - at_; }

 private:
  const int64_t* words_;
  size_t count_;
  size_t at_ = 0;
  Status status_;
};

constexpr int64_t kMaxBytes = int64_t{1} << 48;
constexpr int64_t kMaxGridX = 2147483647, kMaxGridYZ = 65535;

// The text up to the next newline, cut off `*names`.
std::string_view TakeLine(std::string_view* names) {
  const size_t end = names->find('\n');
  std::string_view line = names->substr(0, end);
  *names = end == std::string_view::npos ? std::string_view() : names->substr(end + 1);
  return line;
}

// A mask of the recipe's sizes; none in version 1.
uint32_t ReadMask(Reader* in, const char* what, int size_count) {
  if (size_count == 0) return 0;
  return static_cast<uint32_t>(in->Next(what, 0, (1 << size_count) - 1));
}

int ReadBuffers(Reader* in, const char* what, int size_count, BufferRecipe* buffers) {
  const int count = static_cast<int>(in->Next(what, 0, kMaxBuffers));
  for (int i = 0; i < count; ++i) {
    buffers[i].role = static_cast<Role>(in->Next("role", 0, kRoleCount - 1));
    buffers[i].bytes = static_cast<size_t>(in->Next("buffer bytes", 0, kMaxBytes));
    buffers[i].sizes = ReadMask(in, "sizes of a buffer", size_count);
  }
  return count;
}

Dim3 ReadDim3(Reader* in, const char* what, int64_t max_x, int64_t max_y, int64_t max_z) {
  Dim3 dim;
  dim.x = static_cast<uint32_t>(in->Next(what, 1, max_x));
  dim.y = static_cast<uint32_t>(in->Next(what, 1, max_y));
  dim.z = static_cast<uint32_t>(in->Next(what, 1, max_z));
  return dim;
}

// Role and offset of a pointer or tensor map; the buffer must exist and reach past the offset.
void ReadAddress(Reader* in, const Recipe& recipe, ParamRecipe* param) {
  param->role = static_cast<Role>(in->Next("role", 0, kRoleCount - 1));
  param->offset_bytes = static_cast<uint64_t>(in->Next("offset bytes", 0, kMaxBytes));
  if (!in->ok()) return;
  for (int i = 0; i < recipe.operand_count + recipe.result_count; ++i) {
    const BufferRecipe& buffer =
        i < recipe.operand_count ? recipe.operands[i] : recipe.results[i - recipe.operand_count];
    if (buffer.role == param->role && param->offset_bytes <= buffer.bytes) return;
  }
  in->Fail(std::string("recipe: a parameter points into ") + RoleName(param->role) + " at byte " +
           std::to_string(param->offset_bytes) + ", the call has no such buffer of that size");
}

void ReadTensorMap(Reader* in, int size_count, TensorMapRecipe* map) {
  map->dtype = static_cast<TensorDtype>(in->Next("tensor dtype", 0, kTensorDtypeCount - 1));
  map->rank = static_cast<int>(in->Next("tensor rank", 1, kMaxRank));
  constexpr int64_t k32 = int64_t{1} << 32, k40 = int64_t{1} << 40;
  for (int i = 0; i < map->rank; ++i) map->dims[i] = in->Next("tensor dim", 1, k32);
  for (int i = 0; i + 1 < map->rank; ++i) {
    map->strides_bytes[i] = in->Next("tensor stride", 16, k40 - 1);
  }
  for (int i = 0; i < map->rank; ++i) {
    map->dim_sizes[i] = ReadMask(in, "sizes of a tensor dim", size_count);
  }
  for (int i = 0; i + 1 < map->rank; ++i) {
    map->stride_sizes[i] = ReadMask(in, "sizes of a tensor stride", size_count);
  }
  for (int i = 0; i < map->rank; ++i) {
    map->box[i] = static_cast<uint32_t>(in->Next("tensor box", 1, 256));
  }
  for (int i = 0; i < map->rank; ++i) {
    map->element_strides[i] = static_cast<uint32_t>(in->Next("element stride", 1, 8));
  }
  map->swizzle_bytes = static_cast<int>(in->Next("swizzle bytes", 0, 128));
  map->l2_promotion_bytes = static_cast<int>(in->Next("L2 promotion bytes", 0, 256));
}

void ReadParam(Reader* in, const Recipe& recipe, LaunchRecipe* launch, ParamRecipe* param) {
  param->kind = static_cast<ParamRecipe::Kind>(in->Next("parameter kind", 0, 3));
  switch (param->kind) {
    case ParamRecipe::Kind::kPointer:
      ReadAddress(in, recipe, param);
      return;
    case ParamRecipe::Kind::kScalar:
      param->scalar_kind = static_cast<ScalarKind>(in->Next("scalar kind", 0, 2));
      param->scalar_bits = static_cast<uint64_t>(in->Next("scalar bits", INT64_MIN, INT64_MAX));
      return;
    case ParamRecipe::Kind::kTensorMap:
      ReadAddress(in, recipe, param);
      if (launch->tensor_map_count == kMaxTensorMaps) {
        return in->Fail("recipe: more than " + std::to_string(kMaxTensorMaps) +
                        " tensor maps in one launch");
      }
      param->tensor_map = launch->tensor_map_count++;
      ReadTensorMap(in, recipe.size_count, &launch->tensor_maps[param->tensor_map]);
      return;
    case ParamRecipe::Kind::kSize:
      param->scalar_kind = ScalarKind::kInt32;
      param->size = static_cast<int>(in->Next("size", 0, recipe.size_count - 1));
      param->scalar_bits = static_cast<uint64_t>(in->Next("scale of a size", 1, kMaxGridX));
      return;
  }
}

void ReadSizes(Reader* in, int64_t version, Recipe* recipe) {
  recipe->is_empty = false;
  recipe->size_count = 0;
  if (version == kRecipeVersion) return;
  recipe->size_count = static_cast<int>(in->Next("count of sizes", 1, kMaxSizes));
  for (int i = 0; i < recipe->size_count; ++i) {
    recipe->sizes[i].role = static_cast<Role>(in->Next("role", 0, kRoleCount - 1));
    recipe->sizes[i].limit = static_cast<uint64_t>(in->Next("largest size", 0, kMaxGridX));
  }
}

// The sizes of one call, and the steps of SettleSizes.
class Settling {
 public:
  explicit Settling(Recipe* recipe) : recipe_(recipe) {}

  // The sizes of mask `sizes` multiplied; 64 bits hold it, as each is below 2^31.
  uint64_t Product(uint32_t sizes) const {
    uint64_t product = 1;
    for (int i = 0; i < recipe_->size_count; ++i) product *= sizes >> i & 1 ? values_[i] : 1;
    return product;
  }

  Status Read(const BufferBytes& operand_bytes, const BufferBytes& result_bytes) {
    for (int i = 0; i < recipe_->size_count; ++i) {
      const Role role = recipe_->sizes[i].role;
      size_t unit = 0, bytes = 0;
      for (int j = 0; j < recipe_->operand_count; ++j) {
        if (recipe_->operands[j].role != role) continue;
        unit = Unit(recipe_->operands[j], i), bytes = operand_bytes[j];
      }
      for (int j = 0; j < recipe_->result_count; ++j) {
        if (recipe_->results[j].role != role) continue;
        unit = Unit(recipe_->results[j], i), bytes = result_bytes[j];
      }
      values_[i] = unit == 0 ? 0 : bytes / unit;
      if (unit * values_[i] != bytes || values_[i] > recipe_->sizes[i].limit) {
        return InvalidArgument("kernel " + std::string(recipe_->kernel) + ": " + RoleName(role) +
                               " has " + std::to_string(bytes) + " bytes, the kernel takes up to " +
                               std::to_string(recipe_->sizes[i].limit) + " times " +
                               std::to_string(unit));
      }
    }
    return Status();
  }

  void Buffers(int count, BufferRecipe* buffers) const {
    for (int i = 0; i < count; ++i) {
      buffers[i].bytes *= Product(buffers[i].sizes);
      buffers[i].sizes = 0;
    }
  }

  Status Launch(LaunchRecipe* launch) const {
    uint64_t blocks = launch->grid.x;
    for (int i = 0; i < recipe_->size_count; ++i) {
      const GridFactor& factor = launch->factors[i];
      if (factor.tile == 0) continue;
      blocks *= (values_[i] * factor.scale + factor.tile - 1) / factor.tile;
      if (blocks > static_cast<uint64_t>(kMaxGridX)) {
        return InvalidArgument("kernel " + std::string(recipe_->kernel) + ": " +
                               std::to_string(blocks) + " blocks or more, a grid has at most " +
                               std::to_string(kMaxGridX));
      }
    }
    launch->grid.x = static_cast<uint32_t>(blocks);
    for (int i = 0; i < launch->param_count; ++i) {
      ParamRecipe& param = launch->params[i];
      if (param.kind != ParamRecipe::Kind::kSize) continue;
      param.kind = ParamRecipe::Kind::kScalar;
      param.scalar_bits *= values_[param.size];
    }
    for (int i = 0; i < launch->tensor_map_count; ++i) Map(&launch->tensor_maps[i]);
    return Status();
  }

  bool IsEmpty() const { return Product((1u << recipe_->size_count) - 1) == 0; }

 private:
  size_t Unit(const BufferRecipe& buffer, int size) const {
    return buffer.bytes * Product(buffer.sizes & ((1u << size) - 1));
  }

  void Map(TensorMapRecipe* map) const {
    for (int i = 0; i < map->rank; ++i) map->dims[i] *= Product(map->dim_sizes[i]);
    for (int i = 0; i + 1 < map->rank; ++i) {
      map->strides_bytes[i] *= Product(map->stride_sizes[i]);
    }
  }

  Recipe* recipe_;
  uint64_t values_[kMaxSizes] = {};
};

void ReadLaunch(Reader* in, const Recipe& recipe, LaunchRecipe* launch) {
  launch->grid = ReadDim3(in, "grid", kMaxGridX, kMaxGridYZ, kMaxGridYZ);
  launch->block = ReadDim3(in, "block", 1024, 1024, 64);
  launch->cluster = ReadDim3(in, "cluster", 16, 16, 16);
  launch->shared_bytes = static_cast<uint32_t>(in->Next("shared bytes", 0, 1 << 20));
  for (int i = 0; i < recipe.size_count; ++i) {
    launch->factors[i].scale = static_cast<uint64_t>(in->Next("scale of a size", 1, kMaxGridX));
    launch->factors[i].tile = static_cast<uint64_t>(in->Next("tile of a size", 0, kMaxGridX));
  }
  launch->param_count = static_cast<int>(in->Next("parameter count", 0, kMaxParams));
  launch->tensor_map_count = 0;
  for (int i = 0; i < launch->param_count && in->ok(); ++i) {
    ReadParam(in, recipe, launch, &launch->params[i]);
  }
}

void Describe(const LaunchRecipe& launch, std::ostringstream* text) {
  *text << launch.entry << "<<<(" << launch.grid.x << "," << launch.grid.y << "," << launch.grid.z
        << "), (" << launch.block.x << "," << launch.block.y << "," << launch.block.z << "), "
        << launch.shared_bytes;
  if (launch.cluster.x * launch.cluster.y * launch.cluster.z > 1) {
    *text << ", cluster (" << launch.cluster.x << "," << launch.cluster.y << "," << launch.cluster.z
          << ")";
  }
  *text << ">>>(";
  for (int i = 0; i < launch.param_count; ++i) {
    const ParamRecipe& param = launch.params[i];
    if (i > 0) *text << ", ";
    if (param.kind == ParamRecipe::Kind::kSize) {
      *text << "size " << param.size << " * " << param.scalar_bits;
      continue;
    }
    if (param.kind == ParamRecipe::Kind::kScalar) {
      float real;
      std::memcpy(&real, &param.scalar_bits, sizeof real);
      if (param.scalar_kind == ScalarKind::kFloat32) {
        *text << real << "f";
      } else {
        *text << static_cast<int64_t>(param.scalar_bits);
      }
      continue;
    }
    *text << (param.kind == ParamRecipe::Kind::kTensorMap ? "map " : "") << RoleName(param.role);
    if (param.offset_bytes) *text << "+" << param.offset_bytes;
  }
  *text << ")\n";
}

}  // namespace

const char* RoleName(Role role) {
  static constexpr const char* kNames[kRoleCount] = {"lhs", "rhs",           "bias",     "residual",
                                                     "out", "preactivation", "workspace"};
  return kNames[static_cast<int>(role)];
}

int ElementBytes(TensorDtype dtype) {
  static constexpr int kBytes[kTensorDtypeCount] = {4, 2, 2, 1, 4, 4};
  return kBytes[static_cast<int>(dtype)];
}

size_t ParamBytes(const ParamRecipe& param) {
  switch (param.kind) {
    case ParamRecipe::Kind::kPointer:
      return 8;
    case ParamRecipe::Kind::kScalar:
      return param.scalar_kind == ScalarKind::kInt64 ? 8 : 4;
    case ParamRecipe::Kind::kSize:
      return 4;
    case ParamRecipe::Kind::kTensorMap:
      return 128;
  }
  return 0;
}

Status DecodeRecipe(const int64_t* words, size_t count, std::string_view names, Recipe* recipe) {
  if (count == 0 || words[0] < kRecipeVersion || words[0] > kSizesVersion) {
    return FailedPrecondition("this program holds a jaxpipe kernel of recipe version " +
                              (count ? std::to_string(words[0]) : std::string("none")) +
                              ", this jaxpipe reads versions " + std::to_string(kRecipeVersion) +
                              " and " + std::to_string(kSizesVersion) +
                              ": lower or export the program again");
  }
  Reader in(words + 1, count - 1);
  ReadSizes(&in, words[0], recipe);
  recipe->kernel = TakeLine(&names);
  recipe->target = TakeLine(&names);
  recipe->operand_count = ReadBuffers(&in, "operand count", recipe->size_count, recipe->operands);
  recipe->result_count = ReadBuffers(&in, "result count", recipe->size_count, recipe->results);
  recipe->launch_count = static_cast<int>(in.Next("launch count", 0, kMaxLaunches));
  for (int i = 0; i < recipe->launch_count && in.ok(); ++i) {
    recipe->launches[i].entry = TakeLine(&names);
    if (recipe->launches[i].entry.empty()) in.Fail("recipe: a launch has no entry name");
    ReadLaunch(&in, *recipe, &recipe->launches[i]);
  }
  if (in.ok() && in.left() != 0)
    in.Fail("recipe has " + std::to_string(in.left()) + " words too many");
  return in.status();
}

Status SettleSizes(const BufferBytes& operands, const BufferBytes& results, Recipe* recipe) {
  Settling settling(recipe);
  JAXPIPE_RETURN_IF_ERROR(settling.Read(operands, results));
  settling.Buffers(recipe->operand_count, recipe->operands);
  settling.Buffers(recipe->result_count, recipe->results);
  recipe->is_empty = settling.IsEmpty();
  for (int i = 0; i < recipe->launch_count && !recipe->is_empty; ++i) {
    JAXPIPE_RETURN_IF_ERROR(settling.Launch(&recipe->launches[i]));
  }
  recipe->size_count = 0;
  return Status();
}

std::string DescribeRecipe(const Recipe& recipe) {
  std::ostringstream text;
  text << recipe.kernel << " for " << recipe.target << "\n";
  for (int i = 0; i < recipe.operand_count; ++i) {
    text << (i ? ", " : "") << RoleName(recipe.operands[i].role) << " " << recipe.operands[i].bytes;
  }
  text << " ->";
  for (int i = 0; i < recipe.result_count; ++i) {
    text << (i ? ", " : " ") << RoleName(recipe.results[i].role) << " " << recipe.results[i].bytes;
  }
  text << "\n";
  for (int i = 0; i < recipe.launch_count; ++i) Describe(recipe.launches[i], &text);
  return text.str();
}

}  // namespace jaxpipe
