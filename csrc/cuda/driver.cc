#include "cuda/driver.h"

#include <dlfcn.h>

#include <mutex>

namespace jaxpipe::cuda {
namespace {

// What the process knows of its driver. Never destroyed: handlers may run while it exits.
struct Opened {
  std::mutex mutex;
  std::string path;
  bool is_open = false;
  Status status;
  Driver driver;
};

Opened& TheDriver() {
  static Opened* opened = new Opened;
  return *opened;
}

template <typename Function>
bool Resolve(void* library, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  return *function != nullptr;
}

Status Open(const std::string& path, Driver* driver) {
  driver->path = path.empty() ? "libcuda.so.1" : path;
  void* library = dlopen(driver->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable("no CUDA driver: " + std::string(dlerror()) +
                       "; install the NVIDIA driver, or name its library in JAXPIPE_LIBCUDA");
  }
#define JAXPIPE_CUDA_RESOLVE(member, symbol, parameters)                                  \
  if (!Resolve(library, symbol, &driver->member)) {                                       \
    return Unavailable(driver->path + " has no " symbol                                   \
                                      ": jaxpipe needs a driver for CUDA 12.0 or later"); \
  }
  JAXPIPE_CUDA_REQUIRED(JAXPIPE_CUDA_RESOLVE)
#undef JAXPIPE_CUDA_RESOLVE
#define JAXPIPE_CUDA_RESOLVE(member, symbol, parameters) Resolve(library, symbol, &driver->member);
  JAXPIPE_CUDA_OPTIONAL(JAXPIPE_CUDA_RESOLVE)
#undef JAXPIPE_CUDA_RESOLVE
  JAXPIPE_RETURN_IF_ERROR(Check(*driver, driver->Init(0), "cuInit", driver->path));
  return Check(*driver, driver->DriverGetVersion(&driver->version), "cuDriverGetVersion",
               driver->path);
}

}  // namespace

Status SetDriverPath(const std::string& path) {
  Opened& opened = TheDriver();
  std::lock_guard<std::mutex> lock(opened.mutex);
  if (opened.is_open && path != opened.path) {
    return FailedPrecondition("the CUDA driver is already open from " + opened.driver.path +
                              ", it cannot change to '" + path + "': set JAXPIPE_LIBCUDA earlier");
  }
  opened.path = path;
  return Status();
}

Status GetDriver(const Driver** driver) {
  Opened& opened = TheDriver();
  std::lock_guard<std::mutex> lock(opened.mutex);
  if (!opened.is_open) {
    opened.status = Open(opened.path, &opened.driver);
    opened.is_open = true;
  }
  *driver = &opened.driver;
  return opened.status;
}

Status Check(const Driver& driver, CUresult result, const char* call, const std::string& context) {
  if (result == kSuccess) return Status();
  const char* name = nullptr;
  if (driver.GetErrorName(result, &name) != kSuccess || name == nullptr) name = "unknown error";
  return Internal(std::string(call) + " failed: " + name + " (" + std::to_string(result) + "); " +
                  context);
}

ScopedContext::ScopedContext(const Driver& driver, CUcontext context) : driver_(driver) {
  status_ = Check(driver, driver.CtxPushCurrent(context), "cuCtxPushCurrent", "");
}

ScopedContext::~ScopedContext() {
  CUcontext popped;
  if (status_.ok()) (void)driver_.CtxPopCurrent(&popped);
}

}  // namespace jaxpipe::cuda
