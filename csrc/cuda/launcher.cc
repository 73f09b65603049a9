#include "cuda/launcher.h"

#include <string>

#include "cuda/tensor_map.h"

namespace jaxpipe::cuda {
namespace {

// What the kernels' 16-byte copies and tensor maps need of every buffer.
constexpr uint64_t kAlignBytes = 16;

struct Addresses {
  uint64_t of_role[kRoleCount] = {};
};

std::string Name(const Recipe& recipe) { return "kernel " + std::string(recipe.kernel); }

Status Bind(const Recipe& recipe, const char* what, const BufferRecipe* wanted, int wanted_count,
            const Buffer* buffers, size_t count, Addresses* addresses) {
  if (count != static_cast<size_t>(wanted_count)) {
    return InvalidArgument(Name(recipe) + " was lowered for " + std::to_string(wanted_count) + " " +
                           what + ", the call has " + std::to_string(count));
  }
  for (int i = 0; i < wanted_count; ++i) {
    const char* role = RoleName(wanted[i].role);
    if (buffers[i].bytes != wanted[i].bytes) {
      return InvalidArgument(Name(recipe) + ": " + role + " was lowered for " +
                             std::to_string(wanted[i].bytes) + " bytes, the call has " +
                             std::to_string(buffers[i].bytes));
    }
    if (buffers[i].address % kAlignBytes != 0) {
      return InvalidArgument(Name(recipe) + ": " + role + " is at address " +
                             std::to_string(buffers[i].address) +
                             ", kernels need a multiple of 16");
    }
    addresses->of_role[static_cast<int>(wanted[i].role)] = buffers[i].address;
  }
  return Status();
}

// The values that a launch's parameter pointers point to.
struct Arguments {
  void* pointers[kMaxParams];
  uint64_t words[kMaxParams];
  TensorMap maps[kMaxTensorMaps];
};

Status BindArguments(const Driver& driver, const LaunchRecipe& launch, const Addresses& addresses,
                     Arguments* arguments) {
  for (int i = 0; i < launch.param_count; ++i) {
    const ParamRecipe& param = launch.params[i];
    if (param.kind == ParamRecipe::Kind::kScalar) {
      arguments->words[i] = param.scalar_bits;
      arguments->pointers[i] = &arguments->words[i];
      continue;
    }
    const uint64_t address = addresses.of_role[static_cast<int>(param.role)] + param.offset_bytes;
    if (param.kind == ParamRecipe::Kind::kPointer) {
      arguments->words[i] = address;
      arguments->pointers[i] = &arguments->words[i];
      continue;
    }
    TensorMap* map = &arguments->maps[param.tensor_map];
    JAXPIPE_RETURN_IF_ERROR(
        EncodeTensorMap(driver, launch.tensor_maps[param.tensor_map], address, map));
    arguments->pointers[i] = map;
  }
  return Status();
}

std::string Geometry(const LaunchRecipe& launch) {
  auto text = [](const Dim3& dim) {
    return std::to_string(dim.x) + "x" + std::to_string(dim.y) + "x" + std::to_string(dim.z);
  };
  return std::string(launch.entry) + " with grid " + text(launch.grid) + ", block " +
         text(launch.block) + ", cluster " + text(launch.cluster) + ", " +
         std::to_string(launch.shared_bytes) + " bytes of shared memory";
}

Status LaunchOne(const Driver& driver, const LaunchRecipe& launch, CUfunction function,
                 Arguments* arguments, CUstream stream) {
  const Dim3 &grid = launch.grid, &block = launch.block, &cluster = launch.cluster;
  LaunchAttribute attribute{};
  attribute.id = kClusterDimension;
  attribute.value.cluster = {cluster.x, cluster.y, cluster.z};
  const bool has_cluster = cluster.x * cluster.y * cluster.z > 1;
  const LaunchConfig config{grid.x,
                            grid.y,
                            grid.z,
                            block.x,
                            block.y,
                            block.z,
                            launch.shared_bytes,
                            stream,
                            has_cluster ? &attribute : nullptr,
                            has_cluster ? 1u : 0u};
  const CUresult result = driver.LaunchKernelEx(&config, function, arguments->pointers, nullptr);
  if (result == kSuccess) return Status();
  return Check(driver, result, "cuLaunchKernelEx", Geometry(launch));
}

}  // namespace

Status ContextOf(const Driver& driver, CUstream stream, CUcontext* context) {
  return Check(driver, driver.StreamGetCtx(stream, context), "cuStreamGetCtx", "");
}

Status Initialize(CUstream stream, const Recipe& recipe, std::string_view key,
                  std::string_view compressed) {
  const Driver* driver;
  CUcontext context;
  JAXPIPE_RETURN_IF_ERROR(GetDriver(&driver));
  JAXPIPE_RETURN_IF_ERROR(ContextOf(*driver, stream, &context));
  return LoadModule(*driver, context, recipe, key, compressed);
}

Status Execute(CUstream stream, const Recipe& recipe, std::string_view key, const Buffer* operands,
               size_t operand_count, const Buffer* results, size_t result_count) {
  if (recipe.size_count > 0) {
    Recipe settled = recipe;
    JAXPIPE_RETURN_IF_ERROR(
        SettleSizes(BytesOf(operands, operand_count), BytesOf(results, result_count), &settled));
    if (settled.is_empty) return Status();
    return Execute(stream, settled, key, operands, operand_count, results, result_count);
  }
  Addresses addresses;
  JAXPIPE_RETURN_IF_ERROR(Bind(recipe, "operands", recipe.operands, recipe.operand_count, operands,
                               operand_count, &addresses));
  JAXPIPE_RETURN_IF_ERROR(Bind(recipe, "results", recipe.results, recipe.result_count, results,
                               result_count, &addresses));
  const Driver* driver;
  CUcontext context;
  Functions functions;
  JAXPIPE_RETURN_IF_ERROR(GetDriver(&driver));
  JAXPIPE_RETURN_IF_ERROR(ContextOf(*driver, stream, &context));
  JAXPIPE_RETURN_IF_ERROR(FindFunctions(*driver, context, recipe, key, &functions));
  ScopedContext scope(*driver, context);
  JAXPIPE_RETURN_IF_ERROR(scope.status());
  Arguments arguments;
  for (int i = 0; i < recipe.launch_count; ++i) {
    JAXPIPE_RETURN_IF_ERROR(BindArguments(*driver, recipe.launches[i], addresses, &arguments));
    JAXPIPE_RETURN_IF_ERROR(
        LaunchOne(*driver, recipe.launches[i], functions.of_launch[i], &arguments, stream));
  }
  return Status();
}

}  // namespace jaxpipe::cuda
