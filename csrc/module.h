// What module.cc exports, declared in one place.
#ifndef JAXPIPE_MODULE_H_
#define JAXPIPE_MODULE_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

namespace jaxpipe {

// (major, minor) of the FFI headers that this library was built with.
pybind11::tuple FfiApiVersion();

// Text of a recipe (recipe.h); ValueError with the reason when it cannot be read.
std::string DescribeRecipeWords(const std::vector<int64_t>& words, const std::string& names);

// What a zlib stream holds (inflate.h); ValueError when it is damaged.
pybind11::bytes Inflate(const pybind11::bytes& compressed, size_t limit_bytes);

// The cuda_* functions: the driver, its devices, launches and timing outside of XLA.
void DefineCuda(pybind11::module_& m);

// {target name: {"execute": capsule, ...}} of every handler in csrc/ffi.
pybind11::dict FfiTargets();

// What csrc/host sees of this CPU: {"cpu", "isas", "logical_cores", "l1d_bytes", ...}.
pybind11::dict HostInfo();

// Highest float32 FMA rate, in flops per second, of `threads` threads at once over about `seconds`.
// `isa`: one of host_info()["isas"], or "auto" for the best; ValueError names what exists.
double HostPeakFlops(double seconds, int threads, const std::string& isa);

}  // namespace jaxpipe

#endif  // JAXPIPE_MODULE_H_
