#include "host/cpu.h"

#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "host/kernels.h"

namespace jaxpipe::host {
namespace {

const char kCacheDir[] = "/sys/devices/system/cpu/cpu0/cache/index";

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32K" or "32768K" or "2M" in bytes; 0 for anything else.
int64_t ParseSize(const std::string& text) {
  std::istringstream stream(text);
  int64_t value = 0;
  char unit = 0;
  stream >> value >> unit;
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

// "0-1,4" names 3 cores.
int CountCores(const std::string& list) {
  std::istringstream stream(list);
  std::string part;
  int count = 0;
  while (std::getline(stream, part, ',')) {
    int first = 0, last = 0;
    const size_t dash = part.find('-');
    first = std::atoi(part.c_str());
    last = dash == std::string::npos ? first : std::atoi(part.c_str() + dash + 1);
    count += last - first + 1;
  }
  return count > 0 ? count : 1;
}

void ReadCaches(CpuInfo* info) {
  for (int index = 0; index < 8; ++index) {
    const std::string dir = kCacheDir + std::to_string(index) + "/";
    const std::string level = ReadLine(dir + "level"), type = ReadLine(dir + "type");
    const int64_t bytes = ParseSize(ReadLine(dir + "size"));
    if (bytes == 0 || type == "Instruction") continue;
    if (level == "1") info->l1d_bytes = bytes;
    if (level == "2") info->l2_bytes = bytes;
    if (level == "3") {
      info->l3_bytes = bytes;
      info->l3_sharers = CountCores(ReadLine(dir + "shared_cpu_list"));
    }
  }
}

std::string ModelName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    return colon == std::string::npos ? line : line.substr(line.find_first_not_of(' ', colon + 1));
  }
  return "unknown";
}

CpuInfo Detect() {
  CpuInfo info;
  info.name = ModelName();
  info.logical_cores = static_cast<int>(std::thread::hardware_concurrency());
  if (info.logical_cores < 1) info.logical_cores = 1;
  ReadCaches(&info);
  return info;
}

bool Runs(const std::string& isa) {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (isa == "avx2") return avx2;
  if (isa == "avx512") return avx512;
  if (isa == "avx512_bf16") return avx512 && __builtin_cpu_supports("avx512bf16");
#endif
  return isa == "portable";
}

struct Candidate {
  const char* isa;
  const Kernels* (*kernels)();
};
constexpr Candidate kCandidates[] = {
    {"avx512_bf16", &Avx512Bf16Kernels},
    {"avx512", &Avx512Kernels},
    {"avx2", &Avx2Kernels},
    {"portable", &PortableKernels},
};

// Intel's cores start vdpbf16ps once where they start four FMAs: half of their float32 rate. AMD's
// start as many of both.
bool MultipliesBf16Slowly() {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

// Fastest first.
std::vector<std::string> FindUsable() {
  std::vector<std::string> usable;
  for (const Candidate& candidate : kCandidates) {
    if (Runs(candidate.isa) && candidate.kernels() != nullptr) usable.push_back(candidate.isa);
  }
  if (usable.front() == "avx512_bf16" && MultipliesBf16Slowly()) std::swap(usable[0], usable[1]);
  return usable;
}

}  // namespace

const CpuInfo& ThisCpu() {
  static const CpuInfo info = Detect();
  return info;
}

const std::vector<std::string>& UsableIsas() {
  static const std::vector<std::string> usable = FindUsable();
  return usable;
}

const Kernels* KernelsNamed(const char* isa) {
  for (const Candidate& candidate : kCandidates) {
    if (std::string(isa) == candidate.isa && Runs(isa)) return candidate.kernels();
  }
  return nullptr;
}

const Kernels* BestKernels() {
  static const Kernels* best = KernelsNamed(UsableIsas().front().c_str());
  return best;
}

}  // namespace jaxpipe::host
