// Conversions between number formats.
#include <cmath>
#include <limits>

#include "ptx/formats.h"
#include "ptx/lift.h"

namespace jaxpipe::ptx {
namespace {

// cvt.int: type is source bytes | source signed << 4 | destination bytes << 8 | destination
// signed << 12 | saturate << 16. Between float and int: the same fields, and rounding << 20.
struct IntConversion {
  int source_bytes, to_bytes;
  bool source_signed, to_signed, saturate;
  int rounding;
  explicit IntConversion(int32_t type)
      : source_bytes(type & 15),
        to_bytes(type >> 8 & 15),
        source_signed((type >> 4 & 1) != 0),
        to_signed((type >> 12 & 1) != 0),
        saturate((type >> 16 & 1) != 0),
        rounding(type >> 20) {}
};
enum Rounding : int { kToNearest = 0, kToZero = 1, kDown = 2, kUp = 3 };

double RoundTo(double x, int rounding) {
  switch (rounding) {
    case kToZero:
      return std::trunc(x);
    case kDown:
      return std::floor(x);
    case kUp:
      return std::ceil(x);
    default:
      return std::nearbyint(x);
  }
}

uint64_t LowBits(uint64_t value, int bytes) {
  return bytes == 8 ? value : value & ((uint64_t{1} << (8 * bytes)) - 1);
}

// The low `bytes` of value, extended to 64 bits.
uint64_t Extend(uint64_t value, int bytes, bool is_signed) {
  if (bytes == 8) return value;
  const int rest = 64 - 8 * bytes;
  if (is_signed) return static_cast<uint64_t>(static_cast<int64_t>(value << rest) >> rest);
  return value << rest >> rest;
}

uint64_t SaturateInt(uint64_t value, const IntConversion& c) {
  const int bits = 8 * c.to_bytes;
  const __int128 wide = c.source_signed ? static_cast<__int128>(static_cast<int64_t>(value))
                                        : static_cast<__int128>(value);
  const __int128 low = c.to_signed ? -(static_cast<__int128>(1) << (bits - 1)) : 0;
  const __int128 high = (static_cast<__int128>(1) << (c.to_signed ? bits - 1 : bits)) - 1;
  return static_cast<uint64_t>(wide < low ? low : wide > high ? high : wide);
}

// Results narrower than 32 bits are extended to the register: sign or zero by the type.
void PutInt(uint32_t* to, int lane, uint64_t value, const IntConversion& c, bool wide) {
  const uint64_t extended = Extend(value, c.to_bytes, c.to_signed);
  if (wide)
    Put<uint64_t>(to, lane, extended);
  else
    to[lane] = static_cast<uint32_t>(extended);
}

// width is the bytes of the destination register: 2 (zero-extended in its slot), 4 or 8.
void Store(Step& s, const uint64_t (&out)[kLanes], const IntConversion& c) {
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) {
    PutInt(to, lane, out[lane], c, s.ins.width == 8);
    if (s.ins.width == 2) to[lane] &= 0xffff;
  });
}

Flow CvtInt(Step& s) {
  const IntConversion c(s.ins.type);
  uint64_t out[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t in = s.SrcAsU64(0, lane, c.source_bytes == 8);
    out[lane] = Extend(in, c.source_bytes, c.source_signed);
    if (c.saturate) out[lane] = SaturateInt(out[lane], c);
  }
  Store(s, out, c);
  return Flow::kNext;
}

// Out of range saturates, NaN is 0 (PTX ISA, cvt: "clamped ... NaN 0").
uint64_t IntOfDouble(double x, const IntConversion& c) {
  const int bits = 8 * c.to_bytes;
  if (std::isnan(x)) return 0;
  x = RoundTo(x, c.rounding);
  const double high = std::ldexp(1.0, c.to_signed ? bits - 1 : bits);
  const double low = c.to_signed ? -high : 0.0;
  if (x < low) x = low;
  if (x >= high)
    return c.to_signed ? (uint64_t{1} << (bits - 1)) - 1 : LowBits(~uint64_t{0}, c.to_bytes);
  return c.to_signed ? static_cast<uint64_t>(static_cast<int64_t>(x)) : static_cast<uint64_t>(x);
}

