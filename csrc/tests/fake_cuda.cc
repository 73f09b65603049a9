// A stand-in for libcuda that obeys the driver's rules and remembers what it was told.
//
// Built by tests/cuda/conftest.py into a shared library that JAXPIPE_LIBCUDA names. It knows what a
// driver knows: contexts are per device and current per thread, a function belongs to one context,
// shared memory above 48 KiB needs an opt-in, modules cannot be loaded on a capturing thread,
// tensor maps have alignment rules. A "binary" is text: the target, then a line per entry with the
// size of each parameter. Every launch takes 10 microseconds of a stream's own clock.
//
// fake_log gives one line a call that matters; fake_reset forgets everything.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kOk = 0, kInvalidValue = 1, kNoBinary = 209, kInvalidContext = 201,
              kInvalidHandle = 400, kNotFound = 500, kCaptureUnsupported = 900;
constexpr float kLaunchMs = 0.01f;

struct Context {
  int device;
  uint64_t id;
};
struct Function;
struct Module {
  Context* context;
  std::string target;
  std::map<std::string, Function*> functions;
};
struct Function {
  Module* module;
  std::string entry;
  std::vector<size_t> param_bytes;
  unsigned shared_limit = 48 * 1024;
  bool is_loaded = false;
};
struct Stream {
  explicit Stream(Context* of) : context(of) {}
  Context* context;
  bool is_capturing = false;
  std::vector<std::string> captured;
  float clock_ms = 0;
};
struct Graph {
  std::vector<std::string> launches;
};
struct Event {
  float ms = 0;
};
struct LaunchAttribute {
  int id;
  char pad[4];
  unsigned value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  Stream* stream;
  LaunchAttribute* attributes;
  unsigned count;
};

std::mutex mutex;
std::vector<std::string> log_lines;
std::set<Module*> live_modules;
std::vector<int> capabilities = {90, 80};  // of devices 0 and 1
std::vector<Context> contexts;
uint64_t next_context_id = 1;
thread_local std::vector<Context*> current;
thread_local int capturing_streams = 0;

void Log(const std::string& line) { log_lines.push_back(line); }

Context* Primary(int device) {
  if (contexts.empty()) {
    contexts.reserve(capabilities.size());
    for (size_t i = 0; i < capabilities.size(); ++i) {
      contexts.push_back({static_cast<int>(i), next_context_id++});
    }
  }
  return &contexts[device];
}

unsigned OptinLimit(int device) { return capabilities[device] == 80 ? 166912 : 232448; }

std::string Hex(const void* bytes, size_t count) {
  std::string text;
  char digits[3];
  for (size_t i = 0; i < count; ++i) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(bytes)[i]);
    text += digits;
  }
  return text;
}

