// Comparisons, selection and predicates.
#include <cmath>

#include "ptx/formats.h"
#include "ptx/lift.h"

namespace jaxpipe::ptx {
namespace {

// Comparisons. type: compare | number type << 4 | combination << 8; shared with encode.py.
enum Compare : int {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNanCmp
};
enum NumberType : int { kU16, kS16, kU32, kS32, kU64, kS64, kF32, kF64, kF16, kBf16, kF32Ftz };
enum Combine : int { kNoCombine, kAnd, kOr, kXor };

template <typename T>
bool Unordered(T a, T b) {
  return a != a || b != b;
}

template <typename T>
bool Holds(int compare, T a, T b) {
  switch (compare) {
    case kEq:
      return a == b;
    case kNe:
      return a != b && !Unordered(a, b);
    case kLt:
      return a < b;
    case kLe:
      return a <= b;
    case kGt:
      return a > b;
    case kGe:
      return a >= b;
    case kEqu:
      return a == b || Unordered(a, b);
    case kNeu:
      return a != b;
    case kLtu:
      return a < b || Unordered(a, b);
    case kLeu:
      return a <= b || Unordered(a, b);
    case kGtu:
      return a > b || Unordered(a, b);
    case kGeu:
      return a >= b || Unordered(a, b);
    case kNum:
      return !Unordered(a, b);
    default:
      return Unordered(a, b);
  }
}

template <typename T>
uint32_t CompareLanes(const Step& s, int compare) {
  const uint32_t *a = s.Src(0), *b = s.Src(1);
  uint32_t out = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    out |= static_cast<uint32_t>(Holds<T>(compare, Get<T>(a, lane), Get<T>(b, lane))) << lane;
  return out;
}

template <float (*kLoad)(uint16_t)>
uint32_t CompareHalves(const Step& s, int compare) {
  const uint32_t *a = s.Src(0), *b = s.Src(1);
  uint32_t out = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    out |= static_cast<uint32_t>(Holds<float>(compare, kLoad(static_cast<uint16_t>(a[lane])),
                                              kLoad(static_cast<uint16_t>(b[lane]))))
           << lane;
  return out;
}

uint32_t CompareFlushed(const Step& s, int compare) {
  const uint32_t *a = s.Src(0), *b = s.Src(1);
  uint32_t out = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    out |= static_cast<uint32_t>(Holds<float>(compare, FlushToZero(Get<float>(a, lane)),
                                              FlushToZero(Get<float>(b, lane))))
           << lane;
  return out;
}

uint32_t CompareBy(const Step& s, int compare, int type) {
  switch (type) {
    case kU16:
      return CompareLanes<uint16_t>(s, compare);
    case kS16:
      return CompareLanes<int16_t>(s, compare);
    case kU32:
      return CompareLanes<uint32_t>(s, compare);
    case kS32:
      return CompareLanes<int32_t>(s, compare);
    case kU64:
      return CompareLanes<uint64_t>(s, compare);
    case kS64:
      return CompareLanes<int64_t>(s, compare);
    case kF32:
      return CompareLanes<float>(s, compare);
    case kF64:
      return CompareLanes<double>(s, compare);
    case kF16:
      return CompareHalves<FloatOfF16>(s, compare);
    case kBf16:
      return CompareHalves<FloatOfBf16>(s, compare);
    default:
      return CompareFlushed(s, compare);
  }
}

void SetPredicate(Step& s, int32_t slot, uint32_t value) {
  if (slot == kNone) return;
  uint32_t& p = s.warp.predicates[slot];
  p = (p & ~s.mask) | (value & s.mask);
}

uint32_t CombineWith(int combine, uint32_t a, uint32_t b) {
  switch (combine) {
    case kAnd:
      return a & b;
    case kOr:
      return a | b;
    case kXor:
      return a ^ b;
    default:
      return a;
  }
}

// setp p|q: q is the negated comparison, combined in the same way.
Flow Setp(Step& s) {
  const uint32_t value = CompareBy(s, s.ins.type & 15, s.ins.type >> 4 & 15);
  const int combine = s.ins.type >> 8;
  const uint32_t operand = s.PredicateOperand();
  SetPredicate(s, s.ins.pdst[0], CombineWith(combine, value, operand));
  SetPredicate(s, s.ins.pdst[1], CombineWith(combine, ~value, operand));
  return Flow::kNext;
}

template <typename T>
Flow Selp(Step& s) {
  const uint32_t *a = s.Src(0), *b = s.Src(1);
  const uint32_t pick = s.PredicateOperand();
  T out[kLanes];
  for (int lane = 0; lane < kLanes; ++lane)
    out[lane] = (pick >> lane & 1) != 0 ? Get<T>(a, lane) : Get<T>(b, lane);
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) { Put<T>(to, lane, out[lane]); });
  return Flow::kNext;
}

// and.pred and its kind: the list holds the predicate slots of the sources.
template <int kCombine>
Flow PredicateLogic(Step& s) {
  const uint32_t a = s.PredicateOperand();
  const uint32_t b = s.warp.predicates[s.ins.imm];
  SetPredicate(s, s.ins.pdst[0], CombineWith(kCombine, a, b));
  return Flow::kNext;
}
Flow NotPred(Step& s) {
  SetPredicate(s, s.ins.pdst[0], ~s.PredicateOperand());
  return Flow::kNext;
}
Flow MovPred(Step& s) {
  SetPredicate(s, s.ins.pdst[0], s.PredicateOperand());
  return Flow::kNext;
}

template <typename F>
Flow TestFloat(Step& s, F&& holds) {
  uint32_t out = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    out |= static_cast<uint32_t>(holds(Get<float>(s.Src(0), lane))) << lane;
  SetPredicate(s, s.ins.pdst[0], out);
  return Flow::kNext;
}
Flow TestNan(Step& s) {
  return TestFloat(s, [](float x) { return IsNan(x); });
}
Flow TestInf(Step& s) {
  return TestFloat(s, [](float x) { return std::isinf(x); });
}
Flow TestFinite(Step& s) {
  return TestFloat(s, [](float x) { return std::isfinite(x); });
}

constexpr HandlerRow kRows[] = {
    {Op::kMovPred, MovPred},
    {Op::kSetp, Setp},
    {Op::kSelpB32, Selp<uint32_t>},
    {Op::kSelpB64, Selp<uint64_t>},
    {Op::kAndPred, PredicateLogic<kAnd>},
    {Op::kOrPred, PredicateLogic<kOr>},
    {Op::kXorPred, PredicateLogic<kXor>},
    {Op::kNotPred, NotPred},
    {Op::kTestpNan, TestNan},
    {Op::kTestpInf, TestInf},
    {Op::kTestpFinite, TestFinite},
};

}  // namespace

void AddPredicateHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
