// What the interpreter exports to Python.
#ifndef JAXPIPE_PTX_BINDINGS_H_
#define JAXPIPE_PTX_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace jaxpipe::ptx {

// Adds PtxProgram and ptx_operations to the module.
void Bind(pybind11::module_& module);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_BINDINGS_H_
