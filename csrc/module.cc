// The only list of what `jaxpipe._native` exports. Each directory fills its own part.
#include "module.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "inflate.h"
#include "ptx/bindings.h"
#include "recipe.h"

namespace jaxpipe {

std::string DescribeRecipeWords(const std::vector<int64_t>& words, const std::string& names) {
  Recipe recipe;
  const Status status = DecodeRecipe(words.data(), words.size(), names, &recipe);
  if (!status.ok()) throw pybind11::value_error(status.message());
  return DescribeRecipe(recipe);
}

pybind11::bytes Inflate(const pybind11::bytes& compressed, size_t limit_bytes) {
  std::string output;
  const Status status = InflateZlib(std::string_view(compressed), limit_bytes, &output);
  if (!status.ok()) throw pybind11::value_error(status.message());
  return output;
}

}  // namespace jaxpipe

PYBIND11_MODULE(_native, m) {
  m.doc() = "jaxpipe's compiled half: host kernels, the PTX interpreter, the CUDA launcher.";
  m.attr("FFI_API_VERSION") = jaxpipe::FfiApiVersion();
  // FFI targets: name -> {stage -> capsule}; runtime/targets.py registers them.
  m.def("ffi_targets", &jaxpipe::FfiTargets);
  m.def("describe_recipe", &jaxpipe::DescribeRecipeWords, pybind11::arg("words"),
        pybind11::arg("names"));
  m.def("host_info", &jaxpipe::HostInfo);
  m.def("host_peak_flops", &jaxpipe::HostPeakFlops, pybind11::arg("seconds") = 0.2,
        pybind11::arg("threads") = 1, pybind11::arg("isa") = "auto");
  m.def("inflate", &jaxpipe::Inflate, pybind11::arg("compressed"), pybind11::arg("limit_bytes"));
  jaxpipe::DefineCuda(m);
  jaxpipe::ptx::Bind(m);
}
