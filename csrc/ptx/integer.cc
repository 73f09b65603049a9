// Integer arithmetic, logic, shifts and bit fields; predicates; moves.
#include <algorithm>

#include "ptx/lift.h"

namespace jaxpipe::ptx {
namespace {

template <typename T>
T Move(T a) {
  return a;
}
template <typename T>
T Add(T a, T b) {
  return static_cast<T>(a + b);
}
template <typename T>
T Sub(T a, T b) {
  return static_cast<T>(a - b);
}
template <typename T>
T MulLo(T a, T b) {
  // 16-bit factors would be promoted to int and might overflow it.
  if constexpr (sizeof(T) < 4)
    return static_cast<T>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
  else
    return a * b;
}
template <typename T>
T MadLo(T a, T b, T c) {
  return static_cast<T>(MulLo<T>(a, b) + c);
}

template <typename Wide, typename T>
T MulHi(T a, T b) {
  return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
}
template <typename Wide, typename T>
T MadHi(T a, T b, T c) {
  using U = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<U>(MulHi<Wide, T>(a, b)) + static_cast<U>(c));
}
template <typename Wide, typename T>
Wide MulWide(T a, T b) {
  return static_cast<Wide>(a) * static_cast<Wide>(b);
}
template <typename Wide, typename T>
Wide MadWide(T a, T b, Wide c) {
  using U = std::make_unsigned_t<Wide>;
  return static_cast<Wide>(static_cast<U>(MulWide<Wide, T>(a, b)) + static_cast<U>(c));
}

// Division by zero is unspecified in PTX; the most negative number by -1 wraps.
template <typename T>
T Div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
}
template <typename T>
T Rem(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <typename T>
T Min(T a, T b) {
  return std::min(a, b);
}
template <typename T>
T Max(T a, T b) {
  return std::max(a, b);
}
int32_t MinRelu(int32_t a, int32_t b) { return std::max(std::min(a, b), 0); }
int32_t MaxRelu(int32_t a, int32_t b) { return std::max(std::max(a, b), 0); }
template <typename T>
T Neg(T a) {
  return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
}
template <typename T>
T Abs(T a) {
  return a < 0 ? Neg<T>(a) : a;
}

template <typename T>
T And(T a, T b) {
  return a & b;
}
template <typename T>
T Or(T a, T b) {
  return a | b;
}
template <typename T>
T Xor(T a, T b) {
  return a ^ b;
}
template <typename T>
T Not(T a) {
  return static_cast<T>(~a);
}
uint32_t Cnot(uint32_t a) { return a == 0 ? 1 : 0; }

// Shift amounts above the width clamp (PTX ISA, shl and shr).
template <typename T>
T Shl(T a, uint32_t b) {
  return b >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << b);
}
template <typename T>
T Shr(T a, uint32_t b) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> std::min(b, kBits - 1));
  return b >= kBits ? T{0} : static_cast<T>(a >> b);
}
uint64_t Funnel(uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; }
uint32_t ShfLeftWrap(uint32_t a, uint32_t b, uint32_t c) {
  return static_cast<uint32_t>(Funnel(a, b) << (c & 31) >> 32);
}
uint32_t ShfLeftClamp(uint32_t a, uint32_t b, uint32_t c) {
  return c >= 32 ? a : static_cast<uint32_t>(Funnel(a, b) << c >> 32);
}
uint32_t ShfRightWrap(uint32_t a, uint32_t b, uint32_t c) {
  return static_cast<uint32_t>(Funnel(a, b) >> (c & 31));
}
uint32_t ShfRightClamp(uint32_t a, uint32_t b, uint32_t c) {
  return c >= 32 ? b : static_cast<uint32_t>(Funnel(a, b) >> c);
}

