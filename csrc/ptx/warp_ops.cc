// Instructions between the lanes of a warp: shuffles, votes, matches, reductions, election.
#include <algorithm>

#include "ptx/machine.h"

namespace jaxpipe::ptx {
namespace {

// Variants, shared with encode.py.
enum ShflMode : int { kBfly, kDown, kUp, kIdx };
enum VoteMode : int { kVoteAll, kVoteAny, kVoteUni, kVoteBallot };
enum ReduxMode : int {
  kReduxAdd,
  kReduxMinS,
  kReduxMaxS,
  kReduxMinU,
  kReduxMaxU,
  kReduxAnd,
  kReduxOr,
  kReduxXor
};

void SetPredicate(Step& s, int32_t slot, uint32_t value) {
  if (slot == kNone) return;
  uint32_t& p = s.warp.predicates[slot];
  p = (p & ~s.mask) | (value & s.mask);
}

// The lane that `lane` reads from, and whether it lies in range (PTX ISA, shfl.sync).
int ShflSource(int mode, int lane, int b, uint32_t c, bool* in_range) {
  const int clamp = static_cast<int>(c & 31);
  const int segment = static_cast<int>(c >> 8 & 31);
  const int lowest = lane & segment;
  const int highest = (lane & segment) | (clamp & ~segment);
  int from = lowest | (b & ~segment);  // idx
  if (mode == kBfly) from = lane ^ b;
  if (mode == kDown) from = lane + b;
  if (mode == kUp) from = lane - b;
  *in_range = mode == kUp ? from >= highest : from <= highest;
  return *in_range ? from : lane;
}

Flow Shfl(Step& s) {
  const uint32_t *a = s.Src(0), *b = s.Src(1), *c = s.Src(2);
  uint32_t out[kLanes] = {};
  uint32_t valid = 0;
  int inactive = -1;
  ForLanes(s.mask, [&](int lane) {
    bool in_range = false;
    const int from =
        ShflSource(s.ins.type, lane, static_cast<int>(b[lane] & 31), c[lane], &in_range);
    if ((s.mask >> (from & 31) & 1) == 0) inactive = lane;
    out[lane] = a[from & 31];
    valid |= static_cast<uint32_t>(in_range) << lane;
  });
  if (inactive >= 0)
    return s.Fault(HazardKind::kDivergence, inactive, 0,
                   "shfl reads a lane that does not take part");
  uint32_t* to = s.Dst();
  ForLanes(s.mask, [&](int lane) { to[lane] = out[lane]; });
  SetPredicate(s, s.ins.pdst[0], valid);
  return Flow::kNext;
}

Flow Vote(Step& s) {
  const uint32_t holds = s.PredicateOperand() & s.mask;
  if (s.ins.type == kVoteBallot) {
    ForLanes(s.mask, [&](int lane) { s.Dst()[lane] = holds; });
    return Flow::kNext;
  }
  bool value = holds == s.mask;
  if (s.ins.type == kVoteAny) value = holds != 0;
  if (s.ins.type == kVoteUni) value = holds == s.mask || holds == 0;
  SetPredicate(s, s.ins.pdst[0], value ? kAllLanes : 0);
  return Flow::kNext;
}

// match.any: which lanes hold my value; match.all: all lanes when all agree.
Flow Match(Step& s) {
  const bool wide = s.ins.width == 8;
  uint32_t out[kLanes] = {};
  ForLanes(s.mask, [&](int lane) {
    ForLanes(s.mask, [&](int other) {
      const bool same = s.SrcAsU64(0, lane, wide) == s.SrcAsU64(0, other, wide);
      out[lane] |= static_cast<uint32_t>(same) << other;
    });
  });
  const bool all = out[FirstLane(s.mask)] == s.mask;
  ForLanes(s.mask, [&](int lane) {
    s.Dst()[lane] = s.ins.type == kVoteAny ? out[lane] : (all ? s.mask : 0);
  });
  SetPredicate(s, s.ins.pdst[0], all ? kAllLanes : 0);
  return Flow::kNext;
}

uint32_t Reduce(int mode, uint32_t a, uint32_t b) {
  const int32_t x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
  switch (mode) {
    case kReduxAdd:
      return a + b;
    case kReduxMinS:
      return static_cast<uint32_t>(std::min(x, y));
    case kReduxMaxS:
      return static_cast<uint32_t>(std::max(x, y));
    case kReduxMinU:
      return std::min(a, b);
    case kReduxMaxU:
      return std::max(a, b);
    case kReduxAnd:
      return a & b;
    case kReduxOr:
      return a | b;
    default:
      return a ^ b;
  }
}

Flow Redux(Step& s) {
  const uint32_t* a = s.Src(0);
  const int first = FirstLane(s.mask);
  uint32_t value = a[first];
  ForLanes(s.mask & ~(1u << first), [&](int lane) { value = Reduce(s.ins.type, value, a[lane]); });
  ForLanes(s.mask, [&](int lane) { s.Dst()[lane] = value; });
  return Flow::kNext;
}

Flow ActiveMask(Step& s) {
  ForLanes(s.mask, [&](int lane) { s.Dst()[lane] = s.mask; });
  return Flow::kNext;
}

// elect.sync: PTX leaves open which lane; ours takes the lowest, as hardware does.
Flow Elect(Step& s) {
  const int leader = FirstLane(s.mask);
  if (s.ins.dst != kNone)
    ForLanes(s.mask, [&](int lane) { s.Dst()[lane] = static_cast<uint32_t>(leader); });
  SetPredicate(s, s.ins.pdst[0], 1u << leader);
  return Flow::kNext;
}

// %clock and %globaltimer: the number of instructions that the cluster has executed.
Flow Clock(Step& s) {
  ForLanes(s.mask, [&](int lane) {
    if (s.ins.width == 8)
      Put<uint64_t>(s.Dst(), lane, s.cluster.steps);
    else
      s.Dst()[lane] = static_cast<uint32_t>(s.cluster.steps);
  });
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kShfl, Shfl},   {Op::kVote, Vote},   {Op::kMatch, Match},
    {Op::kRedux, Redux}, {Op::kElect, Elect}, {Op::kActiveMask, ActiveMask},
    {Op::kClock, Clock},
};

}  // namespace

void AddWarpHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
