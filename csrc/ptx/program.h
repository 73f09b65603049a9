// A kernel in the form that the interpreter executes: encoded instructions and their operands.
//
// Made by jaxpipe/ptx/encode.py; Program::Create checks every index once, so that execution need
// not. Registers are vectors of 32 lanes; a register of 64 bits takes two slots.
#ifndef JAXPIPE_PTX_PROGRAM_H_
#define JAXPIPE_PTX_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/opcodes.h"
#include "status.h"

namespace jaxpipe::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;
// An operand that is absent. Operands >= 0 are register slots, others ~index of a constant.
inline constexpr int32_t kNone = INT32_MIN;

// Slots behind the last one, so that 64-bit operations on it stay inside; Validate adds them.
inline constexpr int32_t kSlackSlots = 2;

// Slots that hold special registers, filled when a block starts; the compiler's come after.
enum SpecialSlot : int32_t {
  kTidX,
  kTidY,
  kTidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kLaneId,
  kWarpId,
  kNtidX,
  kNtidY,
  kNtidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kClusterCtaRank,
  kClusterNctaRank,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNclusterIdX,
  kNclusterIdY,
  kNclusterIdZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kLaneMaskEq,
  kLaneMaskLe,
  kLaneMaskLt,
  kLaneMaskGe,
  kLaneMaskGt,
  kDynamicSharedSize,
  kTotalSharedSize,
  kSmId,
  kSpecialSlots
};

// Predicate slots 0 and 1 are the constants false and true.
inline constexpr int32_t kFalsePred = 0;
inline constexpr int32_t kTruePred = 1;

enum InstructionFlags : int32_t {
  kGuardNegated = 1,  // @!p
  kPsrcNegated = 2,   // the predicate operand is !p
  kConverges = 4,     // .sync: the lanes named by the member mask execute it together
  kAligned = 8,       // .aligned: all lanes of the warp execute it together
  kSigned = 16,       // ld.s8, ld.s16: sign extension
  kSourceSize = 32,   // cp.async with a source size
};

// One encoded instruction; the layout is shared with encode.py (INSTRUCTION there).
struct Instruction {
  int32_t op;
  int32_t flags;
  int32_t type;   // the operation's own variants
  int32_t width;  // bytes of one memory element
  int32_t guard;  // predicate slot or kNone
  int32_t dst;
  int32_t src[4];
  int32_t pdst[2];
  int32_t psrc;
  int32_t list;  // first of list_size operands in Program::lists
  int32_t list_size;
  int32_t list_writes;  // how many leading ones are written
  int32_t target;
  int32_t unused;
  int64_t imm;
};
static_assert(sizeof(Instruction) == 80, "encode.py relies on the layout");

// Where an instruction comes from, for reports.
struct SourceLine {
  int32_t ptx_line = 0;
  int32_t file = -1;  // index in Program::files
  int32_t line = 0;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<int32_t> lists;
  std::vector<uint64_t> constants;
  std::vector<uint8_t> constant_is_wide;  // true: an operand of 64 bits
  int32_t register_slots = kSpecialSlots;
  int32_t predicate_slots = 2;
  uint32_t static_shared_bytes = 0;  // already rounded up to the alignment of the dynamic part
  uint32_t local_bytes = 0;          // per thread
  uint32_t param_bytes = 0;
  uint32_t max_registers = 0;  // .maxnreg, per thread; 0: not given
  std::vector<SourceLine> lines;
  std::vector<std::string> texts;
  std::vector<std::string> files;
  bool uses_wgmma = false;
  bool uses_mbarrier = false;

  // Checks all indices and fills the uses_* members.
  Status Validate();
};

// The text of an instruction with its place: `ldmatrix ... (ptx line 812, gemm.cu:41)`.
std::string DescribeInstruction(const Program& program, int32_t pc);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_PROGRAM_H_
