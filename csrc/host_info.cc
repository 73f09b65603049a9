// The host half of module.h: facts about this CPU, measured and read.
#include <pybind11/stl.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "host/cpu.h"
#include "host/kernels.h"
#include "module.h"

namespace jaxpipe {
namespace {

using Clock = std::chrono::steady_clock;

// Best rate of one thread over about `seconds`, in bursts of about a millisecond.
double BestRate(const host::Kernels& kernels, double seconds) {
  constexpr int64_t kIterations = 100'000;
  double best = 0.0;
  const Clock::time_point start = Clock::now();
  for (Clock::time_point now = start;
       std::chrono::duration<double>(now - start).count() < seconds;) {
    const double flops = kernels.fma_burst(kIterations);
    const Clock::time_point end = Clock::now();
    const double rate = flops / std::chrono::duration<double>(end - now).count();
    if (rate > best) best = rate;
    now = end;
  }
  return best;
}

const host::Kernels* KernelsOrThrow(const std::string& isa) {
  const host::Kernels* kernels =
      isa == "auto" ? host::BestKernels() : host::KernelsNamed(isa.c_str());
  if (kernels != nullptr) return kernels;
  std::string message = "isa '" + isa + "' is not usable here: use auto";
  for (const std::string& usable : host::UsableIsas()) message += ", " + usable;
  throw pybind11::value_error(message);
}

}  // namespace

pybind11::dict HostInfo() {
  const host::CpuInfo& cpu = host::ThisCpu();
  const host::Kernels& best = *host::BestKernels();
  pybind11::dict info;
  info["cpu"] = cpu.name;
  info["isas"] = host::UsableIsas();
  info["logical_cores"] = cpu.logical_cores;
  info["l1d_bytes"] = cpu.l1d_bytes;
  info["l2_bytes"] = cpu.l2_bytes;
  info["l3_bytes"] = cpu.l3_bytes;
  info["l3_sharers"] = cpu.l3_sharers;
  info["lanes"] = best.lanes;
  info["panel_cols"] = best.panel_cols;
  info["tile_rows"] = best.tile_rows;
  info["stream_rows"] = best.stream_rows;
  info["has_bf16"] = best.has_bf16;
  return info;
}

double HostPeakFlops(double seconds, int threads, const std::string& isa) {
  const host::Kernels* kernels = KernelsOrThrow(isa);
  if (threads < 1) throw pybind11::value_error("threads must be at least 1");
  pybind11::gil_scoped_release release;
  std::vector<double> rates(threads, 0.0);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&, t] { rates[t] = BestRate(*kernels, seconds); });
  }
  rates[0] = BestRate(*kernels, seconds);
  for (std::thread& other : others) other.join();
  double sum = 0.0;
  for (double rate : rates) sum += rate;
  return sum;
}

}  // namespace jaxpipe
