#include "ptx/launch_recipe.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "ptx/grid.h"
#include "ptx/serial.h"
#include "ptx/tensor_map.h"

namespace jaxpipe::ptx {
namespace {

using Programs = std::vector<Program>;
constexpr size_t kMaxCached = 64;
constexpr uint8_t kPoisonByte = 0xff;
constexpr size_t kShownHazards = 8;

// Decoded programs by content key; the oldest key goes when there are too many.
Status DecodePrograms(std::string_view key, std::string_view bytes, int count,
                      std::shared_ptr<const Programs>* out) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Programs>> cache;
  const std::string name = std::string(key) + ":" + std::to_string(bytes.size());
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = cache.find(name);
    if (found != cache.end()) {
      *out = found->second;
      return Status();
    }
  }
  auto programs = std::make_shared<Programs>(count);
  for (Program& program : *programs) JAXPIPE_RETURN_IF_ERROR(Deserialize(&bytes, &program));
  *out = programs;
  const std::lock_guard<std::mutex> lock(mutex);
  if (cache.size() >= kMaxCached) cache.erase(cache.begin());
  cache.emplace(name, std::move(programs));
  return Status();
}

// Addresses of the buffers by role, and what has been written of the results.
struct Memory {
  GlobalMemory global;
  uint64_t address[kRoleCount] = {};
  std::vector<std::vector<uint8_t>> written;
};

Status AddBuffers(const Recipe& recipe, const std::vector<HostBuffer>& operands,
                  const std::vector<HostBuffer>& results, Memory* memory) {
  if (static_cast<int>(operands.size()) != recipe.operand_count ||
      static_cast<int>(results.size()) != recipe.result_count)
    return InvalidArgument("the call and its recipe differ in the number of buffers");
  for (int i = 0; i < recipe.operand_count; ++i) {
    if (operands[i].bytes != recipe.operands[i].bytes)
      return InvalidArgument(std::string(RoleName(recipe.operands[i].role)) + " has " +
                             std::to_string(operands[i].bytes) +
                             " bytes, the kernel was made for " +
                             std::to_string(recipe.operands[i].bytes));
    memory->address[static_cast<int>(recipe.operands[i].role)] =
        memory->global.Add({operands[i].data, operands[i].bytes, nullptr, false, 0});
  }
  memory->written.reserve(results.size());
  for (int i = 0; i < recipe.result_count; ++i) {
    if (results[i].bytes != recipe.results[i].bytes)
      return InvalidArgument(std::string(RoleName(recipe.results[i].role)) + " has " +
                             std::to_string(results[i].bytes) + " bytes, the kernel was made for " +
                             std::to_string(recipe.results[i].bytes));
    std::memset(results[i].data, kPoisonByte, results[i].bytes);
    memory->written.emplace_back(results[i].bytes, 0);
    memory->address[static_cast<int>(recipe.results[i].role)] = memory->global.Add(
        {results[i].data, results[i].bytes, memory->written.back().data(), true, 0});
  }
  return Status();
}

uint8_t TypeCode(TensorDtype dtype) {
  switch (dtype) {
    case TensorDtype::kBFloat16:
      return 10;
    case TensorDtype::kFloat16:
      return 6;
    case TensorDtype::kUInt8:
      return 0;
    case TensorDtype::kInt32:
      return 3;
    case TensorDtype::kTFloat32:
      return 11;
    default:
      return 7;  // float32
  }
}

TensorMapBits ToBits(const TensorMapRecipe& map, uint64_t address) {
  TensorMapBits bits{};
  bits.magic = kTensorMapMagic;
  bits.rank = static_cast<uint8_t>(map.rank);
  bits.type = TypeCode(map.dtype);
  bits.swizzle =
      map.swizzle_bytes == 0 ? 0 : static_cast<uint8_t>(__builtin_ctz(map.swizzle_bytes) - 4);
  bits.address = address;
  for (int i = 0; i < map.rank; ++i) {
    bits.dims[i] = static_cast<uint32_t>(map.dims[i]);
    bits.box[i] = static_cast<uint16_t>(map.box[i]);
    bits.element_strides[i] = static_cast<uint8_t>(map.element_strides[i]);
    if (i > 0) bits.strides[i - 1] = map.strides_bytes[i - 1];
  }
  return bits;
}

