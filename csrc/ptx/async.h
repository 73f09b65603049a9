// Asynchronous work in flight: cp.async groups, bulk copies and stores, mbarriers, wgmma.
#ifndef JAXPIPE_PTX_ASYNC_H_
#define JAXPIPE_PTX_ASYNC_H_

#include <cstdint>
#include <vector>

#include "ptx/clocks.h"
#include "ptx/program.h"

namespace jaxpipe::ptx {

struct Cta;

// How many mbarriers a block may have initialised at a time.
inline constexpr int kMaxMbarriers = 64;

// One warp's cp.async, not yet waited for in the lanes of `mask`.
struct CpAsync {
  int32_t pc;
  uint64_t sequence;  // in the order of issue
  int32_t width;
  uint32_t mask;
  bool landed;  // the bytes are in memory already (early landing)
  uint32_t dst[kLanes];
  uint32_t group[kLanes];  // the lane's count of commits when it was issued
  uint8_t data[kLanes][16];
};

// cp.async.mbarrier.arrive: arrives at an mbarrier for every lane of `mask`, once the lane's copies
// of a lower sequence have landed.
struct CpAsyncArrival {
  int32_t pc;
  int mbarrier;  // index in Cta::mbarriers
  uint32_t mask;
  uint64_t sequence;
};

struct CpAsyncQueue {
  std::vector<CpAsync> copies;
  std::vector<CpAsyncArrival> arrivals;
  uint64_t issued = 0;
  uint32_t committed[kLanes] = {};
  VectorClock landed;  // writes as which copies have landed so far, by actor

  // The lanes of a copy for which an arrival will wait.
  uint32_t Awaited(const CpAsync& copy) const {
    uint32_t lanes = 0;
    for (const CpAsyncArrival& arrival : arrivals)
      if (copy.sequence < arrival.sequence) lanes |= arrival.mask;
    return lanes & copy.mask;
  }
};

struct BulkGroups {
  uint32_t committed[kLanes] = {};
};

// An mbarrier object in shared memory (PTX ISA, "Parallel Synchronization: mbarrier").
struct Mbarrier {
  uint32_t offset = 0;
  int32_t actor = 0;
  bool valid = false;
  uint32_t expected = 0;
  int64_t pending = 0;  // arrivals still missing in this phase
  int64_t bytes = 0;    // transaction count; negative when data came before its expect_tx
  uint64_t phase = 0;   // phases completed since init
  uint64_t first_phase = 0;
  int32_t init_actor = 0;  // the warp that initialised it, and when
  uint32_t init_clock = 0;
  int32_t init_pc = -1;
  ClockSet arriving;      // joined over the arrivals of this phase
  ClockSet completed[2];  // by parity of the completed phase
};

// A span of bytes of a block's shared memory.
struct Span {
  uint32_t offset;
  uint32_t size;
  uint32_t data;  // offset in BulkCopy::data
};

// A bulk copy into the shared memory of one block, completing on one of its mbarriers.
struct BulkCopy {
  int32_t pc;
  Cta* cta;
  int mbarrier;  // index in Cta::mbarriers
  uint32_t bytes;
  bool landed;  // in memory already; still to be reported to the mbarrier
  std::vector<Span> spans;
  std::vector<uint8_t> data;
};

// A piece of a bulk store: shared bytes to global memory.
struct StorePiece {
  uint8_t* to;
  uint32_t offset;
  uint32_t size;
};

// A bulk store that has not read its source yet.
struct BulkStore {
  int32_t pc;
  Cta* cta;
  int32_t actor;
  int lane;
  uint32_t group;
  int reduction;  // 0: store; 1: add elements of the type below
  int element;    // as in the tensor map
  bool done;      // executed already (early landing)
  bool waited = false;
  std::vector<Span> spans;  // what it reads, for the shadow
  std::vector<StorePiece> pieces;
};

// One wgmma of a warpgroup; executed when its group is waited for, or when all warps issued it.
struct WgmmaOp {
  int32_t pc;
  uint64_t a;  // descriptors
  uint64_t b;
  bool accumulate;
  uint32_t warps;  // mask of those of the group that issued it
};

struct Warpgroup {
  int32_t actor = 0;
  std::vector<WgmmaOp> ops;  // by sequence number
  uint32_t executed = 0;     // all before this one are done
};

// What one warp has issued to its warpgroup.
struct WgmmaQueue {
  struct Pending {
    uint32_t group;
    uint32_t sequence;
  };
  std::vector<Pending> pending;
  uint32_t issued = 0;
  uint32_t finished = 0;
  uint32_t committed = 0;
  uint64_t clock = 0;              // counts instructions, to order register accesses and fences
  uint64_t fence = 0;              // clock of the last wgmma.fence
  std::vector<uint64_t> touched;   // per register slot: clock of the last access
  std::vector<uint8_t> in_flight;  // per register slot
};

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_ASYNC_H_
