// Vector clocks: what has happened before what, between the actors of a cluster.
//
// Actors are warps, then warpgroups (as readers on behalf of wgmma), then mbarriers (as writers on
// behalf of bulk copies). `seen[a] >= c` means: the holder is ordered after event c of actor a.
#ifndef JAXPIPE_PTX_CLOCKS_H_
#define JAXPIPE_PTX_CLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace jaxpipe::ptx {

using VectorClock = std::vector<uint32_t>;

inline void JoinInto(VectorClock& into, const VectorClock& from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

struct ClockSet {
  VectorClock seen;    // happens-before
  VectorClock fenced;  // events that a fence.proxy.async made visible to the async proxy
  VectorClock inits;   // mbarrier inits that a fence.mbarrier_init published

  void Reset(size_t actors) {
    seen.assign(actors, 0);
    fenced.assign(actors, 0);
    inits.assign(actors, 0);
  }
  void Join(const ClockSet& from) {
    JoinInto(seen, from.seen);
    JoinInto(fenced, from.fenced);
    JoinInto(inits, from.inits);
  }
};

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_CLOCKS_H_
