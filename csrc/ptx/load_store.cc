// ld, st and atom on all state spaces; conversions between address spaces.
#include <algorithm>
#include <cstring>

#include "ptx/address.h"
#include "ptx/element_add.h"
#include "ptx/formats.h"
#include "ptx/lift.h"

namespace jaxpipe::ptx {
namespace {

// Instruction::type of memory instructions, shared with encode.py.
Space SpaceOf(const Instruction& i) { return static_cast<Space>(i.type & 15); }
bool HasWideAddress(const Instruction& i) { return (i.type >> 4 & 1) != 0; }
bool HasWideRegisters(const Instruction& i) { return (i.type >> 5 & 1) != 0; }
int AtomOpOf(const Instruction& i) { return i.type >> 8 & 0xff; }
int AtomTypeOf(const Instruction& i) { return i.type >> 16 & 0xff; }

enum AtomOp : int {
  kAtomAdd,
  kAtomMin,
  kAtomMax,
  kAtomAnd,
  kAtomOr,
  kAtomXor,
  kAtomExch,
  kAtomCas,
  kAtomInc,
  kAtomDec
};
enum AtomType : int {
  kAtomU32,
  kAtomS32,
  kAtomU64,
  kAtomS64,
  kAtomF32,
  kAtomF64,
  kAtomF16x2,
  kAtomBf16x2,
  kAtomB16
};

uint64_t AddressOf(const Step& s, int lane) {
  if (s.ins.src[0] == kNone) return static_cast<uint64_t>(s.ins.imm);
  return s.SrcAsU64(0, lane, HasWideAddress(s.ins)) + static_cast<uint64_t>(s.ins.imm);
}

// Addresses of all active lanes, resolved; they must lie in one space.
struct Access {
  Location at[kLanes];
  uint64_t address[kLanes];
  Space space = Space::kGlobal;
};

bool ResolveAll(Step& s, uint32_t size, Access* access, bool overhangs = false) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    access->address[lane] = AddressOf(s, lane);
    good =
        Resolve(s, SpaceOf(s.ins), access->address[lane], size, lane, &access->at[lane], overhangs);
  });
  if (good) access->space = access->at[FirstLane(s.mask)].space;
  return good;
}

void Count(Step& s, const Access& access, uint32_t size) {
  if (access.space == Space::kGlobal)
    return CountGlobal(s.counters(), access.address, s.mask, static_cast<int>(size));
  if (access.space != Space::kShared) return;
  uint32_t offsets[kLanes];
  ForLanes(s.mask,
           [&](int lane) { offsets[lane] = static_cast<uint32_t>(access.at[lane].offset); });
  CountShared(s.counters(), offsets, s.mask, static_cast<int>(size));
}

void CheckRead(Step& s, const Location& at, uint64_t address, uint32_t size, int lane) {
  if (at.space == Space::kShared)
    at.cta->shadow.Read(s.Who(lane), static_cast<uint32_t>(at.offset), size);
  else if (at.space == Space::kGlobal && at.buffer->written != nullptr)
    GlobalForRead(s, address, at.inside, 1, lane);
}

// Bytes of a word that lie behind the end of the buffer are poison.
uint64_t LoadElement(const uint8_t* from, int width, uint32_t inside, bool is_signed) {
  uint64_t value = 0;
  if (inside < static_cast<uint32_t>(width)) value = ~uint64_t{0} >> (64 - 8 * width);
  std::memcpy(&value, from, std::min<uint32_t>(inside, width));
  if (is_signed) {
    const int rest = 64 - 8 * width;
    value = static_cast<uint64_t>(static_cast<int64_t>(value << rest) >> rest);
  }
  return value;
}

Flow Load(Step& s) {
  const uint32_t width = s.ins.width;
  const uint32_t size = width * s.ins.list_size;
  Access access;
  if (!ResolveAll(s, size, &access, s.ins.list_size == 1)) return Flow::kStop;
  Count(s, access, size);
  const bool is_signed = (s.ins.flags & kSigned) != 0;
  uint32_t* to[8];
  for (int i = 0; i < s.ins.list_size; ++i) to[i] = s.warp.Reg(s.ListAt(i));
  ForLanes(s.mask, [&](int lane) {
    const Location& at = access.at[lane];
    const bool overhanging = at.space == Space::kGlobal && at.inside < size;
    if (s.checks()) CheckRead(s, at, access.address[lane], size, lane);
    for (int i = 0; i < s.ins.list_size; ++i) {
      const uint64_t value =
          LoadElement(at.data + i * width, width, overhanging ? at.inside : width, is_signed);
      if (HasWideRegisters(s.ins))
        Put<uint64_t>(to[i], lane, value);
      else
        to[i][lane] = static_cast<uint32_t>(value);
    }
  });
  return Flow::kNext;
}