Flow FloatToInt(Step& s) {
  const IntConversion c(s.ins.type);
  uint64_t out[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const double x = c.source_bytes == 8 ? Get<double>(s.Src(0), lane)
                                         : static_cast<double>(Get<float>(s.Src(0), lane));
    out[lane] = IntOfDouble(x, c);
  }
  Store(s, out, c);
  return Flow::kNext;
}

template <typename T>
T FloatOfInt(uint64_t value, bool is_signed) {
  return is_signed ? static_cast<T>(static_cast<int64_t>(value)) : static_cast<T>(value);
}

Flow IntToFloat(Step& s) {
  const IntConversion c(s.ins.type);
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) {
    const uint64_t in =
        Extend(s.SrcAsU64(0, lane, c.source_bytes == 8), c.source_bytes, c.source_signed);
    if (c.to_bytes == 8)
      Put<double>(to, lane, FloatOfInt<double>(in, c.source_signed));
    else
      Put<float>(to, lane, FloatOfInt<float>(in, c.source_signed));
  });
  return Flow::kNext;
}

Flow RoundF32(Step& s) {
  uint32_t* to = s.Dst();
  const uint32_t* from = s.Src(0);
  ForLanes(s.mask, [&](int lane) {
    Put<float>(to, lane, static_cast<float>(RoundTo(Get<float>(from, lane), s.ins.type)));
  });
  return Flow::kNext;
}

Flow RoundF64(Step& s) {
  uint32_t* to = s.Dst();
  const uint32_t* from = s.Src(0);
  ForLanes(s.mask,
           [&](int lane) { Put<double>(to, lane, RoundTo(Get<double>(from, lane), s.ins.type)); });
  return Flow::kNext;
}

float Saturate(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN becomes +0
double Widen(float x) { return x; }
float Narrow(double x) { return static_cast<float>(x); }
uint32_t Bf16Pair(float high, float low) {
  return static_cast<uint32_t>(Bf16OfFloat(high)) << 16 | Bf16OfFloat(low);
}
uint32_t F16Pair(float high, float low) {
  return static_cast<uint32_t>(F16OfFloat(high)) << 16 | F16OfFloat(low);
}
uint16_t E4m3Pair(float high, float low) {
  return static_cast<uint16_t>(E4m3OfFloat(high) << 8 | E4m3OfFloat(low));
}
uint16_t E5m2Pair(float high, float low) {
  return static_cast<uint16_t>(E5m2OfFloat(high) << 8 | E5m2OfFloat(low));
}
uint32_t F16PairOfE4m3(uint16_t pair) {
  return F16Pair(FloatOfE4m3(static_cast<uint8_t>(pair >> 8)),
                 FloatOfE4m3(static_cast<uint8_t>(pair)));
}
uint32_t F16PairOfE5m2(uint16_t pair) {
  return F16Pair(FloatOfE5m2(static_cast<uint8_t>(pair >> 8)),
                 FloatOfE5m2(static_cast<uint8_t>(pair)));
}

constexpr HandlerRow kRows[] = {
    {Op::kCvtInt, CvtInt},
    {Op::kFloatToInt, FloatToInt},
    {Op::kIntToFloat, IntToFloat},
    {Op::kRoundF32, RoundF32},
    {Op::kRoundF64, RoundF64},
    {Op::kSatF32, Lift<Saturate>},
    {Op::kFtzF32, Lift<FlushToZero>},
    {Op::kF64FromF32, Lift<Widen>},
    {Op::kF32FromF64, Lift<Narrow>},
    {Op::kF32FromF16, Lift<FloatOfF16>},
    {Op::kF32FromBf16, Lift<FloatOfBf16>},
    {Op::kF16FromF32, Lift<F16OfFloat>},
    {Op::kBf16FromF32, Lift<Bf16OfFloat>},
    {Op::kTf32FromF32, Lift<Tf32OfFloat>},
    {Op::kTf32RnFromF32, Lift<Tf32RnOfFloat>},
    {Op::kF16x2FromF32, Lift<F16Pair>},
    {Op::kBf16x2FromF32, Lift<Bf16Pair>},
    {Op::kE4m3x2FromF32, Lift<E4m3Pair>},
    {Op::kE5m2x2FromF32, Lift<E5m2Pair>},
    {Op::kF16x2FromE4m3x2, Lift<F16PairOfE4m3>},
    {Op::kF16x2FromE5m2x2, Lift<F16PairOfE5m2>},
};

}  // namespace

void AddConvertHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
