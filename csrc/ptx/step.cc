// What handlers use of a step: operands, who accesses, reports.
#include "ptx/machine.h"

namespace jaxpipe::ptx {

const uint32_t* Step::Operand(int32_t operand) const {
  if (operand >= 0) return &warp.registers[static_cast<size_t>(operand) * kLanes];
  return &cluster.constants[static_cast<size_t>(~operand) * 2 * kLanes];
}

int32_t Step::ListAt(int i) const { return cluster.program.lists[ins.list + i]; }

uint32_t Step::PredicateOperand() const {
  if (ins.psrc == kNone) return kAllLanes;
  const uint32_t value = warp.predicates[ins.psrc];
  return (ins.flags & kPsrcNegated) != 0 ? ~value : value;
}

uint64_t Step::SrcAsU64(int i, int lane, bool wide) const {
  const uint32_t* source = Src(i);
  return wide ? Get<uint64_t>(source, lane) : source[lane];
}

Accessor Step::Who(int32_t lane) const {
  return Accessor{warp.actor, &warp.clocks, pc, lane, warp.lane_epoch, cta.block, warp.index};
}

bool Step::checks() const { return cluster.launch.check; }

Counters& Step::counters() const { return cluster.counters[pc]; }

void Step::Report(HazardKind kind, int lane, uint64_t address, std::string detail,
                  int32_t other_pc) const {
  cluster.log.Add({kind, pc, other_pc, cta.block, warp.index, lane, address, 1, std::move(detail)});
}

Flow Step::Fault(HazardKind kind, int lane, uint64_t address, std::string detail,
                 int32_t other_pc) const {
  cluster.Stop({kind, pc, other_pc, cta.block, warp.index, lane, address, 1, std::move(detail)});
  return Flow::kStop;
}

}  // namespace jaxpipe::ptx