// Prepares a store at one lane: read-only buffers, shadow, written bytes. False on a fault.
bool BeforeStore(Step& s, const Location& at, uint64_t address, uint32_t size, int lane,
                 const uint8_t* bytes) {
  switch (at.space) {
    case Space::kGlobal:
      return GlobalForWrite(s, address, size, 1, lane) != nullptr;
    case Space::kShared:
      if (s.checks())
        at.cta->shadow.Write(s.Who(lane), static_cast<uint32_t>(at.offset), size, bytes);
      return true;
    case Space::kParam:
      s.Fault(HazardKind::kGlobalReadOnly, lane, address, "parameters are read-only");
      return false;
    default:
      return true;
  }
}

Flow Store(Step& s) {
  const uint32_t width = s.ins.width;
  const uint32_t size = width * s.ins.list_size;
  Access access;
  if (!ResolveAll(s, size, &access)) return Flow::kStop;
  Count(s, access, size);
  s.cluster.events++;
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    uint8_t bytes[64];
    for (int i = 0; i < s.ins.list_size; ++i) {
      const uint32_t* from = s.Operand(s.ListAt(i));
      const uint64_t value =
          HasWideRegisters(s.ins) ? Get<uint64_t>(from, lane) : static_cast<uint64_t>(from[lane]);
      std::memcpy(bytes + i * width, &value, width);
    }
    good = BeforeStore(s, access.at[lane], access.address[lane], size, lane, bytes);
    if (good) std::memcpy(access.at[lane].data, bytes, size);
  });
  return good ? Flow::kNext : Flow::kStop;
}

uint32_t AddHalves(uint32_t a, uint32_t b, bool bf16) {
  uint32_t out = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const uint16_t x = static_cast<uint16_t>(a >> shift), y = static_cast<uint16_t>(b >> shift);
    const uint16_t sum = bf16 ? Bf16OfFloat(FloatOfBf16(x) + FloatOfBf16(y))
                              : F16OfFloat(FloatOfF16(x) + FloatOfF16(y));
    out |= static_cast<uint32_t>(sum) << shift;
  }
  return out;
}

