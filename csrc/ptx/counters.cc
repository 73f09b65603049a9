#include "ptx/counters.h"

#include <algorithm>

#include "ptx/lanes.h"

namespace jaxpipe::ptx {
namespace {

constexpr int kBanks = 32;
constexpr int kBankBytes = 4;
constexpr int kSectorBytes = 32;

// The passes that one group of lanes needs: the most distinct words that fall on one bank.
int Wavefronts(const uint32_t* addresses, uint32_t mask, int unit) {
  const uint32_t banks = kBanks * kBankBytes / unit;
  uint32_t words[kLanes];
  uint8_t per_bank[kBanks] = {};
  int distinct = 0;
  int most = 0;
  ForLanes(mask, [&](int lane) {
    const uint32_t word = addresses[lane] / unit;
    for (int i = distinct - 1; i >= 0; --i)
      if (words[i] == word) return;
    words[distinct++] = word;
    most = std::max<int>(most, ++per_bank[word % banks]);
  });
  return most;
}

}  // namespace

void Counters::Add(const Counters& other) {
  executions += other.executions;
  lanes += other.lanes;
  shared_requests += other.shared_requests;
  shared_wavefronts += other.shared_wavefronts;
  ideal_wavefronts += other.ideal_wavefronts;
  shared_bytes += other.shared_bytes;
  global_requests += other.global_requests;
  global_sectors += other.global_sectors;
  global_bytes += other.global_bytes;
}

void CountShared(Counters& counters, const uint32_t* addresses, uint32_t mask, int size) {
  const int unit = std::max(size, kBankBytes);
  const int group = kBanks * kBankBytes / unit;
  counters.shared_requests++;
  counters.shared_bytes += static_cast<uint64_t>(size) * __builtin_popcount(mask);
  for (int first = 0; first < kLanes; first += group) {
    const uint32_t lanes = group == kLanes ? mask : mask & (((1u << group) - 1) << first);
    if (lanes == 0) continue;
    counters.shared_wavefronts += Wavefronts(addresses, lanes, unit);
    counters.ideal_wavefronts++;
  }
}

void CountGlobal(Counters& counters, const uint64_t* addresses, uint32_t mask, int size) {
  uint64_t sectors[2 * kLanes];
  int distinct = 0;
  ForLanes(mask, [&](int lane) {
    const uint64_t last = (addresses[lane] + size - 1) / kSectorBytes;
    for (uint64_t sector = addresses[lane] / kSectorBytes; sector <= last; ++sector) {
      int i = distinct - 1;
      while (i >= 0 && sectors[i] != sector) --i;
      if (i < 0) sectors[distinct++] = sector;
    }
  });
  counters.global_requests++;
  counters.global_sectors += distinct;
  counters.global_bytes += static_cast<uint64_t>(size) * __builtin_popcount(mask);
}

}  // namespace jaxpipe::ptx