bool RunsOn(const std::string& target, int device) {
  return target == "sm_" + std::to_string(capabilities[device]) ||
         target == "sm_" + std::to_string(capabilities[device]) + "a";
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// ------------------------------------------------------------------ what tests call
EXPORT void fake_reset() {
  std::lock_guard<std::mutex> lock(mutex);
  log_lines.clear();
  for (Context& context : contexts) context.id = next_context_id++;
}
EXPORT size_t fake_log(char* out, size_t size) {
  std::lock_guard<std::mutex> lock(mutex);
  std::string text;
  for (const std::string& line : log_lines) text += line + "\n";
  if (out != nullptr) std::snprintf(out, size, "%s", text.c_str());
  return text.size() + 1;
}
EXPORT Stream* fake_stream(int device) {
  std::lock_guard<std::mutex> lock(mutex);
  return new Stream(Primary(device));
}
EXPORT int fake_current_contexts() { return static_cast<int>(current.size()); }

// ------------------------------------------------------------------ the driver
EXPORT int cuInit(unsigned) { return kOk; }
EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, kOk; }
EXPORT int cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> kNames = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
  };
  const auto found = kNames.find(error);
  *name = found == kNames.end() ? nullptr : found->second;
  return found == kNames.end() ? kInvalidValue : kOk;
}
EXPORT int cuDeviceGetCount(int* count) {
  return *count = static_cast<int>(capabilities.size()), kOk;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(capabilities.size())) return kInvalidValue;
  return *device = ordinal, kOk;
}
EXPORT int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, size, "Fake sm_%d", capabilities[device]);
  return kOk;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 16:
      *value = 132;
      return kOk;
    case 38:
      *value = 50 << 20;
      return kOk;
    case 75:
      *value = capabilities[device] / 10;
      return kOk;
    case 76:
      *value = capabilities[device] % 10;
      return kOk;
    case 97:
      *value = static_cast<int>(OptinLimit(device));
      return kOk;
    default:
      return kInvalidValue;
  }
}
EXPORT int cuCtxGetDevice(int* device) {
  if (current.empty()) return kInvalidContext;
  return *device = current.back()->device, kOk;
}
EXPORT int cuCtxGetCurrent(Context** context) {
  return *context = current.empty() ? nullptr : current.back(), kOk;
}
EXPORT int cuCtxPushCurrent_v2(Context* context) { return current.push_back(context), kOk; }
EXPORT int cuCtxPopCurrent_v2(Context** context) {
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  return current.pop_back(), kOk;
}
EXPORT int cuCtxGetId(Context* context, unsigned long long* id) { return *id = context->id, kOk; }
EXPORT int cuDevicePrimaryCtxRetain(Context** context, int device) {
  std::lock_guard<std::mutex> lock(mutex);
  return *context = Primary(device), kOk;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return kOk; }
EXPORT int cuStreamGetCtx(Stream* stream, Context** context) {
  return *context = stream->context, kOk;
}

EXPORT int cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* options,
                              void** values) {
  if (current.empty()) return kInvalidContext;
  if (capturing_streams > 0) return kCaptureUnsupported;
  std::lock_guard<std::mutex> lock(mutex);
  std::istringstream text(static_cast<const char*>(image));
  auto* loaded = new Module{current.back(), "", {}};
  std::string line;
  std::getline(text, loaded->target);
  if (!RunsOn(loaded->target, loaded->context->device)) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == 5) std::strcpy(static_cast<char*>(values[i]), "fake log");
    }
    return kNoBinary;
  }
  while (std::getline(text, line)) {
    std::istringstream words(line);
    auto* function = new Function{loaded, "", {}};
    words >> function->entry;
    for (size_t bytes; words >> bytes;) function->param_bytes.push_back(bytes);
    loaded->functions[function->entry] = function;
  }
  Log("load " + loaded->target + " device " + std::to_string(loaded->context->device));
  live_modules.insert(loaded);
  return *module = loaded, kOk;
}
EXPORT int cuModuleUnload(Module* module) {
  std::lock_guard<std::mutex> lock(mutex);
  if (current.empty() || current.back() != module->context) return kInvalidContext;
  if (live_modules.erase(module) == 0) return kInvalidHandle;
  return Log("unload"), kOk;
}
EXPORT int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return kNotFound;
  return *function = found->second, kOk;
}
EXPORT int cuFuncLoad(Function* function) { return function->is_loaded = true, kOk; }
EXPORT int cuFuncSetAttribute(Function* function, int attribute, int value) {
  std::lock_guard<std::mutex> lock(mutex);
  if (attribute == 8) {
    if (static_cast<unsigned>(value) > OptinLimit(function->module->context->device)) {
      return kInvalidValue;
    }
    function->shared_limit = static_cast<unsigned>(value);
  }
  return Log("set " + function->entry + " " + std::to_string(attribute) + " " +
             std::to_string(value)),
         kOk;
}

