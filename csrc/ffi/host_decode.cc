#include "ffi/host_decode.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace jaxpipe {
namespace {

using host::Operand;

// The fields of `config`, in order. jaxpipe/runtime/host.py names them alike.
enum Field : size_t {
  kVersion,
  kM,
  kN,
  kK,
  kBatch0,
  kBatch1,
  kLhsRowStride,
  kLhsColStride,
  kLhsBatchStride0,
  kLhsBatchStride1,
  kRhsRowStride,
  kRhsColStride,
  kRhsBatchStride0,
  kRhsBatchStride1,
  kAlphaBits,  // float32 bits
  kBiasKind,
  kActivation,
  kResidual,  // 0: none, 1: added, 1 + i: a pre-activation of activation i, then kAddedFirst
  kSavePreactivation,
  kIsa,
  kPath,
  kRows,
  kStrip,
  kBlockM,
  kBlockK,
  kOrder,
  kPack,
  kStages,
  kPrefetchRows,
  kCopyLhs,
  kThreads,
  kIsConvolution,
  kImageBatch,
  kImageHeight,
  kImageWidth,
  kImageChannels,
  kOutHeight,
  kOutWidth,
  kKernelH,
  kKernelW,
  kStrideH,
  kStrideW,
  kPadTop,
  kPadLeft,
  kDilationH,
  kDilationW,
  kPackedCols,   // columns of a panel of a packed rhs, 0: rhs is not packed
  kPackedTerms,  // its rows in a word
  kNumFields,
};

constexpr int64_t kDynamic = -1;
constexpr int64_t kAddedFirst = 1 + host::kNumActivations;
constexpr const char* kIsaNames[] = {"", "portable", "avx2", "avx512", "avx512_bf16"};
constexpr int64_t kNumIsas = sizeof(kIsaNames) / sizeof(kIsaNames[0]);

Status Mismatch(const std::string& what, int64_t got, int64_t want) {
  return InvalidArgument("jaxpipe_host_gemm: " + what + " is " + std::to_string(got) +
                         ", this build takes " + std::to_string(want) +
                         ": the program was lowered by another version of jaxpipe, lower it again");
}

// Dimension `from_end` of a buffer, counted from its last, 1; 1 where it has none.
int64_t DimFromEnd(const HostBuffer& buffer, size_t from_end) {
  return from_end <= buffer.rank ? buffer.dims[buffer.rank - from_end] : 1;
}

void Settle(int64_t* field, int64_t value) {
  if (*field == kDynamic) *field = value;
}

// Strides of an operand stored as [batch..., rows, cols], or with cols before rows.
void SettleStrides(const int64_t* batch, int64_t rows, int64_t cols, int64_t* strides) {
  Settle(&strides[0], cols);
  Settle(&strides[1], rows);
  Settle(&strides[3], rows * cols);
  Settle(&strides[2], batch[1] * rows * cols);
}

// Sizes and dense strides that the program left to the call: those of its result, [batch..., m, n]
// or [images, height, width, n]; k is the lhs's.
void SettleSizes(const HostCall& call, int64_t* c) {
  const HostBuffer& out = call.results[0];
  if (c[kIsConvolution]) {
    const int64_t images = DimFromEnd(out, 4);
    Settle(&c[kImageBatch], images);
    Settle(&c[kM], images * DimFromEnd(out, 3) * DimFromEnd(out, 2));
    return;
  }
  Settle(&c[kN], DimFromEnd(out, 1));
  Settle(&c[kM], DimFromEnd(out, 2));
  Settle(&c[kBatch1], DimFromEnd(out, 3));
  Settle(&c[kBatch0], DimFromEnd(out, 4));
  Settle(&c[kK], DimFromEnd(call.operands[0], c[kLhsRowStride] == 1 ? 2 : 1));
  SettleStrides(c + kBatch0, c[kM], c[kK], c + kLhsRowStride);
  SettleStrides(c + kBatch0, c[kK], c[kN], c + kRhsRowStride);
}

Status CheckWords(const int64_t* c) {
  struct Limit {
    Field field;
    const char* name;
    int64_t end;
  };
  const Limit limits[] = {
      {kBiasKind, "bias kind", 3},
      {kActivation, "activation", host::kNumActivations},
      {kResidual, "residual kind", kAddedFirst + 1},
      {kSavePreactivation, "preactivation flag", 2},
      {kIsa, "isa", kNumIsas},
      {kPath, "path", 2},
      {kOrder, "order", 2},
      {kPack, "pack", 2},
      {kIsConvolution, "convolution flag", 2},
  };
  for (const Limit& limit : limits) {
    if (c[limit.field] < 0 || c[limit.field] >= limit.end) {
      return Mismatch(std::string("the number of ") + limit.name, c[limit.field], limit.end - 1);
    }
  }
  for (size_t i = kM; i < kNumFields; ++i) {
    if (i != kAlphaBits && c[i] < 0) {
      return InvalidArgument("jaxpipe_host_gemm: field " + std::to_string(i) + " is " +
                             std::to_string(c[i]) + ": it must be >= 0");
    }
  }
  return Status();
}

Status FillOperand(const char* name, const HostBuffer& buffer, const int64_t* strides,
                   const int64_t* batch, int64_t rows, int64_t cols, Operand* out) {
  out->data = buffer.data;
  out->dtype = buffer.dtype;
  out->row_stride = strides[0];
  out->col_stride = strides[1];
  out->batch_stride[0] = strides[2];
  out->batch_stride[1] = strides[3];
  if (rows == 0 || cols == 0 || batch[0] == 0 || batch[1] == 0) return Status();
  const int64_t last = (rows - 1) * strides[0] + (cols - 1) * strides[1] +
                       (batch[0] - 1) * strides[2] + (batch[1] - 1) * strides[3];
  if (last < buffer.elements) return Status();
  return InvalidArgument(std::string("jaxpipe_host_gemm: ") + name + " has " +
                         std::to_string(buffer.elements) +
                         " elements, its layout reaches element " + std::to_string(last));
}

// The whole rhs as panels: their width and words are those of the kernels that will run.
Status FillPackedRhs(const int64_t* c, HostCall* call) {
  const HostBuffer& buffer = call->operands[1];
  host::Gemm& gemm = call->gemm;
  const int64_t cols = call->kernels->panel_cols;
  const int64_t terms = buffer.dtype == host::DType::kBF16 && call->kernels->has_bf16 ? 2 : 1;
  if (static_cast<int>(buffer.dtype) >= host::kNumFloatTypes) {
    return InvalidArgument(
        "jaxpipe_host_gemm: packed weights must be float32, bfloat16 or float16");
  }
  if (c[kPackedCols] != cols || c[kPackedTerms] != terms) {
    return InvalidArgument("jaxpipe_host_gemm: the weights were packed for panels of " +
                           std::to_string(c[kPackedCols]) + " columns and " +
                           std::to_string(c[kPackedTerms]) + " rows a word on another CPU; the " +
                           call->kernels->isa + " kernels here take " + std::to_string(cols) +
                           " and " + std::to_string(terms) +
                           ": call jaxpipe.prepack on the machine that runs the program");
  }
  const int64_t elements =
      (gemm.n + cols - 1) / cols * cols * ((gemm.k + terms - 1) / terms) * terms;
  if (buffer.elements != elements) {
    return Mismatch("the packed weights' size", buffer.elements, elements);
  }
  gemm.rhs.data = buffer.data;
  gemm.rhs.dtype = buffer.dtype;
  gemm.rhs.row_stride = gemm.n;
  gemm.is_rhs_packed = true;
  return Status();
}

Status FillImage(const int64_t* c, HostCall* call) {
  host::Image& image = call->image;
  image.height = c[kImageHeight];
  image.width = c[kImageWidth];
  image.channels = c[kImageChannels];
  image.out_height = c[kOutHeight];
  image.out_width = c[kOutWidth];
  image.kernel_h = c[kKernelH];
  image.kernel_w = c[kKernelW];
  image.stride_h = c[kStrideH];
  image.stride_w = c[kStrideW];
  image.pad_top = c[kPadTop];
  image.pad_left = c[kPadLeft];
  image.dilation_h = c[kDilationH];
  image.dilation_w = c[kDilationW];
  host::Gemm& gemm = call->gemm;
  const HostBuffer& buffer = call->operands[0];
  const int64_t elements = c[kImageBatch] * image.height * image.width * image.channels;
  if (buffer.elements != elements) return Mismatch("the image's size", buffer.elements, elements);
  const int64_t pixels = c[kImageBatch] * image.out_height * image.out_width;
  if (gemm.m != pixels) return Mismatch("the number of result pixels", gemm.m, pixels);
  const int64_t terms = image.kernel_h * image.kernel_w * image.channels;
  if (gemm.k != terms) return Mismatch("the number of filter terms", gemm.k, terms);
  gemm.lhs.data = buffer.data;
  gemm.lhs.dtype = buffer.dtype;
  gemm.image = &image;
  return Status();
}

Status FillResult(const HostCall& call, size_t index, const host::Gemm& gemm, void** out) {
  const HostBuffer& buffer = call.results[index];
  const int64_t elements = gemm.batch[0] * gemm.batch[1] * gemm.m * gemm.n;
  if (buffer.elements != elements) return Mismatch("the result's size", buffer.elements, elements);
  if (buffer.dtype != call.results[0].dtype) {
    return InvalidArgument("jaxpipe_host_gemm: the two results differ in dtype");
  }
  *out = buffer.data;
  return Status();
}

Status FillEpilogue(const int64_t* c, HostCall* call) {
  host::Gemm& gemm = call->gemm;
  host::Epilogue& epilogue = gemm.epilogue;
  const int32_t alpha_bits = static_cast<int32_t>(c[kAlphaBits]);
  std::memcpy(&epilogue.alpha, &alpha_bits, sizeof(alpha_bits));
  epilogue.bias_kind = static_cast<host::BiasKind>(c[kBiasKind]);
  epilogue.activation = static_cast<host::Activation>(c[kActivation]);
  size_t next = 2;
  if (epilogue.bias_kind != host::BiasKind::kNone) {
    const HostBuffer& bias = call->operands[next++];
    const bool column = epilogue.bias_kind == host::BiasKind::kColumn;
    const int64_t want = column ? gemm.n : gemm.m;
    if (bias.elements != want) return Mismatch("the bias's size", bias.elements, want);
    if (static_cast<int>(bias.dtype) >= host::kNumFloatTypes) {
      return InvalidArgument("jaxpipe_host_gemm: the bias must be float32, bfloat16 or float16");
    }
    epilogue.bias = bias.data;
    epilogue.bias_dtype = bias.dtype;
  }
  if (c[kResidual] > 0) {
    const HostBuffer& residual = call->operands[next];
    const int64_t want = gemm.batch[0] * gemm.batch[1] * gemm.m * gemm.n;
    if (residual.elements != want) return Mismatch("the residual's size", residual.elements, want);
    if (residual.dtype != call->results[0].dtype) {
      return InvalidArgument("jaxpipe_host_gemm: the residual must have the result's dtype");
    }
    epilogue.residual = residual.data;
    epilogue.residual_first = c[kResidual] == kAddedFirst;
    if (!epilogue.residual_first) {
      epilogue.derivative = static_cast<host::Activation>(c[kResidual] - 1);
    }
  }
  if (!c[kSavePreactivation]) return Status();
  return FillResult(*call, 1, gemm, &epilogue.preactivation);
}

void FillSchedule(const int64_t* c, host::Schedule* schedule) {
  schedule->path = static_cast<host::Path>(c[kPath]);
  schedule->rows = c[kRows];
  schedule->strip = c[kStrip];
  schedule->block_m = c[kBlockM];
  schedule->block_k = c[kBlockK];
  schedule->order = static_cast<host::Order>(c[kOrder]);
  schedule->pack = static_cast<host::PackWhere>(c[kPack]);
  schedule->stages = c[kStages];
  schedule->prefetch_rows = c[kPrefetchRows];
  schedule->copy_lhs = c[kCopyLhs] != 0;
  schedule->threads = c[kThreads];
}

}  // namespace

