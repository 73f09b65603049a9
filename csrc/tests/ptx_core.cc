// Checks of the interpreter's core without PTX: the shadow's rules, banks and sectors, swizzles.
//
// Prints a line a check, "ok NAME" or "FAILED NAME: ..."; tests/ptx/test_core.py builds and runs
// it.
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "ptx/counters.h"
#include "ptx/descriptor.h"
#include "ptx/hazard.h"
#include "ptx/shadow.h"
#include "ptx/tensor_map.h"

namespace jaxpipe::ptx {
namespace {

constexpr int kWarps = 2, kReaders = 3, kActors = 4;  // two warps, a warpgroup, an mbarrier
constexpr int kGroup = 2, kMbarrier = 3;

// A block of 256 bytes, the clocks of its actors, and what was found.
struct Bench {
  std::vector<uint8_t> memory = std::vector<uint8_t>(256, 0);
  HazardLog log;
  Shadow shadow;
  ClockSet clocks[kActors];

  Bench() {
    shadow.Reset(256, kWarps, kReaders, memory.data(), &log);
    for (int i = 0; i < kActors; ++i) {
      clocks[i].Reset(kActors);
      clocks[i].seen[i] = 1;
    }
  }
  Accessor Who(int warp, int lane = kWholeWarp, uint32_t epoch = 0) {
    return {warp, &clocks[warp], 10 + warp, lane, epoch, 0, warp};
  }
  // As at a barrier: everybody knows what everybody did, and goes on at a new clock.
  void Barrier() {
    for (int i = 0; i < kWarps; ++i)
      for (int k = 0; k < kWarps; ++k) clocks[i].Join(clocks[k]);
    for (int i = 0; i < kWarps; ++i) clocks[i].seen[i]++;
  }
  void Write(int warp, uint32_t at, uint32_t size, const std::vector<uint8_t>& data = {}) {
    shadow.Write(Who(warp), at, size, data.empty() ? nullptr : data.data());
    if (!data.empty()) std::memcpy(&memory[at], data.data(), size);
  }
  std::string Found() const {
    std::string names;
    for (const Hazard& hazard : log.Sorted())
      names += (names.empty() ? "" : " ") + std::string(HazardName(hazard.kind));
    return names;
  }
};

void Check(const std::string& name, const std::string& got, const std::string& wanted) {
  if (got == wanted)
    std::cout << "ok " << name << "\n";
  else
    std::cout << "FAILED " << name << ": got '" << got << "', wanted '" << wanted << "'\n";
}

void CheckShadow(const std::string& name, const std::string& wanted,
                 const std::function<void(Bench&)>& act) {
  Bench bench;
  act(bench);
  Check(name, bench.Found(), wanted);
}

void Shadows() {
  CheckShadow("own write, then read", "", [](Bench& b) {
    b.Write(0, 0, 4);
    b.shadow.Read(b.Who(0), 0, 4);
  });
  CheckShadow("read of nothing", "unwritten-shared",
              [](Bench& b) { b.shadow.Read(b.Who(0), 0, 4); });
  CheckShadow("read without a barrier", "read-race", [](Bench& b) {
    b.Write(0, 0, 4);
    b.shadow.Read(b.Who(1), 0, 4);
  });
  CheckShadow("read behind a barrier", "", [](Bench& b) {
    b.Write(0, 0, 4);
    b.Barrier();
    b.shadow.Read(b.Who(1), 0, 4);
  });
  CheckShadow("halves of a word by two warps", "", [](Bench& b) {
    b.Write(0, 0, 2);
    b.Write(1, 2, 2);
  });
  CheckShadow("a word inside a granule of another warp", "write-race", [](Bench& b) {
    b.Write(0, 0, 16);
    b.Write(1, 4, 4);
  });
  CheckShadow("the same bytes twice", "", [](Bench& b) {
    b.Write(0, 0, 4, {1, 2, 3, 4});
    b.Write(1, 0, 4, {1, 2, 3, 4});
  });
  CheckShadow("other bytes", "write-race", [](Bench& b) {
    b.Write(0, 0, 4, {1, 2, 3, 4});
    b.Write(1, 0, 4, {1, 2, 3, 5});
  });
  CheckShadow("overwritten while read", "overwrite-race", [](Bench& b) {
    b.Write(0, 0, 4);
    b.Barrier();
    b.shadow.Read(b.Who(1), 0, 4);
    b.Write(0, 0, 4);
  });
  CheckShadow("another lane without a sync", "lane-race", [](Bench& b) {
    b.shadow.Write(b.Who(0, 3), 0, 4, nullptr);
    b.shadow.Read(b.Who(0, 4), 0, 4);
  });
  CheckShadow("another lane behind a sync", "", [](Bench& b) {
    b.shadow.Write(b.Who(0, 3), 0, 4, nullptr);
    b.shadow.Read(b.Who(0, 4, 1), 0, 4);
  });
  CheckShadow("a copy in flight", "read-pending overwrite-pending", [](Bench& b) {
    b.shadow.IssueCopy(b.Who(0), 0, 16, false);
    b.shadow.Read(b.Who(0), 0, 16);
    b.Write(0, 8, 4);
  });
  CheckShadow("a copy that landed", "", [](Bench& b) {
    b.shadow.IssueCopy(b.Who(0), 0, 16, false);
    b.shadow.LandCopy({0, b.clocks[0].seen[0], 10, kWholeWarp, 0, true}, 0, 16);
    b.shadow.Read(b.Who(0), 0, 16);
  });
  CheckShadow("a bulk copy, phase not waited for", "read-race", [](Bench& b) {
    b.shadow.IssueCopy(b.Who(0), 0, 16, true);
    b.shadow.LandCopy({kMbarrier, 1, 10, kWholeWarp, 0, false}, 0, 16);
    b.shadow.Read(b.Who(1), 0, 16);
  });
  CheckShadow("a bulk copy, phase waited for", "", [](Bench& b) {
    b.shadow.IssueCopy(b.Who(0), 0, 16, true);
    b.shadow.LandCopy({kMbarrier, 1, 10, kWholeWarp, 0, false}, 0, 16);
    b.clocks[1].seen[kMbarrier] = 1;
    b.shadow.Read(b.Who(1), 0, 16);
  });
  CheckShadow("an async read without the proxy fence", "proxy-fence", [](Bench& b) {
    b.Write(0, 0, 16);
    b.shadow.AsyncRead(b.Who(0), kGroup, 1, 0, 16);
  });
  CheckShadow("an async read behind the proxy fence", "", [](Bench& b) {
    b.Write(0, 0, 16);
    JoinInto(b.clocks[0].fenced, b.clocks[0].seen);
    b.shadow.AsyncRead(b.Who(0), kGroup, 1, 0, 16);
  });
  CheckShadow("overwritten while wgmma reads", "overwrite-async-read", [](Bench& b) {
    b.Write(0, 0, 16);
    JoinInto(b.clocks[0].fenced, b.clocks[0].seen);
    b.shadow.AsyncRead(b.Who(0), kGroup, 1, 0, 16);
    b.Write(0, 0, 4);
  });
  CheckShadow("overwritten after wgmma was waited for", "", [](Bench& b) {
    b.Write(0, 0, 16);
    JoinInto(b.clocks[0].fenced, b.clocks[0].seen);
    b.shadow.AsyncRead(b.Who(0), kGroup, 1, 0, 16);
    b.clocks[0].seen[kGroup] = 1;
    b.Write(0, 0, 4);
  });
  CheckShadow("a store over an mbarrier", "mbarrier-in-use", [](Bench& b) {
    b.shadow.SetObject(8, 8, true);
    b.Write(0, 12, 4);
  });
}

// "wavefronts of ideal ones" of one access with the addresses of `at`.
std::string Banks(int size, const std::function<uint32_t(int)>& at) {
  uint32_t addresses[32];
  for (int lane = 0; lane < 32; ++lane) addresses[lane] = at(lane);
  Counters counters;
  CountShared(counters, addresses, ~0u, size);
  return std::to_string(counters.shared_wavefronts) + " of " +
         std::to_string(counters.ideal_wavefronts);
}

std::string Sectors(int size, const std::function<uint64_t(int)>& at) {
  uint64_t addresses[32];
  for (int lane = 0; lane < 32; ++lane) addresses[lane] = at(lane);
  Counters counters;
  CountGlobal(counters, addresses, ~0u, size);
  return std::to_string(counters.global_sectors);
}

void Counts() {
  Check("words in a row", Banks(4, [](int l) { return 4 * l; }), "1 of 1");
  Check("every other word", Banks(4, [](int l) { return 8 * l; }), "2 of 1");
  Check("one bank", Banks(4, [](int l) { return 128 * l; }), "32 of 1");
  Check("one word", Banks(4, [](int) { return 64; }), "1 of 1");
  Check("chunks in a row", Banks(16, [](int l) { return 16 * l; }), "4 of 4");
  Check("chunks 128 bytes apart", Banks(16, [](int l) { return 128 * l; }), "32 of 4");
  Check("chunks swizzled", Banks(16, [](int l) { return Swizzle(128 * l, 128); }), "4 of 4");
  Check("pairs in a row", Banks(8, [](int l) { return 8 * l; }), "2 of 2");
  Check("sectors of a line", Sectors(4, [](int l) { return 4 * l; }), "4");
  Check("sectors off the line", Sectors(4, [](int l) { return 4 * l + 4; }), "5");
  Check("sectors of 32 rows", Sectors(16, [](int l) { return 4096 * l; }), "32");
}

void Addresses() {
  Check("128-byte swizzle", std::to_string(Swizzle(5 * 128 + 32, 128)), "752");
  Check("64-byte swizzle", std::to_string(Swizzle(3 * 128, 64)), "432");
  const MatrixDescriptor descriptor(uint64_t{1024 >> 4} | uint64_t{1024 >> 4} << 32 | 1ull << 62);
  Check("K-major row 9", std::to_string(descriptor.KMajor(9, 1)), "2176");
  Check("descriptor", descriptor.Check(false), "");
}

}  // namespace
}  // namespace jaxpipe::ptx

int main() {
  jaxpipe::ptx::Shadows();
  jaxpipe::ptx::Counts();
  jaxpipe::ptx::Addresses();
  return 0;
}
