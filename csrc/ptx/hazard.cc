#include "ptx/hazard.h"

#include <utility>

namespace jaxpipe::ptx {
namespace {

struct Row {
  const char* name;
  bool fatal;
  const char* sentence;
};

constexpr Row kRows[] = {
#define X(enumerator, name, fatal, text) {name, fatal, text},
    JAXPIPE_PTX_HAZARDS(X)
#undef X
};

const Row& RowOf(HazardKind kind) { return kRows[static_cast<int>(kind)]; }

}  // namespace

const char* HazardName(HazardKind kind) { return RowOf(kind).name; }
const char* HazardSentence(HazardKind kind) { return RowOf(kind).sentence; }
bool IsFatal(HazardKind kind) { return RowOf(kind).fatal; }

void HazardLog::Add(Hazard hazard) {
  const auto key = std::make_tuple(static_cast<int32_t>(hazard.kind), hazard.pc, hazard.other_pc);
  const auto found = hazards_.find(key);
  if (found != hazards_.end()) {
    // Keep the earliest block, so that the report does not depend on the number of threads.
    const uint64_t count = found->second.count + hazard.count;
    if (hazard.block < found->second.block) found->second = std::move(hazard);
    found->second.count = count;
  } else if (hazards_.size() < kMaxDistinct) {
    hazards_.emplace(key, std::move(hazard));
  }
}

void HazardLog::Merge(const HazardLog& other) {
  for (const auto& entry : other.hazards_) Add(entry.second);
}

std::vector<Hazard> HazardLog::Sorted() const {
  std::vector<Hazard> sorted;
  for (const auto& entry : hazards_) sorted.push_back(entry.second);
  return sorted;
}

std::string DescribeHazard(const Program& program, const Hazard& hazard) {
  std::string text = std::string(HazardName(hazard.kind)) + ": " + HazardSentence(hazard.kind) +
                     ": " + DescribeInstruction(program, hazard.pc);
  if (hazard.other_pc >= 0) text += " against " + DescribeInstruction(program, hazard.other_pc);
  text += "; block " + std::to_string(hazard.block) + ", warp " + std::to_string(hazard.warp);
  if (hazard.lane >= 0) text += ", lane " + std::to_string(hazard.lane);
  if (!hazard.detail.empty()) text += "; " + hazard.detail;
  if (hazard.count > 1) text += "; " + std::to_string(hazard.count) + " times";
  return text;
}

}  // namespace jaxpipe::ptx
