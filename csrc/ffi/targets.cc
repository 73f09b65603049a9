// The table of FFI handlers. A handler file declares its symbol here and nowhere else.
#include <pybind11/pybind11.h>

#include "module.h"
#include "xla/ffi/api/c_api.h"

extern "C" {
XLA_FFI_Error* JaxpipeCudaLaunchInstantiate(XLA_FFI_CallFrame*);
XLA_FFI_Error* JaxpipeCudaLaunchInitialize(XLA_FFI_CallFrame*);
XLA_FFI_Error* JaxpipeCudaLaunchExecute(XLA_FFI_CallFrame*);
}

namespace jaxpipe {

extern "C" XLA_FFI_Error* HostGemmHandler(XLA_FFI_CallFrame*);
extern "C" XLA_FFI_Error* InterpretHandler(XLA_FFI_CallFrame*);

namespace {

// pybind11::capsule Handler(XLA_FFI_Handler* symbol): what jax.ffi.register_ffi_target takes.
pybind11::capsule Handler(XLA_FFI_Error* (*symbol)(XLA_FFI_CallFrame*)) {
  return pybind11::capsule(reinterpret_cast<void*>(symbol), "xla._CUSTOM_CALL_TARGET");
}

}  // namespace

pybind11::tuple FfiApiVersion() {
  return pybind11::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
}

pybind11::dict FfiTargets() {
  pybind11::dict targets;
  targets["jaxpipe_host_gemm"] =
      pybind11::dict(pybind11::arg("execute") = Handler(HostGemmHandler));
  targets["jaxpipe_cuda_launch"] =
      pybind11::dict(pybind11::arg("instantiate") = Handler(JaxpipeCudaLaunchInstantiate),
                     pybind11::arg("initialize") = Handler(JaxpipeCudaLaunchInitialize),
                     pybind11::arg("execute") = Handler(JaxpipeCudaLaunchExecute));
  targets["jaxpipe_interpret_launch"] =
      pybind11::dict(pybind11::arg("execute") = Handler(InterpretHandler));
  return targets;
}

}  // namespace jaxpipe