template <typename T>
T Bfe(T a, uint32_t position, uint32_t length) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t kBits = 8 * sizeof(T);
  position &= 0xff;
  length &= 0xff;
  if (length == 0) return 0;
  const T shifted = Shr<T>(a, position);
  if (position + length >= kBits || length >= kBits) return shifted;
  const uint32_t rest = kBits - length;
  return static_cast<T>(static_cast<T>(static_cast<U>(shifted) << rest) >> rest);
}
template <typename T>
T Bfi(T field, T into, uint32_t position, uint32_t length) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  position &= 0xff;
  length &= 0xff;
  const T ones = length >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
  const T mask = Shl<T>(ones, position);
  return (into & ~mask) | (Shl<T>(field, position) & mask);
}
uint32_t Brev(uint32_t a) {
  uint32_t out = 0;
  for (int i = 0; i < 32; ++i) out |= (a >> i & 1) << (31 - i);
  return out;
}
uint32_t Popc32(uint32_t a) { return static_cast<uint32_t>(__builtin_popcount(a)); }
uint32_t Popc64(uint64_t a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }
uint32_t Clz32(uint32_t a) { return a == 0 ? 32 : static_cast<uint32_t>(__builtin_clz(a)); }
uint32_t Clz64(uint64_t a) { return a == 0 ? 64 : static_cast<uint32_t>(__builtin_clzll(a)); }
uint32_t Bfind(uint32_t a) { return a == 0 ? ~0u : 31 - Clz32(a); }
uint32_t BfindShift(uint32_t a) { return a == 0 ? ~0u : Clz32(a); }

uint32_t Prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = Funnel(a, b);
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i) & 0xf;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (pick & 7))) & 0xff;
    if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    out |= byte << (8 * i);
  }
  return out;
}
// dp4a and dp2a: four bytes of each, or the two halves of a with the low or high bytes of b. Sums
// wrap; the sign of an operand is its own.
template <typename A, typename B>
uint32_t Dp4a(uint32_t a, uint32_t b, uint32_t sum) {
  for (int i = 0; i < 4; ++i)
    sum += static_cast<uint32_t>(int32_t{static_cast<A>(a >> (8 * i))} *
                                 int32_t{static_cast<B>(b >> (8 * i))});
  return sum;
}
template <typename A, typename B, int kFirstByte>
uint32_t Dp2a(uint32_t a, uint32_t b, uint32_t sum) {
  for (int i = 0; i < 2; ++i)
    sum += static_cast<uint32_t>(int32_t{static_cast<A>(a >> (16 * i))} *
                                 int32_t{static_cast<B>(b >> (8 * (i + kFirstByte)))});
  return sum;
}

// lop3: imm is the truth table, bit index 4a + 2b + c.
Flow Lop3(Step& s) {
  const uint32_t *a = s.Src(0), *b = s.Src(1), *c = s.Src(2);
  uint32_t out[kLanes] = {};
  for (int row = 0; row < 8; ++row) {
    if ((s.ins.imm >> row & 1) == 0) continue;
    const uint32_t na = (row & 4) != 0 ? 0 : ~0u, nb = (row & 2) != 0 ? 0 : ~0u;
    const uint32_t nc = (row & 1) != 0 ? 0 : ~0u;
    for (int l = 0; l < kLanes; ++l) out[l] |= (a[l] ^ na) & (b[l] ^ nb) & (c[l] ^ nc);
  }
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) { to[lane] = out[lane]; });
  return Flow::kNext;
}

// {a, b, ...} -> one register. The list holds the parts, low first; width is their size.
Flow Pack(Step& s) {
  const int bits = 8 * s.ins.width;
  const bool wide = bits * s.ins.list_size > 32;
  uint64_t out[kLanes] = {};
  for (int part = 0; part < s.ins.list_size; ++part) {
    const uint32_t* from = s.Operand(s.ListAt(part));
    const uint64_t mask = bits == 32 ? 0xffffffffu : (uint64_t{1} << bits) - 1;
    for (int l = 0; l < kLanes; ++l) out[l] |= (from[l] & mask) << (bits * part);
  }
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) {
    if (wide)
      Put<uint64_t>(to, lane, out[lane]);
    else
      to[lane] = static_cast<uint32_t>(out[lane]);
  });
  return Flow::kNext;
}