Status DecodeHostCall(const int64_t* config, size_t size, HostCall* call) {
  if (size < 1 || config[kVersion] != kHostConfigVersion) {
    return Mismatch("the config's version", size < 1 ? 0 : config[kVersion], kHostConfigVersion);
  }
  if (size != kNumFields) {
    return Mismatch("the config's length", static_cast<int64_t>(size), kNumFields);
  }
  int64_t c[kNumFields];
  std::copy(config, config + kNumFields, c);
  if (!call->operands.empty() && !call->results.empty()) SettleSizes(*call, c);
  JAXPIPE_RETURN_IF_ERROR(CheckWords(c));
  call->kernels = c[kIsa] == 0 ? host::BestKernels() : host::KernelsNamed(kIsaNames[c[kIsa]]);
  if (call->kernels == nullptr) {
    return InvalidArgument(std::string("this CPU or this build of jaxpipe has no ") +
                           kIsaNames[c[kIsa]] + " kernels: leave HostSchedule.isa at 'auto'");
  }
  const size_t operands = 2 + (c[kBiasKind] != 0) + (c[kResidual] != 0);
  if (call->operands.size() != operands) {
    return Mismatch("the number of operands", static_cast<int64_t>(call->operands.size()),
                    static_cast<int64_t>(operands));
  }
  const size_t results = 1 + (c[kSavePreactivation] != 0);
  if (call->results.size() != results) {
    return Mismatch("the number of results", static_cast<int64_t>(call->results.size()),
                    static_cast<int64_t>(results));
  }
  host::Gemm& gemm = call->gemm;
  gemm.m = c[kM];
  gemm.n = c[kN];
  gemm.k = c[kK];
  gemm.batch[0] = c[kBatch0];
  gemm.batch[1] = c[kBatch1];
  gemm.out_dtype = call->results[0].dtype;
  if (c[kIsConvolution]) {
    JAXPIPE_RETURN_IF_ERROR(FillImage(c, call));
  } else {
    JAXPIPE_RETURN_IF_ERROR(FillOperand("lhs", call->operands[0], c + kLhsRowStride, gemm.batch,
                                        gemm.m, gemm.k, &gemm.lhs));
  }
  if (c[kPackedCols] != 0) {
    JAXPIPE_RETURN_IF_ERROR(FillPackedRhs(c, call));
  } else {
    JAXPIPE_RETURN_IF_ERROR(FillOperand("rhs", call->operands[1], c + kRhsRowStride, gemm.batch,
                                        gemm.k, gemm.n, &gemm.rhs));
  }
  JAXPIPE_RETURN_IF_ERROR(FillResult(*call, 0, gemm, &gemm.out));
  JAXPIPE_RETURN_IF_ERROR(FillEpilogue(c, call));
  FillSchedule(c, &call->schedule);
  return Status();
}

}  // namespace jaxpipe