template <typename T>
T ApplyOrdered(int op, T a, T b) {
  switch (op) {
    case kAtomMin:
      return std::min(a, b);
    case kAtomMax:
      return std::max(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

uint64_t ApplyNumber(int op, int type, uint64_t a, uint64_t b) {
  const uint32_t a32 = static_cast<uint32_t>(a), b32 = static_cast<uint32_t>(b);
  switch (type) {
    case kAtomS32:
      if (op == kAtomAdd) return a32 + b32;
      return static_cast<uint32_t>(
          ApplyOrdered<int32_t>(op, static_cast<int32_t>(a32), static_cast<int32_t>(b32)));
    case kAtomU64:
      return ApplyOrdered<uint64_t>(op, a, b);
    case kAtomS64:
      if (op == kAtomAdd) return a + b;
      return static_cast<uint64_t>(
          ApplyOrdered<int64_t>(op, static_cast<int64_t>(a), static_cast<int64_t>(b)));
    case kAtomF32:
      return BitsOf(ApplyOrdered<float>(op, FloatOf(a32), FloatOf(b32)));
    case kAtomF64: {
      double x, y;
      std::memcpy(&x, &a, 8), std::memcpy(&y, &b, 8);
      x = ApplyOrdered<double>(op, x, y);
      std::memcpy(&a, &x, 8);
      return a;
    }
    case kAtomF16x2:
      return AddHalves(a32, b32, false);
    case kAtomBf16x2:
      return AddHalves(a32, b32, true);
    default:
      return ApplyOrdered<uint32_t>(op, a32, b32);
  }
}

uint64_t ApplyAtom(int op, int type, uint64_t old, uint64_t b, uint64_t c) {
  switch (op) {
    case kAtomAnd:
      return old & b;
    case kAtomOr:
      return old | b;
    case kAtomXor:
      return old ^ b;
    case kAtomExch:
      return b;
    case kAtomCas:
      return old == b ? c : old;
    case kAtomInc:
      return old >= b ? 0 : old + 1;
    case kAtomDec:
      return old == 0 || old > b ? b : old - 1;
    default:
      return ApplyNumber(op, type, old, b);
  }
}

// Blocks run on several threads, so memory is updated by compare and exchange.
uint64_t Update(Step& s, uint8_t* at, uint64_t b, uint64_t c) {
  const int op = AtomOpOf(s.ins), type = AtomTypeOf(s.ins);
  const auto next = [&](uint64_t old) { return ApplyAtom(op, type, old, b, c); };
  switch (s.ins.width) {
    case 2:
      return UpdateAtomically<uint16_t>(at, next);
    case 8:
      return UpdateAtomically<uint64_t>(at, next);
    default:
      return UpdateAtomically<uint32_t>(at, next);
  }
}

Flow Atom(Step& s) {
  const uint32_t size = s.ins.width;
  const bool wide = size == 8;
  Access access;
  if (!ResolveAll(s, size, &access)) return Flow::kStop;
  Count(s, access, size);
  s.cluster.events++;
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    const Location& at = access.at[lane];
    if (s.checks() && at.space == Space::kShared)
      at.cta->shadow.Atomic(s.Who(lane), static_cast<uint32_t>(at.offset), size);
    if (at.space == Space::kGlobal) {
      if (s.checks()) GlobalForRead(s, access.address[lane], size, 1, lane);
      good = GlobalForWrite(s, access.address[lane], size, 1, lane) != nullptr;
      if (!good) return;
    }
    const uint64_t c = s.ins.src[2] == kNone ? 0 : s.SrcAsU64(2, lane, wide);
    const uint64_t old = Update(s, at.data, s.SrcAsU64(1, lane, wide), c);
    if (s.ins.dst == kNone) return;
    if (wide)
      Put<uint64_t>(s.Dst(), lane, old);
    else
      s.Dst()[lane] = static_cast<uint32_t>(old);
  });
  return good ? Flow::kNext : Flow::kStop;
}

constexpr HandlerRow kRows[] = {{Op::kLoad, Load}, {Op::kStore, Store}, {Op::kAtom, Atom}};

// Shared addresses fit 24 bits plus the rank of the block; pointers to them carry the window.
template <uint64_t kWindow>
uint64_t FromGeneric(uint64_t a) {
  return a - kWindow;
}
template <uint64_t kWindow>
uint64_t ToGeneric(uint64_t a) {
  return a + kWindow;
}
uint32_t RankOfShared(uint32_t own, uint32_t address) {
  const uint32_t rank = address >> kSharedRankShift;
  return rank == 0 ? own : rank - 1;
}

// mapa: the same shared address in the block of a given rank.
Flow Mapa(Step& s) {
  const bool wide = s.ins.width == 8;
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) {
    const uint64_t address = s.SrcAsU64(0, lane, wide);
    const uint64_t keep = address & ~(uint64_t{0xff} << kSharedRankShift);
    const uint64_t mapped = keep | static_cast<uint64_t>(s.Src(1)[lane] + 1) << kSharedRankShift;
    if (wide)
      Put<uint64_t>(to, lane, mapped);
    else
      to[lane] = static_cast<uint32_t>(mapped);
  });
  return Flow::kNext;
}

Flow GetCtaRank(Step& s) {
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) {
    const uint64_t address = s.SrcAsU64(0, lane, s.ins.width == 8);
    to[lane] = RankOfShared(static_cast<uint32_t>(s.cta.rank), static_cast<uint32_t>(address));
  });
  return Flow::kNext;
}

// isspacep: type is the Space asked for.
Flow IsSpace(Step& s) {
  uint32_t out = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t window = Get<uint64_t>(s.Src(0), lane) >> kWindowShift;
    Space space = Space::kGlobal;
    if (window == kSharedWindow >> kWindowShift) space = Space::kShared;
    if (window == kParamWindow >> kWindowShift) space = Space::kParam;
    if (window == kLocalWindow >> kWindowShift) space = Space::kLocal;
    out |= static_cast<uint32_t>(space == static_cast<Space>(s.ins.type)) << lane;
  }
  uint32_t& p = s.warp.predicates[s.ins.pdst[0]];
  p = (p & ~s.mask) | (out & s.mask);
  return Flow::kNext;
}

constexpr HandlerRow kAddressRows[] = {
    {Op::kCvtaToShared, Lift<FromGeneric<kSharedWindow>>},
    {Op::kCvtaShared, Lift<ToGeneric<kSharedWindow>>},
    {Op::kCvtaToLocal, Lift<FromGeneric<kLocalWindow>>},
    {Op::kCvtaLocal, Lift<ToGeneric<kLocalWindow>>},
    {Op::kCvtaParam, Lift<ToGeneric<kParamWindow>>},
    {Op::kIsSpace, IsSpace},
    {Op::kMapa, Mapa},
    {Op::kGetCtaRank, GetCtaRank},
};

}  // namespace

void AddMemoryHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

void AddAddressHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kAddressRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
