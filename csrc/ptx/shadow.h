// Shadow of one block's shared memory: who wrote and read each byte last, and what is in flight.
//
// Rules (research notes, seven rules): a read is legal when the byte was written, nothing is in
// flight to it, and the reader is ordered after the writer; a write also needs to be ordered after
// every reader. State is kept per granule of 16 bytes and refined to 4 or 1 byte where the kernel
// accesses less, so that copies and matrix loads cost one step a granule.
#ifndef JAXPIPE_PTX_SHADOW_H_
#define JAXPIPE_PTX_SHADOW_H_

#include <cstdint>
#include <vector>

#include "ptx/clocks.h"
#include "ptx/hazard.h"

namespace jaxpipe::ptx {

// A lane that stands for the whole warp, as writer (stmatrix) or reader (ldmatrix).
inline constexpr int32_t kWholeWarp = 32;

// Who accesses, from where.
struct Accessor {
  int32_t actor = 0;
  const ClockSet* clocks = nullptr;
  int32_t pc = -1;
  int32_t lane = kWholeWarp;
  uint32_t lane_epoch = 0;  // how many warp-level syncs the warp has passed
  int64_t block = 0;
  int32_t warp = 0;

  uint32_t clock() const { return clocks->seen[actor]; }
};

// A completed write, as LandCopy records it.
struct Landing {
  int32_t writer;
  uint32_t clock;
  int32_t pc;
  int32_t lane;
  uint32_t lane_epoch;
  bool generic;  // through the generic proxy
};

class Shadow {
 public:
  // Actors below `warps` are warps, from there to `readers` (at most 64) they are warpgroups.
  void Reset(uint32_t bytes, int warps, int readers, const uint8_t* memory, HazardLog* log);

  void Read(const Accessor& who, uint32_t offset, uint32_t size);
  // Marks the bytes of an mbarrier object; writes to them are a hazard while it lives.
  void SetObject(uint32_t offset, uint32_t size, bool is_object);
  // `data` are the bytes to be written: a race that stores what is already there is
  // benign; null when they are not known.
  void Write(const Accessor& who, uint32_t offset, uint32_t size, const uint8_t* data);
  // An atomic update: ordered by itself against other atomics, a write to everything else.
  void Atomic(const Accessor& who, uint32_t offset, uint32_t size);

  // An asynchronous copy: checked as a write when issued, in flight until landed.
  void IssueCopy(const Accessor& who, uint32_t offset, uint32_t size, bool async_proxy);
  void LandCopy(const Landing& landing, uint32_t offset, uint32_t size);

  // A read by the async proxy on behalf of `reader` (a warpgroup), finished at its `clock`.
  void AsyncRead(const Accessor& who, int32_t reader, uint32_t clock, uint32_t offset,
                 uint32_t size);

  // A bulk store that reads from now until EndStoreRead, when it becomes a read by `who`.
  void BeginStoreRead(const Accessor& who, uint32_t offset, uint32_t size);
  void EndStoreRead(const Accessor& who, uint32_t offset, uint32_t size);

 private:
  struct Cell {
    uint64_t readers = 0;  // actors that read since the last write
    uint32_t clock = 0;
    uint32_t lane_epoch = 0;
    int32_t pc = -1;
    int32_t pending_pc = -1;
    int16_t writer = 0;
    int16_t lane = kWholeWarp;
    uint16_t copies = 0;  // in flight to it
    uint16_t stores = 0;  // bulk stores that read it
    bool written = false;
    bool generic = false;
    bool atomic = false;
    bool object = false;  // holds an mbarrier
  };
  struct Mark {
    uint32_t clock = 0;
    int32_t pc = -1;
  };
  struct Granule {
    uint32_t first = 0;
    uint8_t level = 0;
  };

  template <typename F>
  void ForCells(uint32_t offset, uint32_t size, F&& f);
  void SetWriter(Cell& cell, const Landing& landing);
  void Refine(Granule& granule, uint8_t level);
  void CheckRead(const Accessor& who, const Cell& cell, uint32_t at);
  void CheckOverwrite(const Accessor& who, uint32_t index, uint32_t at, const uint8_t* data,
                      uint32_t size);
  void CheckProxy(const Accessor& who, const Cell& cell, uint32_t at);
  void MarkRead(uint32_t index, int32_t reader, uint32_t clock, int32_t pc);
  void Report(HazardKind kind, const Accessor& who, int32_t other_pc, uint32_t at);

  int warps_ = 0;
  int readers_ = 0;
  const uint8_t* memory_ = nullptr;
  HazardLog* log_ = nullptr;
  std::vector<Granule> granules_;
  std::vector<Cell> cells_;
  std::vector<Mark> marks_;  // readers_ a cell
};

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_SHADOW_H_