// The parameter block: every parameter at its own alignment (64 for tensor maps).
std::vector<uint8_t> Parameters(const LaunchRecipe& launch, const Memory& memory) {
  std::vector<uint8_t> block;
  for (int i = 0; i < launch.param_count; ++i) {
    const ParamRecipe& param = launch.params[i];
    const size_t size = ParamBytes(param);
    const size_t alignment = std::min<size_t>(size, 64);
    const size_t at = (block.size() + alignment - 1) / alignment * alignment;
    block.resize(at + size, 0);
    const uint64_t address = memory.address[static_cast<int>(param.role)] + param.offset_bytes;
    if (param.kind == ParamRecipe::Kind::kPointer) {
      std::memcpy(&block[at], &address, size);
    } else if (param.kind == ParamRecipe::Kind::kScalar) {
      std::memcpy(&block[at], &param.scalar_bits, size);
    } else {
      const TensorMapBits bits = ToBits(launch.tensor_maps[param.tensor_map], address);
      std::memcpy(&block[at], &bits, sizeof bits);
    }
  }
  return block;
}

void CopyDim3(const Dim3& from, uint32_t (&to)[3]) {
  to[0] = from.x, to[1] = from.y, to[2] = from.z;
}

Launch ToLaunch(const LaunchRecipe& recipe, const Memory& memory, const InterpretOptions& options) {
  Launch launch;
  CopyDim3(recipe.grid, launch.grid);
  CopyDim3(recipe.block, launch.block);
  CopyDim3(recipe.cluster, launch.cluster);
  launch.dynamic_shared_bytes = recipe.shared_bytes;
  launch.params = Parameters(recipe, memory);
  launch.landing = options.landing;
  launch.order = options.order;
  launch.seed = options.seed;
  launch.check = options.check;
  return launch;
}

Status HazardsAsStatus(const Recipe& recipe, const Program& program,
                       const std::vector<Hazard>& hazards) {
  std::string text = std::string(recipe.kernel) + " (" + std::string(recipe.target) +
                     ", interpreted): " + std::to_string(hazards.size()) + " hazards";
  for (size_t i = 0; i < std::min(hazards.size(), kShownHazards); ++i)
    text += "\n  " + DescribeHazard(program, hazards[i]);
  return FailedPrecondition(std::move(text));
}

Status CheckWritten(const Recipe& recipe, const Memory& memory) {
  for (int i = 0; i < recipe.result_count; ++i) {
    const auto& written = memory.written[i];
    const auto missing = std::count(written.begin(), written.end(), 0);
    if (recipe.results[i].role == Role::kWorkspace || missing == 0) continue;
    return FailedPrecondition(std::string(recipe.kernel) + " (interpreted) left " +
                              std::to_string(missing) + " of " + std::to_string(written.size()) +
                              " bytes of " + RoleName(recipe.results[i].role) + " unwritten");
  }
  return Status();
}

}  // namespace

Status RunRecipe(const Recipe& recipe, std::string_view key, std::string_view programs,
                 const std::vector<HostBuffer>& operands, const std::vector<HostBuffer>& results,
                 const InterpretOptions& options) {
  if (recipe.size_count > 0) {
    Recipe settled = recipe;
    JAXPIPE_RETURN_IF_ERROR(SettleSizes(BytesOf(operands.data(), operands.size()),
                                        BytesOf(results.data(), results.size()), &settled));
    if (settled.is_empty) return Status();
    return RunRecipe(settled, key, programs, operands, results, options);
  }
  std::shared_ptr<const Programs> decoded;
  JAXPIPE_RETURN_IF_ERROR(DecodePrograms(key, programs, recipe.launch_count, &decoded));
  Memory memory;
  JAXPIPE_RETURN_IF_ERROR(AddBuffers(recipe, operands, results, &memory));
  for (int i = 0; i < recipe.launch_count; ++i) {
    const Program& program = (*decoded)[i];
    const Launch launch = ToLaunch(recipe.launches[i], memory, options);
    Outcome outcome;
    JAXPIPE_RETURN_IF_ERROR(RunGrid(program, launch, memory.global, options.threads, &outcome));
    if (!outcome.hazards.empty()) return HazardsAsStatus(recipe, program, outcome.hazards);
  }
  return CheckWritten(recipe, memory);
}

}  // namespace jaxpipe::ptx
