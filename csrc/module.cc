// The only list of what `jaxpipe._native` exports. Each directory fills its own part.
#include <pybind11/pybind11.h>

#include "module.h"

PYBIND11_MODULE(_native, m) {
  m.doc() = "jaxpipe's compiled half: host kernels, the PTX interpreter, the CUDA launcher.";
  m.attr("FFI_API_VERSION") = jaxpipe::FfiApiVersion();
  // FFI targets: name -> {stage -> capsule}; runtime/targets.py registers them.
  m.def("ffi_targets", &jaxpipe::FfiTargets);
}
