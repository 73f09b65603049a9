// Divergence of one warp: which lanes run next, and where they go.
#include <algorithm>

#include "ptx/machine.h"

namespace jaxpipe::ptx {

uint32_t Warp::SelectGroup(uint32_t* group_pc) {
  if (uniform) {
    *group_pc = pc;
    return converging == 0 && asleep == 0 && yielded == 0 ? live : 0;
  }
  // The lowest pc first: lanes behind catch up with lanes that wait at a point of convergence.
  const uint32_t runnable = live & ~converging & ~asleep & ~yielded;
  if (runnable == 0) return 0;
  uint32_t lowest = UINT32_MAX;
  ForLanes(runnable, [&](int lane) { lowest = std::min(lowest, lane_pc[lane]); });
  uint32_t group = 0;
  ForLanes(live & ~asleep & ~yielded, [&](int lane) {
    if (lane_pc[lane] == lowest) group |= 1u << lane;
  });
  if (group == live) {
    uniform = true;
    pc = lowest;
    converging = 0;
  }
  *group_pc = lowest;
  return group;
}

void Warp::Diverge() {
  if (!uniform) return;
  uniform = false;
  std::fill(lane_pc, lane_pc + kLanes, pc);
}

void Warp::Advance(uint32_t lanes, uint32_t next_pc) {
  if (uniform && lanes == live) {
    pc = next_pc;
    return;
  }
  Diverge();
  ForLanes(lanes, [&](int lane) { lane_pc[lane] = next_pc; });
}

void Warp::Branch(uint32_t taken, uint32_t not_taken, uint32_t target, uint32_t next_pc) {
  if (not_taken == 0) return Advance(taken, target);
  if (taken == 0) return Advance(not_taken, next_pc);
  Diverge();
  Advance(taken, target);
  Advance(not_taken, next_pc);
}

}  // namespace jaxpipe::ptx
