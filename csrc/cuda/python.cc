// The cuda_* functions of jaxpipe._native. Every one that calls the driver releases the GIL.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <utility>
#include <vector>

#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/launcher.h"
#include "cuda/module.h"
#include "cuda/timer.h"
#include "module.h"
#include "recipe.h"

namespace py = pybind11;

namespace jaxpipe {
namespace {

using Words = std::vector<int64_t>;
using PyBuffers = std::vector<std::pair<uint64_t, size_t>>;  // (address, bytes) of each
using PyCall = std::pair<PyBuffers, PyBuffers>;              // operands, results

// Raises RuntimeError from a Status.
void Raise(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

// Runs `body` (giving a Status) without the GIL, then raises its error.
template <typename Body>
void WithoutGil(Body body) {
  Status status;
  {
    py::gil_scoped_release release;
    status = body();
  }
  Raise(status);
}

std::vector<cuda::Buffer> ToBuffers(const PyBuffers& buffers) {
  std::vector<cuda::Buffer> converted;
  for (const auto& [address, bytes] : buffers) converted.push_back({address, bytes});
  return converted;
}

std::vector<cuda::CallBuffers> ToCalls(const std::vector<PyCall>& calls) {
  std::vector<cuda::CallBuffers> converted;
  for (const auto& [operands, results] : calls) {
    converted.push_back({ToBuffers(operands), ToBuffers(results)});
  }
  return converted;
}

std::pair<std::string, int> DriverInfo() {
  const cuda::Driver* driver = nullptr;
  WithoutGil([&] { return cuda::GetDriver(&driver); });
  return {driver->path, driver->version};
}

py::list Devices() {
  std::vector<cuda::DeviceInfo> devices;
  WithoutGil([&] {
    const cuda::Driver* driver;
    JAXPIPE_RETURN_IF_ERROR(cuda::GetDriver(&driver));
    return cuda::ListDevices(*driver, &devices);
  });
  py::list rows;
  for (const cuda::DeviceInfo& info : devices) {
    py::dict row;
    row["name"] = info.name;
    row["compute_capability"] = py::make_tuple(info.major, info.minor);
    row["sm_count"] = info.multiprocessors;
    row["l2_bytes"] = info.l2_bytes;
    row["shared_per_block_bytes"] = info.shared_per_block_optin_bytes;
    rows.append(row);
  }
  return rows;
}

int Unload() {
  int count = 0;
  WithoutGil([&] {
    const cuda::Driver* driver;
    JAXPIPE_RETURN_IF_ERROR(cuda::GetDriver(&driver));
    count = cuda::UnloadModules(*driver);
    return Status();
  });
  return count;
}

std::pair<int, int> Modules() {
  const cuda::ModuleCounts counts = cuda::CountModules();
  return {counts.loads, counts.live};
}

void Run(int device, const Words& words, const std::string& names, const std::string& key,
         const py::bytes& cubin, const std::vector<PyCall>& calls) {
  const std::string compressed = cubin;
  WithoutGil([&] {
    Recipe recipe;
    JAXPIPE_RETURN_IF_ERROR(DecodeRecipe(words.data(), words.size(), names, &recipe));
    return cuda::RunCalls(device, recipe, key, compressed, ToCalls(calls));
  });
}

std::vector<double> Time(int device, const Words& words, const std::string& names,
                         const std::string& key, const py::bytes& cubin,
                         const std::vector<PyCall>& calls, int launches, int samples) {
  const std::string compressed = cubin;
  std::vector<double> seconds;
  WithoutGil([&] {
    Recipe recipe;
    JAXPIPE_RETURN_IF_ERROR(DecodeRecipe(words.data(), words.size(), names, &recipe));
    return cuda::TimeCalls(device, recipe, key, compressed, ToCalls(calls), launches, samples,
                           &seconds);
  });
  return seconds;
}

}  // namespace

void DefineCuda(py::module_& m) {
  m.def(
      "cuda_set_driver", [](const std::string& path) { Raise(cuda::SetDriverPath(path)); },
      py::arg("path"));
  m.def("cuda_driver", &DriverInfo);
  m.def("cuda_devices", &Devices);
  m.def("cuda_modules", &Modules);
  m.def("cuda_unload", &Unload);
  m.def("cuda_run", &Run, py::arg("device"), py::arg("words"), py::arg("names"), py::arg("key"),
        py::arg("cubin"), py::arg("calls"));
  m.def("cuda_time", &Time, py::arg("device"), py::arg("words"), py::arg("names"), py::arg("key"),
        py::arg("cubin"), py::arg("calls"), py::arg("launches"), py::arg("samples"));
}

}  // namespace jaxpipe
