// The operations of the interpreter: one row an operation, the name is what the encoder asks for.
//
// A PTX instruction is encoded (jaxpipe/ptx/encode.py) into one of these. Widths that behave alike
// share a row: 16-bit values live zero-extended in 32-bit slots, predicates in masks of 32 lanes.
#ifndef JAXPIPE_PTX_OPCODES_H_
#define JAXPIPE_PTX_OPCODES_H_

#include <cstdint>

namespace jaxpipe::ptx {

// X(enumerator, name)
#define JAXPIPE_PTX_OPS(X)                         \
  X(kNop, "nop")                                   \
  X(kMovB32, "mov.b32")                            \
  X(kMovB64, "mov.b64")                            \
  X(kMovPred, "mov.pred")                          \
  X(kPack, "pack")                                 \
  X(kUnpack, "unpack")                             \
  X(kAddB16, "add.b16")                            \
  X(kAddB32, "add.b32")                            \
  X(kAddB64, "add.b64")                            \
  X(kSubB16, "sub.b16")                            \
  X(kSubB32, "sub.b32")                            \
  X(kSubB64, "sub.b64")                            \
  X(kMulB16, "mul.lo.b16")                         \
  X(kMulB32, "mul.lo.b32")                         \
  X(kMulB64, "mul.lo.b64")                         \
  X(kMulHiU32, "mul.hi.u32")                       \
  X(kMulHiS32, "mul.hi.s32")                       \
  X(kMulHiU64, "mul.hi.u64")                       \
  X(kMulHiS64, "mul.hi.s64")                       \
  X(kMulWideU16, "mul.wide.u16")                   \
  X(kMulWideS16, "mul.wide.s16")                   \
  X(kMulWideU32, "mul.wide.u32")                   \
  X(kMulWideS32, "mul.wide.s32")                   \
  X(kMadB16, "mad.lo.b16")                         \
  X(kMadB32, "mad.lo.b32")                         \
  X(kMadB64, "mad.lo.b64")                         \
  X(kMadHiU32, "mad.hi.u32")                       \
  X(kMadHiS32, "mad.hi.s32")                       \
  X(kMadWideU32, "mad.wide.u32")                   \
  X(kMadWideS32, "mad.wide.s32")                   \
  X(kDivU16, "div.u16")                            \
  X(kDivS16, "div.s16")                            \
  X(kDivU32, "div.u32")                            \
  X(kDivS32, "div.s32")                            \
  X(kDivU64, "div.u64")                            \
  X(kDivS64, "div.s64")                            \
  X(kRemU16, "rem.u16")                            \
  X(kRemS16, "rem.s16")                            \
  X(kRemU32, "rem.u32")                            \
  X(kRemS32, "rem.s32")                            \
  X(kRemU64, "rem.u64")                            \
  X(kRemS64, "rem.s64")                            \
  X(kMinU16, "min.u16")                            \
  X(kMinS16, "min.s16")                            \
  X(kMinU32, "min.u32")                            \
  X(kMinS32, "min.s32")                            \
  X(kMinU64, "min.u64")                            \
  X(kMinS64, "min.s64")                            \
  X(kMaxU16, "max.u16")                            \
  X(kMaxS16, "max.s16")                            \
  X(kMaxU32, "max.u32")                            \
  X(kMaxS32, "max.s32")                            \
  X(kMaxU64, "max.u64")                            \
  X(kMaxS64, "max.s64")                            \
  X(kMinReluS32, "min.relu.s32")                   \
  X(kMaxReluS32, "max.relu.s32")                   \
  X(kAbsS16, "abs.s16")                            \
  X(kAbsS32, "abs.s32")                            \
  X(kAbsS64, "abs.s64")                            \
  X(kNegS16, "neg.s16")                            \
  X(kNegS32, "neg.s32")                            \
  X(kNegS64, "neg.s64")                            \
  X(kAndB32, "and.b32")                            \
  X(kOrB32, "or.b32")                              \
  X(kXorB32, "xor.b32")                            \
  X(kNotB16, "not.b16")                            \
  X(kNotB32, "not.b32")                            \
  X(kAndB64, "and.b64")                            \
  X(kOrB64, "or.b64")                              \
  X(kXorB64, "xor.b64")                            \
  X(kNotB64, "not.b64")                            \
  X(kCnotB32, "cnot.b32")                          \
  X(kShlB16, "shl.b16")                            \
  X(kShlB32, "shl.b32")                            \
  X(kShlB64, "shl.b64")                            \
  X(kShrU16, "shr.u16")                            \
  X(kShrS16, "shr.s16")                            \
  X(kShrU32, "shr.u32")                            \
  X(kShrS32, "shr.s32")                            \
  X(kShrU64, "shr.u64")                            \
  X(kShrS64, "shr.s64")                            \
  X(kShfLeftWrap, "shf.l.wrap.b32")                \
  X(kShfLeftClamp, "shf.l.clamp.b32")              \
  X(kShfRightWrap, "shf.r.wrap.b32")               \
  X(kShfRightClamp, "shf.r.clamp.b32")             \
  X(kBfeU32, "bfe.u32")                            \
  X(kBfeS32, "bfe.s32")                            \
  X(kBfeU64, "bfe.u64")                            \
  X(kBfeS64, "bfe.s64")                            \
  X(kBfiB32, "bfi.b32")                            \
  X(kBfiB64, "bfi.b64")                            \
  X(kBrevB32, "brev.b32")                          \
  X(kPopcB32, "popc.b32")                          \
  X(kPopcB64, "popc.b64")                          \
  X(kClzB32, "clz.b32")                            \
  X(kClzB64, "clz.b64")                            \
  X(kBfindU32, "bfind.u32")                        \
  X(kBfindShiftU32, "bfind.shiftamt.u32")          \
  X(kPrmt, "prmt.b32")                             \
  X(kLop3, "lop3.b32")                             \
  X(kDp4aS32, "dp4a.s32.s32")                      \
  X(kDp4aU32, "dp4a.u32.u32")                      \
  X(kDp4aS32U32, "dp4a.s32.u32")                   \
  X(kDp4aU32S32, "dp4a.u32.s32")                   \
  X(kDp2aLoS32, "dp2a.lo.s32.s32")                 \
  X(kDp2aLoU32, "dp2a.lo.u32.u32")                 \
  X(kDp2aLoS32U32, "dp2a.lo.s32.u32")              \
  X(kDp2aLoU32S32, "dp2a.lo.u32.s32")              \
  X(kDp2aHiS32, "dp2a.hi.s32.s32")                 \
  X(kDp2aHiU32, "dp2a.hi.u32.u32")                 \
  X(kDp2aHiS32U32, "dp2a.hi.s32.u32")              \
  X(kDp2aHiU32S32, "dp2a.hi.u32.s32")              \
  X(kSetp, "setp")                                 \
  X(kSelpB32, "selp.b32")                          \
  X(kSelpB64, "selp.b64")                          \
  X(kAndPred, "and.pred")                          \
  X(kOrPred, "or.pred")                            \
  X(kXorPred, "xor.pred")                          \
  X(kNotPred, "not.pred")                          \
  X(kCvtInt, "cvt.int")                            \
  X(kFloatToInt, "cvt.float.int")                  \
  X(kIntToFloat, "cvt.int.float")                  \
  X(kRoundF32, "cvt.round.f32")                    \
  X(kRoundF64, "cvt.round.f64")                    \
  X(kSatF32, "cvt.sat.f32")                        \
  X(kFtzF32, "cvt.ftz.f32")                        \
  X(kF64FromF32, "cvt.f64.f32")                    \
  X(kF32FromF64, "cvt.f32.f64")                    \
  X(kF32FromF16, "cvt.f32.f16")                    \
  X(kF32FromBf16, "cvt.f32.bf16")                  \
  X(kF16FromF32, "cvt.f16.f32")                    \
  X(kBf16FromF32, "cvt.bf16.f32")                  \
  X(kTf32FromF32, "cvt.rna.tf32.f32")              \
  X(kTf32RnFromF32, "cvt.rn.tf32.f32")             \
  X(kF16x2FromF32, "cvt.f16x2.f32")                \
  X(kBf16x2FromF32, "cvt.bf16x2.f32")              \
  X(kE4m3x2FromF32, "cvt.e4m3x2.f32")              \
  X(kE5m2x2FromF32, "cvt.e5m2x2.f32")              \
  X(kF16x2FromE4m3x2, "cvt.f16x2.e4m3x2")          \
  X(kF16x2FromE5m2x2, "cvt.f16x2.e5m2x2")          \
  X(kAddF32, "add.f32")                            \
  X(kSubF32, "sub.f32")                            \
  X(kMulF32, "mul.f32")                            \
  X(kFmaF32, "fma.f32")                            \
  X(kDivF32, "div.f32")                            \
  X(kMinF32, "min.f32")                            \
  X(kMaxF32, "max.f32")                            \
  X(kMinNanF32, "min.nan.f32")                     \
  X(kMaxNanF32, "max.nan.f32")                     \
  X(kAbsF32, "abs.f32")                            \
  X(kNegF32, "neg.f32")                            \
  X(kAddFtzF32, "add.ftz.f32")                     \
  X(kSubFtzF32, "sub.ftz.f32")                     \
  X(kMulFtzF32, "mul.ftz.f32")                     \
  X(kFmaFtzF32, "fma.ftz.f32")                     \
  X(kDivFtzF32, "div.ftz.f32")                     \
  X(kMinFtzF32, "min.ftz.f32")                     \
  X(kMaxFtzF32, "max.ftz.f32")                     \
  X(kAbsFtzF32, "abs.ftz.f32")                     \
  X(kNegFtzF32, "neg.ftz.f32")                     \
  X(kCopysignF32, "copysign.f32")                  \
  X(kEx2F32, "ex2.f32")                            \
  X(kLg2F32, "lg2.f32")                            \
  X(kRcpF32, "rcp.f32")                            \
  X(kRsqrtF32, "rsqrt.f32")                        \
  X(kSqrtF32, "sqrt.f32")                          \
  X(kSinF32, "sin.f32")                            \
  X(kCosF32, "cos.f32")                            \
  X(kTanhF32, "tanh.f32")                          \
  X(kEx2FtzF32, "ex2.ftz.f32")                     \
  X(kLg2FtzF32, "lg2.ftz.f32")                     \
  X(kRcpFtzF32, "rcp.ftz.f32")                     \
  X(kRsqrtFtzF32, "rsqrt.ftz.f32")                 \
  X(kSqrtFtzF32, "sqrt.ftz.f32")                   \
  X(kSinFtzF32, "sin.ftz.f32")                     \
  X(kCosFtzF32, "cos.ftz.f32")                     \
  X(kTestpNan, "testp.notanumber.f32")             \
  X(kTestpInf, "testp.infinite.f32")               \
  X(kTestpFinite, "testp.finite.f32")              \
  X(kAddF64, "add.f64")                            \
  X(kSubF64, "sub.f64")                            \
  X(kMulF64, "mul.f64")                            \
  X(kFmaF64, "fma.f64")                            \
  X(kDivF64, "div.f64")                            \
  X(kMinF64, "min.f64")                            \
  X(kMaxF64, "max.f64")                            \
  X(kAbsF64, "abs.f64")                            \
  X(kNegF64, "neg.f64")                            \
  X(kRcpF64, "rcp.f64")                            \
  X(kSqrtF64, "sqrt.f64")                          \
  X(kHalfAdd, "half.add")                          \
  X(kHalfSub, "half.sub")                          \
  X(kHalfMul, "half.mul")                          \
  X(kHalfFma, "half.fma")                          \
  X(kHalfFmaRelu, "half.fma.relu")                 \
  X(kHalfMin, "half.min")                          \
  X(kHalfMax, "half.max")                          \
  X(kHalfMinNan, "half.min.nan")                   \
  X(kHalfMaxNan, "half.max.nan")                   \
  X(kHalfAbs, "half.abs")                          \
  X(kHalfNeg, "half.neg")                          \
  X(kHalfEx2, "half.ex2")                          \
  X(kHalfTanh, "half.tanh")                        \
  X(kCvtaToShared, "cvta.to.shared")               \
  X(kCvtaShared, "cvta.shared")                    \
  X(kCvtaToLocal, "cvta.to.local")                 \
  X(kCvtaLocal, "cvta.local")                      \
  X(kCvtaParam, "cvta.param")                      \
  X(kIsSpace, "isspacep")                          \
  X(kMapa, "mapa")                                 \
  X(kGetCtaRank, "getctarank")                     \
  X(kLoad, "ld")                                   \
  X(kStore, "st")                                  \
  X(kAtom, "atom")                                 \
  X(kFence, "fence")                               \
  X(kFenceProxyAsync, "fence.proxy.async")         \
  X(kFenceProxyTensormap, "fence.proxy.tensormap") \
  X(kFenceMbarrierInit, "fence.mbarrier_init")     \
  X(kShfl, "shfl.sync")                            \
  X(kVote, "vote.sync")                            \
  X(kMatch, "match.sync")                          \
  X(kRedux, "redux.sync")                          \
  X(kActiveMask, "activemask")                     \
  X(kElect, "elect.sync")                          \
  X(kWarpSync, "bar.warp.sync")                    \
  X(kBranch, "bra")                                \
  X(kBranchIndexed, "brx.idx")                     \
  X(kExit, "exit")                                 \
  X(kTrap, "trap")                                 \
  X(kBarSync, "bar.sync")                          \
  X(kBarArrive, "bar.arrive")                      \
  X(kBarRed, "bar.red")                            \
  X(kClusterArrive, "barrier.cluster.arrive")      \
  X(kClusterWait, "barrier.cluster.wait")          \
  X(kSetMaxNReg, "setmaxnreg")                     \
  X(kClock, "clock")                               \
  X(kLdMatrix, "ldmatrix")                         \
  X(kStMatrix, "stmatrix")                         \
  X(kMma, "mma.sync")                              \
  X(kCpAsync, "cp.async")                          \
  X(kCpAsyncCommit, "cp.async.commit_group")       \
  X(kCpAsyncWait, "cp.async.wait_group")           \
  X(kCpAsyncArrive, "cp.async.mbarrier.arrive")    \
  X(kMbarrierInit, "mbarrier.init")                \
  X(kMbarrierInval, "mbarrier.inval")              \
  X(kMbarrierArrive, "mbarrier.arrive")            \
  X(kMbarrierExpectTx, "mbarrier.expect_tx")       \
  X(kMbarrierWait, "mbarrier.wait")                \
  X(kTmaLoad, "tma.load")                          \
  X(kTmaStore, "tma.store")                        \
  X(kBulkLoad, "bulk.load")                        \
  X(kBulkStore, "bulk.store")                      \
  X(kBulkCommit, "bulk.commit_group")              \
  X(kBulkWait, "bulk.wait_group")                  \
  X(kTensormapReplace, "tensormap.replace")        \
  X(kTensormapCopy, "tensormap.cp_fenceproxy")     \
  X(kWgmmaFence, "wgmma.fence")                    \
  X(kWgmma, "wgmma.mma_async")                     \
  X(kWgmmaCommit, "wgmma.commit_group")            \
  X(kWgmmaWait, "wgmma.wait_group")

enum class Op : int32_t {
#define X(enumerator, name) enumerator,
  JAXPIPE_PTX_OPS(X)
#undef X
      kCount
};

inline constexpr int kOpCount = static_cast<int>(Op::kCount);

inline const char* OpName(Op op) {
  static constexpr const char* kNames[] = {
#define X(enumerator, name) name,
      JAXPIPE_PTX_OPS(X)
#undef X
  };
  return kNames[static_cast<int>(op)];
}

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_OPCODES_H_
