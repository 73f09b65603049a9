// Hazards: what can be wrong with a kernel, and the log that collects findings.
#ifndef JAXPIPE_PTX_HAZARD_H_
#define JAXPIPE_PTX_HAZARD_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ptx/program.h"

namespace jaxpipe::ptx {

// X(enumerator, name, fatal: execution of the block cannot go on, sentence)
#define JAXPIPE_PTX_HAZARDS(X)                                                                     \
  X(kReadPending, "read-pending", false,                                                           \
    "reads shared memory that an asynchronous copy may not have written yet")                      \
  X(kReadRace, "read-race", false,                                                                 \
    "reads shared memory that another warp wrote, with no barrier between write and read")         \
  X(kWriteRace, "write-race", false,                                                               \
    "writes shared memory that another warp wrote, with no barrier between the two")               \
  X(kOverwriteRace, "overwrite-race", false,                                                       \
    "overwrites shared memory that another warp may still be reading")                             \
  X(kOverwritePending, "overwrite-pending", false,                                                 \
    "overwrites the destination of an asynchronous copy that is still in flight")                  \
  X(kOverwriteAsyncRead, "overwrite-async-read", false,                                            \
    "overwrites shared memory that wgmma or a bulk store may still be reading")                    \
  X(kUnwrittenShared, "unwritten-shared", false, "reads shared memory that was never written")     \
  X(kUnwrittenGlobal, "unwritten-global", false, "reads global memory that was never written")     \
  X(kLaneRace, "lane-race", false,                                                                 \
    "reads what another lane of the same warp wrote, with no bar.warp.sync between")               \
  X(kProxyFence, "proxy-fence", false,                                                             \
    "touches through the async proxy what generic stores wrote, with no fence.proxy.async "        \
    "between")                                                                                     \
  X(kSharedBounds, "shared-bounds", true, "accesses shared memory outside the block's own")        \
  X(kGlobalBounds, "global-bounds", true, "accesses global memory outside every buffer")           \
  X(kGlobalReadOnly, "global-read-only", true, "writes a buffer that is an input")                 \
  X(kLocalBounds, "local-bounds", true, "accesses local or parameter memory out of bounds")        \
  X(kMisaligned, "misaligned", true, "accesses memory at an address that is not aligned")          \
  X(kDivergence, "divergence", true,                                                               \
    "a collective instruction that not all lanes of its warp reach together")                      \
  X(kBarrierCount, "barrier-count", true,                                                          \
    "the warps of a barrier disagree about its thread count")                                      \
  X(kDeadlock, "deadlock", true, "no warp can go on")                                              \
  X(kExitPending, "exit-pending", false, "asynchronous work is still pending when the block ends") \
  X(kWgmmaRegister, "wgmma-register", false,                                                       \
    "touches registers of a wgmma in flight before its wait_group")                                \
  X(kWgmmaFence, "wgmma-fence", false,                                                             \
    "wgmma uses registers that were touched since the last wgmma.fence")                           \
  X(kWgmmaMismatch, "wgmma-mismatch", true,                                                        \
    "the four warps of a warpgroup do not issue the same wgmma")                                   \
  X(kWgmmaDescriptor, "wgmma-descriptor", true,                                                    \
    "a matrix descriptor that hardware does not accept")                                           \
  X(kMbarrierInvalid, "mbarrier-invalid", true, "uses an mbarrier that is not initialised")        \
  X(kMbarrierInitRace, "mbarrier-init-race", false,                                                \
    "uses an mbarrier with no barrier (or fence.mbarrier_init, for other blocks) after its init")  \
  X(kMbarrierInUse, "mbarrier-in-use", true, "initialises or overwrites an mbarrier in use")       \
  X(kMbarrierArrivals, "mbarrier-arrivals", true,                                                  \
    "more arrivals in one phase than the mbarrier expects")                                        \
  X(kMbarrierBytes, "mbarrier-bytes", true,                                                        \
    "transaction count of an mbarrier out of range (2^20 - 1 bytes)")                              \
  X(kTensorMap, "tensor-map", true, "a tensor map or coordinates that hardware does not accept")   \
  X(kRegisterLimit, "register-limit", true, "setmaxnreg waits for ever for registers")             \
  X(kClusterExit, "cluster-exit", false,                                                           \
    "touches the shared memory of a block of the cluster that may have ended")                     \
  X(kStepLimit, "step-limit", true, "the step limit was reached: an endless loop?")                \
  X(kTrap, "trap", true, "executed a trap")                                                        \
  X(kUnsupported, "unsupported", true, "a case that the interpreter does not model")

enum class HazardKind : int32_t {
#define X(enumerator, name, fatal, text) enumerator,
  JAXPIPE_PTX_HAZARDS(X)
#undef X
};

const char* HazardName(HazardKind kind);
const char* HazardSentence(HazardKind kind);
bool IsFatal(HazardKind kind);

// One finding. Repetitions at the same pair of instructions only raise `count`.
struct Hazard {
  HazardKind kind;
  int32_t pc = -1;        // the instruction that commits it
  int32_t other_pc = -1;  // the instruction that it conflicts with, or -1
  int64_t block = 0;      // linear index of the block, x fastest
  int32_t warp = 0;
  int32_t lane = -1;  // -1: the warp as a whole
  uint64_t address = 0;
  uint64_t count = 1;
  std::string detail;  // values, or who waits for what
};

class HazardLog {
 public:
  void Add(Hazard hazard);
  void Merge(const HazardLog& other);
  bool empty() const { return hazards_.empty(); }
  std::vector<Hazard> Sorted() const;

 private:
  static constexpr size_t kMaxDistinct = 256;
  std::map<std::tuple<int32_t, int32_t, int32_t>, Hazard> hazards_;
};

// A paragraph for people: sentence, instruction, conflicting instruction, place, values.
std::string DescribeHazard(const Program& program, const Hazard& hazard);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_HAZARD_H_
