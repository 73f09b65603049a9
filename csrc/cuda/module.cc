#include "cuda/module.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/device.h"
#include "inflate.h"

namespace jaxpipe::cuda {
namespace {

constexpr size_t kMaxBinaryBytes = size_t{256} << 20;
constexpr unsigned kDefaultSharedBytes = 48 * 1024;  // more needs an opt-in
constexpr unsigned kPortableClusterBlocks = 8;

struct Function {
  std::string entry;
  CUfunction handle;
  unsigned shared_bytes;  // the dynamic limit that is set
};

struct Module {
  CUcontext context;
  CUmodule handle;
  std::vector<Function> functions;
};

// A context's address may be used again after it died: its id, where the driver tells one, is not.
struct KeyView {
  std::string_view content;
  CUcontext context;
  uint64_t context_id;
};

struct Key {
  std::string content;
  CUcontext context;
  uint64_t context_id;
};

struct Less {
  using is_transparent = void;
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return std::make_tuple(a.context, a.context_id, std::string_view(a.content)) <
           std::make_tuple(b.context, b.context_id, std::string_view(b.content));
  }
};

struct Cache {
  std::mutex loading;       // held by whoever loads; taken before `mutex`
  std::shared_mutex mutex;  // guards `modules` and what they hold
  std::map<Key, Module, Less> modules;
  int loads = 0;
};

// Never destroyed: handlers may run while the process exits.
Cache& TheCache() {
  static Cache* cache = new Cache;
  return *cache;
}

Status MakeKey(const Driver& driver, CUcontext context, std::string_view content, KeyView* key) {
  unsigned long long id = 0;  // NOLINT(runtime/int): the driver's own type
  if (driver.CtxGetId != nullptr) {
    JAXPIPE_RETURN_IF_ERROR(Check(driver, driver.CtxGetId(context, &id), "cuCtxGetId", ""));
  }
  *key = KeyView{content, context, id};
  return Status();
}

const Function* Find(const Module& module, std::string_view entry) {
  for (const Function& function : module.functions) {
    if (function.entry == entry) return &function;
  }
  return nullptr;
}

bool IsReady(const Module& module, const Recipe& recipe) {
  for (int i = 0; i < recipe.launch_count; ++i) {
    const Function* function = Find(module, recipe.launches[i].entry);
    if (function == nullptr || function->shared_bytes < recipe.launches[i].shared_bytes) {
      return false;
    }
  }
  return true;
}

// "kernel k for sm_90a, device 0 is NVIDIA A100 (sm_80)": what a reader of an error needs.
std::string Situation(const Driver& driver, const Recipe& recipe) {
  CUdevice device = 0;
  DeviceInfo info;
  std::string text =
      "kernel " + std::string(recipe.kernel) + " is for " + std::string(recipe.target);
  if (driver.CtxGetDevice(&device) != kSuccess || !DescribeDevice(driver, device, &info).ok()) {
    return text;
  }
  return text + ", device " + std::to_string(device) + " is " + info.name + " (sm_" +
         std::to_string(10 * info.major + info.minor) + ", driver for CUDA " +
         std::to_string(driver.version / 1000) + "." + std::to_string(driver.version % 1000 / 10) +
         ")";
}

Status LoadBinary(const Driver& driver, const Recipe& recipe, std::string_view compressed,
                  CUmodule* module) {
  std::string binary;
  JAXPIPE_RETURN_IF_ERROR(InflateZlib(compressed, kMaxBinaryBytes, &binary));
  char log[2048] = "";
  int options[] = {kJitErrorLogBuffer, kJitErrorLogBufferBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  const CUresult result = driver.ModuleLoadDataEx(module, binary.data(), 2, options, values);
  std::string context = result == kSuccess ? "" : Situation(driver, recipe);
  if (log[0] != '\0') context += "; " + std::string(log);
  return Check(driver, result, "cuModuleLoadData", context);
}

Status SetShared(const Driver& driver, const Recipe& recipe, const LaunchRecipe& launch,
                 CUfunction function) {
  if (launch.shared_bytes > kDefaultSharedBytes) {
    const CUresult result = driver.FuncSetAttribute(function, kMaxDynamicSharedBytes,
                                                    static_cast<int>(launch.shared_bytes));
    if (result != kSuccess) {
      return Check(driver, result, "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)",
                   std::string(launch.entry) + " needs " + std::to_string(launch.shared_bytes) +
                       " bytes of shared memory per block; " + Situation(driver, recipe));
    }
  }
  const Dim3& cluster = launch.cluster;
  if (cluster.x * cluster.y * cluster.z > kPortableClusterBlocks) {
    return Check(driver, driver.FuncSetAttribute(function, kNonPortableClusterAllowed, 1),
                 "cuFuncSetAttribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED)",
                 Situation(driver, recipe));
  }
  return Status();
}

// Finds the functions of `recipe` and makes them launchable: limits raised, code loaded now and
// not lazily at the first launch, which may be inside a capture.
Status MakeReady(const Driver& driver, const Recipe& recipe, CUmodule module,
                 std::vector<Function>* functions) {
  for (int i = 0; i < recipe.launch_count; ++i) {
    const LaunchRecipe& launch = recipe.launches[i];
    Function function{std::string(launch.entry), nullptr, launch.shared_bytes};
    const CUresult found =
        driver.ModuleGetFunction(&function.handle, module, function.entry.c_str());
    if (found != kSuccess) {
      return Check(driver, found, "cuModuleGetFunction",
                   "no entry " + function.entry + "; " + Situation(driver, recipe));
    }
    JAXPIPE_RETURN_IF_ERROR(SetShared(driver, recipe, launch, function.handle));
    if (driver.FuncLoad != nullptr) {
      JAXPIPE_RETURN_IF_ERROR(
          Check(driver, driver.FuncLoad(function.handle), "cuFuncLoad", function.entry));
    }
    functions->push_back(std::move(function));
  }
  return Status();
}

}  // namespace

Status LoadModule(const Driver& driver, CUcontext context, const Recipe& recipe,
                  std::string_view key, std::string_view compressed) {
  Cache& cache = TheCache();
  KeyView view;
  JAXPIPE_RETURN_IF_ERROR(MakeKey(driver, context, key, &view));
  {
    std::shared_lock<std::shared_mutex> lock(cache.mutex);
    const auto found = cache.modules.find(view);
    if (found != cache.modules.end() && IsReady(found->second, recipe)) return Status();
  }
  std::lock_guard<std::mutex> loading(cache.loading);
  ScopedContext scope(driver, context);
  JAXPIPE_RETURN_IF_ERROR(scope.status());
  CUmodule module = nullptr;
  {
    std::shared_lock<std::shared_mutex> lock(cache.mutex);
    const auto found = cache.modules.find(view);
    if (found != cache.modules.end()) {
      if (IsReady(found->second, recipe)) return Status();
      module = found->second.handle;
    }
  }
  const bool is_new = module == nullptr;
  if (is_new) JAXPIPE_RETURN_IF_ERROR(LoadBinary(driver, recipe, compressed, &module));
  std::vector<Function> functions;
  const Status ready = MakeReady(driver, recipe, module, &functions);
  if (!ready.ok()) {
    if (is_new) (void)driver.ModuleUnload(module);
    return ready;
  }
  std::unique_lock<std::shared_mutex> lock(cache.mutex);
  Module& entry = cache.modules[Key{std::string(key), view.context, view.context_id}];
  entry = Module{context, module, std::move(functions)};
  cache.loads += is_new;
  return Status();
}

Status FindFunctions(const Driver& driver, CUcontext context, const Recipe& recipe,
                     std::string_view key, Functions* functions) {
  Cache& cache = TheCache();
  KeyView view;
  JAXPIPE_RETURN_IF_ERROR(MakeKey(driver, context, key, &view));
  std::shared_lock<std::shared_mutex> lock(cache.mutex);
  const auto found = cache.modules.find(view);
  if (found == cache.modules.end() || !IsReady(found->second, recipe)) {
    return FailedPrecondition("kernel " + std::string(recipe.kernel) +
                              " was not loaded in this context: the initialize stage of its "
                              "custom call did not run here, or UnloadModules did since");
  }
  for (int i = 0; i < recipe.launch_count; ++i) {
    functions->of_launch[i] = Find(found->second, recipe.launches[i].entry)->handle;
  }
  return Status();
}

int UnloadModules(const Driver& driver) {
  Cache& cache = TheCache();
  std::lock_guard<std::mutex> loading(cache.loading);
  std::unique_lock<std::shared_mutex> lock(cache.mutex);
  const int count = static_cast<int>(cache.modules.size());
  for (auto& [key, module] : cache.modules) {
    ScopedContext scope(driver, module.context);
    if (scope.status().ok()) (void)driver.ModuleUnload(module.handle);
  }
  cache.modules.clear();
  return count;
}

ModuleCounts CountModules() {
  Cache& cache = TheCache();
  std::shared_lock<std::shared_mutex> lock(cache.mutex);
  return ModuleCounts{cache.loads, static_cast<int>(cache.modules.size())};
}

}  // namespace jaxpipe::cuda
