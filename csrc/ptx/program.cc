#include "ptx/program.h"

namespace jaxpipe::ptx {
namespace {

bool IsOperand(const Program& p, int32_t operand, int slots) {
  if (operand == kNone) return true;
  if (operand >= 0) return operand + slots <= p.register_slots;
  return static_cast<size_t>(~operand) < p.constants.size();
}

bool IsDestination(const Program& p, int32_t operand, int slots) {
  return operand == kNone || (operand >= 0 && operand + slots <= p.register_slots);
}

bool IsPredicate(const Program& p, int32_t slot) {
  return slot == kNone || (slot >= 0 && slot < p.predicate_slots);
}

bool IsList(const Program& p, const Instruction& i) {
  if (i.list_size == 0) return i.list_writes == 0;
  const bool is_targets = static_cast<Op>(i.op) == Op::kBranchIndexed;
  if (i.list < 0 || i.list_size < 0 || i.list_writes < 0 || i.list_writes > i.list_size)
    return false;
  if (static_cast<size_t>(i.list) + i.list_size > p.lists.size()) return false;
  for (int k = 0; k < i.list_size; ++k) {
    const int32_t operand = p.lists[i.list + k];
    if (is_targets) {
      if (operand < 0 || static_cast<size_t>(operand) >= p.code.size()) return false;
      continue;
    }
    if (operand == kNone ||
        !(k < i.list_writes ? IsDestination(p, operand, 1) : IsOperand(p, operand, 1)))
      return false;
  }
  return true;
}

bool IsValid(const Program& p, const Instruction& i) {
  bool good = i.op >= 0 && i.op < kOpCount && IsDestination(p, i.dst, 1) &&
              IsPredicate(p, i.guard) && IsPredicate(p, i.pdst[0]) && IsPredicate(p, i.pdst[1]) &&
              IsPredicate(p, i.psrc) && IsList(p, i) && i.width >= 0 && i.width <= 16;
  for (int32_t operand : i.src) good = good && IsOperand(p, operand, 1);
  const Op op = static_cast<Op>(i.op);
  if (op == Op::kAndPred || op == Op::kOrPred || op == Op::kXorPred)
    good = good && i.imm >= 0 && i.imm < p.predicate_slots;
  if (op == Op::kLoad || op == Op::kStore)
    good = good && i.list_size >= 1 && i.list_size <= 8 && i.width >= 1 && i.width <= 8;
  if (op == Op::kBranch)
    good = good && i.target >= 0 && static_cast<size_t>(i.target) < p.code.size();
  return good;
}

}  // namespace

Status Program::Validate() {
  if (register_slots < kSpecialSlots || predicate_slots < 2)
    return InvalidArgument("the program lacks its special slots");
  register_slots += kSlackSlots;
  for (size_t pc = 0; pc < code.size(); ++pc) {
    const Instruction& i = code[pc];
    if (!IsValid(*this, i))
      return InvalidArgument("instruction " + std::to_string(pc) + " is wrongly encoded");
    const Op op = static_cast<Op>(i.op);
    uses_wgmma = uses_wgmma || op == Op::kWgmma;
    uses_mbarrier = uses_mbarrier || op == Op::kMbarrierInit;
  }
  if (code.empty() || static_cast<Op>(code.back().op) != Op::kExit)
    return InvalidArgument("the program does not end with an exit");
  if (constant_is_wide.size() != constants.size())
    return InvalidArgument("every constant needs its width");
  if (lines.size() != code.size() || texts.size() != code.size())
    return InvalidArgument("lines and texts do not match the code");
  return Status();
}

std::string DescribeInstruction(const Program& program, int32_t pc) {
  if (pc < 0 || static_cast<size_t>(pc) >= program.code.size()) return "(start of the kernel)";
  const SourceLine& at = program.lines[pc];
  std::string text = "`" + program.texts[pc] + "` (ptx line " + std::to_string(at.ptx_line);
  if (at.file >= 0 && static_cast<size_t>(at.file) < program.files.size())
    text += ", " + program.files[at.file] + ":" + std::to_string(at.line);
  return text + ")";
}

}  // namespace jaxpipe::ptx