// The words of a map are its arguments in clear: tests compare them.
EXPORT int cuTensorMapEncodeTiled(uint64_t* map, int dtype, unsigned rank, void* address,
                                  const uint64_t* dims, const uint64_t* strides,
                                  const uint32_t* box, const uint32_t* steps, int interleave,
                                  int swizzle, int promotion, int fill) {
  const auto where = reinterpret_cast<uint64_t>(address);
  if (where % 16 || rank < 1 || rank > 5 || interleave || fill) return kInvalidValue;
  std::memset(map, 0, 128);
  map[0] = where;
  map[1] = static_cast<uint64_t>(dtype) | rank << 8 | swizzle << 16 | promotion << 24;
  for (unsigned i = 0; i < rank; ++i) {
    if (dims[i] == 0 || box[i] == 0 || box[i] > 256 || steps[i] == 0) return kInvalidValue;
    map[2 + i] = dims[i];
    map[11 + i] = box[i] | static_cast<uint64_t>(steps[i]) << 32;
    if (i == 0) continue;
    if (strides[i - 1] % 16) return kInvalidValue;
    map[6 + i] = strides[i - 1];
  }
  return kOk;
}

EXPORT int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** params,
                            void** extra) {
  std::lock_guard<std::mutex> lock(mutex);
  Stream* stream = config->stream;
  if (current.empty() || current.back() != stream->context) return kInvalidContext;
  if (live_modules.count(function->module) == 0) return kInvalidHandle;
  if (function->module->context != stream->context || extra != nullptr) return kInvalidHandle;
  if (!function->is_loaded || config->shared > function->shared_limit) return kInvalidValue;
  std::ostringstream line;
  line << "launch " << function->entry << " device " << stream->context->device;
  for (const unsigned* dim : {config->grid, config->block}) {
    line << " " << dim[0] << "x" << dim[1] << "x" << dim[2];
  }
  line << " shared " << config->shared;
  for (unsigned i = 0; i < config->count; ++i) {
    const unsigned* v = config->attributes[i].value;
    line << " attribute " << config->attributes[i].id << " " << v[0] << "x" << v[1] << "x" << v[2];
  }
  for (size_t i = 0; i < function->param_bytes.size(); ++i) {
    line << " " << Hex(params[i], function->param_bytes[i]);
  }
  if (stream->is_capturing) return stream->captured.push_back(line.str()), kOk;
  stream->clock_ms += kLaunchMs;
  return Log(line.str()), kOk;
}

EXPORT int cuStreamSynchronize(Stream*) { return kOk; }
EXPORT int cuStreamCreate(Stream** stream, unsigned) {
  if (current.empty()) return kInvalidContext;
  return *stream = new Stream(current.back()), kOk;
}
EXPORT int cuStreamDestroy_v2(Stream* stream) { return delete stream, kOk; }
EXPORT int cuStreamBeginCapture_v2(Stream* stream, int) {
  ++capturing_streams;
  return stream->is_capturing = true, kOk;
}
EXPORT int cuStreamEndCapture(Stream* stream, Graph** graph) {
  --capturing_streams;
  *graph = new Graph{stream->captured};
  stream->captured.clear();
  return stream->is_capturing = false, kOk;
}
EXPORT int cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
  return *executable = new Graph(*graph), kOk;
}
EXPORT int cuGraphLaunch(Graph* graph, Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const std::string& line : graph->launches) Log(line);
  stream->clock_ms += kLaunchMs * static_cast<float>(graph->launches.size());
  return kOk;
}
EXPORT int cuGraphExecDestroy(Graph* graph) { return delete graph, kOk; }
EXPORT int cuGraphDestroy(Graph* graph) { return delete graph, kOk; }
EXPORT int cuEventCreate(Event** event, unsigned) { return *event = new Event, kOk; }
EXPORT int cuEventRecord(Event* event, Stream* stream) { return event->ms = stream->clock_ms, kOk; }
EXPORT int cuEventSynchronize(Event*) { return kOk; }
EXPORT int cuEventElapsedTime(float* ms, Event* start, Event* stop) {
  return *ms = stop->ms - start->ms, kOk;
}
EXPORT int cuEventDestroy_v2(Event* event) { return delete event, kOk; }
