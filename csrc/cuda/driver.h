// The CUDA driver, opened at first use. Nothing links libcuda: these declarations restate the few
// entry points and structs that jaxpipe calls (CUDA driver API 12.0 and later), so that one
// library builds and imports on every machine.
#ifndef JAXPIPE_CUDA_DRIVER_H_
#define JAXPIPE_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "status.h"

namespace jaxpipe::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;  // NOLINT(runtime/int): the driver's own type
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kErrorNotFound = 500;

// CUdevice_attribute
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kL2CacheBytes = 38;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
inline constexpr int kMaxSharedPerBlockOptin = 97;
// CUfunction_attribute
inline constexpr int kMaxDynamicSharedBytes = 8;
inline constexpr int kNonPortableClusterAllowed = 14;
// CUjit_option
inline constexpr int kJitErrorLogBuffer = 5;
inline constexpr int kJitErrorLogBufferBytes = 6;
// CUlaunchAttributeID
inline constexpr int kClusterDimension = 4;

// CUtensorMap: opaque to everybody but the driver and the copy engine.
struct alignas(64) TensorMap {
  uint64_t words[16];
};
static_assert(sizeof(TensorMap) == 128);

// CUlaunchAttribute: an id, and a 64-byte union of which only the cluster dimension is used here.
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);

// CUlaunchConfig
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

// X(member, symbol, parameters): every entry point that must exist.
#define JAXPIPE_CUDA_REQUIRED(X)                                                                  \
  X(Init, "cuInit", (unsigned))                                                                   \
  X(DriverGetVersion, "cuDriverGetVersion", (int*))                                               \
  X(GetErrorName, "cuGetErrorName", (CUresult, const char**))                                     \
  X(DeviceGetCount, "cuDeviceGetCount", (int*))                                                   \
  X(DeviceGet, "cuDeviceGet", (CUdevice*, int))                                                   \
  X(DeviceGetName, "cuDeviceGetName", (char*, int, CUdevice))                                     \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", (int*, int, CUdevice))                            \
  X(CtxGetDevice, "cuCtxGetDevice", (CUdevice*))                                                  \
  X(CtxGetCurrent, "cuCtxGetCurrent", (CUcontext*))                                               \
  X(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                           \
  X(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext*))                                            \
  X(StreamGetCtx, "cuStreamGetCtx", (CUstream, CUcontext*))                                       \
  X(ModuleLoadDataEx, "cuModuleLoadDataEx", (CUmodule*, const void*, unsigned, int*, void**))     \
  X(ModuleUnload, "cuModuleUnload", (CUmodule))                                                   \
  X(ModuleGetFunction, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))               \
  X(FuncSetAttribute, "cuFuncSetAttribute", (CUfunction, int, int))                               \
  X(LaunchKernelEx, "cuLaunchKernelEx", (const LaunchConfig*, CUfunction, void**, void**))        \
  X(TensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                               \
    (TensorMap*, int, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*,         \
     const uint32_t*, int, int, int, int))                                                        \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                   \
  X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                          \
  X(StreamSynchronize, "cuStreamSynchronize", (CUstream))                                         \
  X(StreamCreate, "cuStreamCreate", (CUstream*, unsigned))                                        \
  X(StreamDestroy, "cuStreamDestroy_v2", (CUstream))                                              \
  X(StreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int))                               \
  X(StreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph*))                                 \
  X(GraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec*, CUgraph, unsigned long long)) \
  X(GraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))                                        \
  X(GraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec))                                        \
  X(GraphDestroy, "cuGraphDestroy", (CUgraph))                                                    \
  X(EventCreate, "cuEventCreate", (CUevent*, unsigned))                                           \
  X(EventRecord, "cuEventRecord", (CUevent, CUstream))                                            \
  X(EventSynchronize, "cuEventSynchronize", (CUevent))                                            \
  X(EventElapsedTime, "cuEventElapsedTime", (float*, CUevent, CUevent))                           \
  X(EventDestroy, "cuEventDestroy_v2", (CUevent))

// Entry points of newer drivers; null where the driver lacks them.
#define JAXPIPE_CUDA_OPTIONAL(X)                                     \
  X(CtxGetId, "cuCtxGetId", (CUcontext, unsigned long long*)) /*12*/ \
  X(FuncLoad, "cuFuncLoad", (CUfunction))                     /*12.4*/

struct Driver {
#define JAXPIPE_CUDA_MEMBER(member, symbol, parameters) CUresult(*member) parameters = nullptr;
  JAXPIPE_CUDA_REQUIRED(JAXPIPE_CUDA_MEMBER)
  JAXPIPE_CUDA_OPTIONAL(JAXPIPE_CUDA_MEMBER)
#undef JAXPIPE_CUDA_MEMBER
  std::string path;
  int version = 0;  // 1000 * major + 10 * minor
};

// Names the library for the first GetDriver; "" is the loader's own search (libcuda.so.1).
// Later calls with another path are refused: a process has one driver.
Status SetDriverPath(const std::string& path);

// Opens the driver once a process; the same answer ever after.
Status GetDriver(const Driver** driver);

// OK, or `call failed: CUDA_ERROR_X; context`.
Status Check(const Driver& driver, CUresult result, const char* call, const std::string& context);

// Makes `context` current for a scope.
class ScopedContext {
 public:
  ScopedContext(const Driver& driver, CUcontext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  Status status_;
};

}  // namespace jaxpipe::cuda

#endif  // JAXPIPE_CUDA_DRIVER_H_