// One register -> {a, b, ...}. Parts that are "_" have slot kSink.
Flow Unpack(Step& s) {
  const int bits = 8 * s.ins.width;
  const bool wide = bits * s.ins.list_size > 32;
  uint64_t in[kLanes];
  for (int l = 0; l < kLanes; ++l) in[l] = s.SrcAsU64(0, l, wide);
  const uint64_t mask = bits == 32 ? 0xffffffffu : (uint64_t{1} << bits) - 1;
  for (int part = 0; part < s.ins.list_size; ++part) {
    uint32_t* to = s.warp.Reg(s.ListAt(part));
    ForLanes(s.mask, [&](int l) { to[l] = static_cast<uint32_t>(in[l] >> (bits * part) & mask); });
  }
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kMovB32, Lift<Move<uint32_t>>},
    {Op::kMovB64, Lift<Move<uint64_t>>},
    {Op::kPack, Pack},
    {Op::kUnpack, Unpack},
    {Op::kAddB16, Lift<Add<uint16_t>>},
    {Op::kAddB32, Lift<Add<uint32_t>>},
    {Op::kAddB64, Lift<Add<uint64_t>>},
    {Op::kSubB16, Lift<Sub<uint16_t>>},
    {Op::kSubB32, Lift<Sub<uint32_t>>},
    {Op::kSubB64, Lift<Sub<uint64_t>>},
    {Op::kMulB16, Lift<MulLo<uint16_t>>},
    {Op::kMulB32, Lift<MulLo<uint32_t>>},
    {Op::kMulB64, Lift<MulLo<uint64_t>>},
    {Op::kMulHiU32, Lift<MulHi<uint64_t, uint32_t>>},
    {Op::kMulHiS32, Lift<MulHi<int64_t, int32_t>>},
    {Op::kMulHiU64, Lift<MulHi<unsigned __int128, uint64_t>>},
    {Op::kMulHiS64, Lift<MulHi<__int128, int64_t>>},
    {Op::kMulWideU16, Lift<MulWide<uint32_t, uint16_t>>},
    {Op::kMulWideS16, Lift<MulWide<int32_t, int16_t>>},
    {Op::kMulWideU32, Lift<MulWide<uint64_t, uint32_t>>},
    {Op::kMulWideS32, Lift<MulWide<int64_t, int32_t>>},
    {Op::kMadB16, Lift<MadLo<uint16_t>>},
    {Op::kMadB32, Lift<MadLo<uint32_t>>},
    {Op::kMadB64, Lift<MadLo<uint64_t>>},
    {Op::kMadHiU32, Lift<MadHi<uint64_t, uint32_t>>},
    {Op::kMadHiS32, Lift<MadHi<int64_t, int32_t>>},
    {Op::kMadWideU32, Lift<MadWide<uint64_t, uint32_t>>},
    {Op::kMadWideS32, Lift<MadWide<int64_t, int32_t>>},
    {Op::kDivU16, Lift<Div<uint16_t>>},
    {Op::kDivS16, Lift<Div<int16_t>>},
    {Op::kDivU32, Lift<Div<uint32_t>>},
    {Op::kDivS32, Lift<Div<int32_t>>},
    {Op::kDivU64, Lift<Div<uint64_t>>},
    {Op::kDivS64, Lift<Div<int64_t>>},
    {Op::kRemU16, Lift<Rem<uint16_t>>},
    {Op::kRemS16, Lift<Rem<int16_t>>},
    {Op::kRemU32, Lift<Rem<uint32_t>>},
    {Op::kRemS32, Lift<Rem<int32_t>>},
    {Op::kRemU64, Lift<Rem<uint64_t>>},
    {Op::kRemS64, Lift<Rem<int64_t>>},
    {Op::kMinU16, Lift<Min<uint16_t>>},
    {Op::kMinS16, Lift<Min<int16_t>>},
    {Op::kMinU32, Lift<Min<uint32_t>>},
    {Op::kMinS32, Lift<Min<int32_t>>},
    {Op::kMinU64, Lift<Min<uint64_t>>},
    {Op::kMinS64, Lift<Min<int64_t>>},
    {Op::kMaxU16, Lift<Max<uint16_t>>},
    {Op::kMaxS16, Lift<Max<int16_t>>},
    {Op::kMaxU32, Lift<Max<uint32_t>>},
    {Op::kMaxS32, Lift<Max<int32_t>>},
    {Op::kMaxU64, Lift<Max<uint64_t>>},
    {Op::kMaxS64, Lift<Max<int64_t>>},
    {Op::kMinReluS32, Lift<MinRelu>},
    {Op::kMaxReluS32, Lift<MaxRelu>},
    {Op::kAbsS16, Lift<Abs<int16_t>>},
    {Op::kAbsS32, Lift<Abs<int32_t>>},
    {Op::kAbsS64, Lift<Abs<int64_t>>},
    {Op::kNegS16, Lift<Neg<int16_t>>},
    {Op::kNegS32, Lift<Neg<int32_t>>},
    {Op::kNegS64, Lift<Neg<int64_t>>},
    {Op::kAndB32, Lift<And<uint32_t>>},
    {Op::kOrB32, Lift<Or<uint32_t>>},
    {Op::kXorB32, Lift<Xor<uint32_t>>},
    {Op::kNotB16, Lift<Not<uint16_t>>},
    {Op::kNotB32, Lift<Not<uint32_t>>},
    {Op::kAndB64, Lift<And<uint64_t>>},
    {Op::kOrB64, Lift<Or<uint64_t>>},
    {Op::kXorB64, Lift<Xor<uint64_t>>},
    {Op::kNotB64, Lift<Not<uint64_t>>},
    {Op::kCnotB32, Lift<Cnot>},
    {Op::kShlB16, Lift<Shl<uint16_t>>},
    {Op::kShlB32, Lift<Shl<uint32_t>>},
    {Op::kShlB64, Lift<Shl<uint64_t>>},
    {Op::kShrU16, Lift<Shr<uint16_t>>},
    {Op::kShrS16, Lift<Shr<int16_t>>},
    {Op::kShrU32, Lift<Shr<uint32_t>>},
    {Op::kShrS32, Lift<Shr<int32_t>>},
    {Op::kShrU64, Lift<Shr<uint64_t>>},
    {Op::kShrS64, Lift<Shr<int64_t>>},
    {Op::kShfLeftWrap, Lift<ShfLeftWrap>},
    {Op::kShfLeftClamp, Lift<ShfLeftClamp>},
    {Op::kShfRightWrap, Lift<ShfRightWrap>},
    {Op::kShfRightClamp, Lift<ShfRightClamp>},
    {Op::kBfeU32, Lift<Bfe<uint32_t>>},
    {Op::kBfeS32, Lift<Bfe<int32_t>>},
    {Op::kBfeU64, Lift<Bfe<uint64_t>>},
    {Op::kBfeS64, Lift<Bfe<int64_t>>},
    {Op::kBfiB32, Lift<Bfi<uint32_t>>},
    {Op::kBfiB64, Lift<Bfi<uint64_t>>},
    {Op::kBrevB32, Lift<Brev>},
    {Op::kPopcB32, Lift<Popc32>},
    {Op::kPopcB64, Lift<Popc64>},
    {Op::kClzB32, Lift<Clz32>},
    {Op::kClzB64, Lift<Clz64>},
    {Op::kBfindU32, Lift<Bfind>},
    {Op::kBfindShiftU32, Lift<BfindShift>},
    {Op::kPrmt, Lift<Prmt>},
    {Op::kLop3, Lop3},
    {Op::kDp4aS32, Lift<Dp4a<int8_t, int8_t>>},
    {Op::kDp4aU32, Lift<Dp4a<uint8_t, uint8_t>>},
    {Op::kDp4aS32U32, Lift<Dp4a<int8_t, uint8_t>>},
    {Op::kDp4aU32S32, Lift<Dp4a<uint8_t, int8_t>>},
    {Op::kDp2aLoS32, Lift<Dp2a<int16_t, int8_t, 0>>},
    {Op::kDp2aLoU32, Lift<Dp2a<uint16_t, uint8_t, 0>>},
    {Op::kDp2aLoS32U32, Lift<Dp2a<int16_t, uint8_t, 0>>},
    {Op::kDp2aLoU32S32, Lift<Dp2a<uint16_t, int8_t, 0>>},
    {Op::kDp2aHiS32, Lift<Dp2a<int16_t, int8_t, 2>>},
    {Op::kDp2aHiU32, Lift<Dp2a<uint16_t, uint8_t, 2>>},
    {Op::kDp2aHiS32U32, Lift<Dp2a<int16_t, uint8_t, 2>>},
    {Op::kDp2aHiU32S32, Lift<Dp2a<uint16_t, int8_t, 2>>},
};

}  // namespace

void AddIntegerHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
