// Floating-point arithmetic: float32 (with and without flush to zero), float64, packed halves.
//
// Approximate instructions are evaluated exactly and rounded once: the hardware's are allowed an
// error of a few units in the last place (2^-11 relative for tanh.approx), which tests must grant.
#include <cmath>

#include "ptx/formats.h"
#include "ptx/lift.h"

namespace jaxpipe::ptx {
namespace {

inline float Canonical(float x) { return IsNan(x) ? FloatOf(0x7fffffffu) : x; }

template <bool kFtz>
inline float Flush(float x) {
  if constexpr (kFtz) return FlushToZero(x);
  return x;
}

template <bool kFtz>
float Add(float a, float b) {
  return Flush<kFtz>(Canonical(Flush<kFtz>(a) + Flush<kFtz>(b)));
}
template <bool kFtz>
float Sub(float a, float b) {
  return Flush<kFtz>(Canonical(Flush<kFtz>(a) - Flush<kFtz>(b)));
}
template <bool kFtz>
float Mul(float a, float b) {
  return Flush<kFtz>(Canonical(Flush<kFtz>(a) * Flush<kFtz>(b)));
}
template <bool kFtz>
float Fma(float a, float b, float c) {
  return Flush<kFtz>(Canonical(std::fma(Flush<kFtz>(a), Flush<kFtz>(b), Flush<kFtz>(c))));
}
template <bool kFtz>
float Div(float a, float b) {
  return Flush<kFtz>(Canonical(Flush<kFtz>(a) / Flush<kFtz>(b)));
}
// min and max drop a NaN operand, and -0 is less than +0.
template <bool kFtz>
float Min(float a, float b) {
  a = Flush<kFtz>(a), b = Flush<kFtz>(b);
  if (IsNan(a)) return Canonical(b);
  if (IsNan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <bool kFtz>
float Max(float a, float b) {
  a = Flush<kFtz>(a), b = Flush<kFtz>(b);
  if (IsNan(a)) return Canonical(b);
  if (IsNan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
float MinNan(float a, float b) {
  return IsNan(a) || IsNan(b) ? FloatOf(0x7fffffffu) : Min<false>(a, b);
}
float MaxNan(float a, float b) {
  return IsNan(a) || IsNan(b) ? FloatOf(0x7fffffffu) : Max<false>(a, b);
}
template <bool kFtz>
float Abs(float a) {
  return std::fabs(Flush<kFtz>(a));
}
template <bool kFtz>
float Neg(float a) {
  return -Flush<kFtz>(a);
}
// copysign d, a, b: the sign of a on the magnitude of b.
uint32_t Copysign(uint32_t a, uint32_t b) { return (a & 0x80000000u) | (b & 0x7fffffffu); }

// One elementary function, evaluated in double and rounded once.
template <double (*kFunction)(double), bool kFtz>
float Elementary(float x) {
  return Flush<kFtz>(Canonical(static_cast<float>(kFunction(Flush<kFtz>(x)))));
}
double Exp2(double x) { return std::exp2(x); }
double Log2(double x) { return std::log2(x); }
double Reciprocal(double x) { return 1.0 / x; }
double ReciprocalSqrt(double x) { return 1.0 / std::sqrt(x); }
double Sqrt(double x) { return std::sqrt(x); }
double Sin(double x) { return std::sin(x); }
double Cos(double x) { return std::cos(x); }
double Tanh(double x) { return std::tanh(x); }

double Add64(double a, double b) { return a + b; }
double Sub64(double a, double b) { return a - b; }
double Mul64(double a, double b) { return a * b; }
double Fma64(double a, double b, double c) { return std::fma(a, b, c); }
double Div64(double a, double b) { return a / b; }
double Min64(double a, double b) { return std::fmin(a, b); }
double Max64(double a, double b) { return std::fmax(a, b); }
double Abs64(double a) { return std::fabs(a); }
double Neg64(double a) { return -a; }

// f16, bf16 and their pairs. type: bit 0 bf16, bit 1 packed. Computed in float, where sums and
// products of two halves are exact or rounded as one step would; fma in double for the same reason.
enum HalfType : int32_t { kHalfBf16 = 1, kHalfPacked = 2 };

struct HalfFormat {
  bool bf16;
  float Load(uint32_t bits) const {
    const uint16_t half = static_cast<uint16_t>(bits);
    return bf16 ? FloatOfBf16(half) : FloatOfF16(half);
  }
  uint16_t Store(float value) const { return bf16 ? Bf16OfFloat(value) : F16OfFloat(value); }
};

// A double rounded to float with the last bit sticky, so that rounding on to a half is correct.
float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  uint32_t bits = BitsOf(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) bits--;
  return FloatOf(bits | 1);
}

template <typename F>
Flow HalfMap(Step& s, F&& f) {
  const HalfFormat format{(s.ins.type & kHalfBf16) != 0};
  const int parts = (s.ins.type & kHalfPacked) != 0 ? 2 : 1;
  const uint32_t* in[3] = {};
  for (int i = 0; i < 3; ++i)
    if (s.ins.src[i] != kNone) in[i] = s.Src(i);
  uint32_t out[kLanes] = {};
  ForLanes(s.mask, [&](int lane) {
    for (int part = 0; part < parts; ++part) {
      float x[3] = {};
      for (int i = 0; i < 3; ++i)
        if (in[i] != nullptr) x[i] = format.Load(in[i][lane] >> (16 * part));
      out[lane] |= static_cast<uint32_t>(format.Store(f(x[0], x[1], x[2]))) << (16 * part);
    }
  });
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) { to[lane] = out[lane]; });
  return Flow::kNext;
}

float HalfFmaOf(float a, float b, float c) {
  return RoundToOdd(
      std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)));
}
Flow HalfAdd(Step& s) {
  return HalfMap(s, [](float a, float b, float) { return RoundToOdd(double{a} + double{b}); });
}
Flow HalfSub(Step& s) {
  return HalfMap(s, [](float a, float b, float) { return RoundToOdd(double{a} - double{b}); });
}
Flow HalfMul(Step& s) {
  return HalfMap(s, [](float a, float b, float) { return a * b; });
}
Flow HalfFma(Step& s) { return HalfMap(s, HalfFmaOf); }
Flow HalfFmaRelu(Step& s) {
  return HalfMap(s, [](float a, float b, float c) {
    const float value = HalfFmaOf(a, b, c);
    return value < 0 ? 0.0f : value;
  });
}
Flow HalfMin(Step& s) {
  return HalfMap(s, [](float a, float b, float) { return Min<false>(a, b); });
}
Flow HalfMax(Step& s) {
  return HalfMap(s, [](float a, float b, float) { return Max<false>(a, b); });
}
Flow HalfMinNan(Step& s) {
  return HalfMap(s, [](float a, float b, float) { return MinNan(a, b); });
}
Flow HalfMaxNan(Step& s) {
  return HalfMap(s, [](float a, float b, float) { return MaxNan(a, b); });
}
Flow HalfAbs(Step& s) {
  return HalfMap(s, [](float a, float, float) { return std::fabs(a); });
}
Flow HalfNeg(Step& s) {
  return HalfMap(s, [](float a, float, float) { return -a; });
}
Flow HalfEx2(Step& s) {
  return HalfMap(s, [](float a, float, float) { return static_cast<float>(Exp2(a)); });
}
Flow HalfTanh(Step& s) {
  return HalfMap(s, [](float a, float, float) { return static_cast<float>(Tanh(a)); });
}

constexpr HandlerRow kRows[] = {
    {Op::kAddF32, Lift<Add<false>>},
    {Op::kSubF32, Lift<Sub<false>>},
    {Op::kMulF32, Lift<Mul<false>>},
    {Op::kFmaF32, Lift<Fma<false>>},
    {Op::kDivF32, Lift<Div<false>>},
    {Op::kMinF32, Lift<Min<false>>},
    {Op::kMaxF32, Lift<Max<false>>},
    {Op::kMinNanF32, Lift<MinNan>},
    {Op::kMaxNanF32, Lift<MaxNan>},
    {Op::kAbsF32, Lift<Abs<false>>},
    {Op::kNegF32, Lift<Neg<false>>},
    {Op::kAddFtzF32, Lift<Add<true>>},
    {Op::kSubFtzF32, Lift<Sub<true>>},
    {Op::kMulFtzF32, Lift<Mul<true>>},
    {Op::kFmaFtzF32, Lift<Fma<true>>},
    {Op::kDivFtzF32, Lift<Div<true>>},
    {Op::kMinFtzF32, Lift<Min<true>>},
    {Op::kMaxFtzF32, Lift<Max<true>>},
    {Op::kAbsFtzF32, Lift<Abs<true>>},
    {Op::kNegFtzF32, Lift<Neg<true>>},
    {Op::kCopysignF32, Lift<Copysign>},
    {Op::kEx2F32, Lift<Elementary<Exp2, false>>},
    {Op::kLg2F32, Lift<Elementary<Log2, false>>},
    {Op::kRcpF32, Lift<Elementary<Reciprocal, false>>},
    {Op::kRsqrtF32, Lift<Elementary<ReciprocalSqrt, false>>},
    {Op::kSqrtF32, Lift<Elementary<Sqrt, false>>},
    {Op::kSinF32, Lift<Elementary<Sin, false>>},
    {Op::kCosF32, Lift<Elementary<Cos, false>>},
    {Op::kTanhF32, Lift<Elementary<Tanh, false>>},
    {Op::kEx2FtzF32, Lift<Elementary<Exp2, true>>},
    {Op::kLg2FtzF32, Lift<Elementary<Log2, true>>},
    {Op::kRcpFtzF32, Lift<Elementary<Reciprocal, true>>},
    {Op::kRsqrtFtzF32, Lift<Elementary<ReciprocalSqrt, true>>},
    {Op::kSqrtFtzF32, Lift<Elementary<Sqrt, true>>},
    {Op::kSinFtzF32, Lift<Elementary<Sin, true>>},
    {Op::kCosFtzF32, Lift<Elementary<Cos, true>>},
    {Op::kAddF64, Lift<Add64>},
    {Op::kSubF64, Lift<Sub64>},
    {Op::kMulF64, Lift<Mul64>},
    {Op::kFmaF64, Lift<Fma64>},
    {Op::kDivF64, Lift<Div64>},
    {Op::kMinF64, Lift<Min64>},
    {Op::kMaxF64, Lift<Max64>},
    {Op::kAbsF64, Lift<Abs64>},
    {Op::kNegF64, Lift<Neg64>},
    {Op::kRcpF64, Lift<Reciprocal>},
    {Op::kSqrtF64, Lift<Sqrt>},
    {Op::kHalfAdd, HalfAdd},
    {Op::kHalfSub, HalfSub},
    {Op::kHalfMul, HalfMul},
    {Op::kHalfFma, HalfFma},
    {Op::kHalfFmaRelu, HalfFmaRelu},
    {Op::kHalfMin, HalfMin},
    {Op::kHalfMax, HalfMax},
    {Op::kHalfMinNan, HalfMinNan},
    {Op::kHalfMaxNan, HalfMaxNan},
    {Op::kHalfAbs, HalfAbs},
    {Op::kHalfNeg, HalfNeg},
    {Op::kHalfEx2, HalfEx2},
    {Op::kHalfTanh, HalfTanh},
};

}  // namespace

void AddFloatHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
