#include "host/plan.h"

#include <algorithm>

namespace jaxpipe::host {
namespace {

constexpr int64_t kSerialFlops = 400'000;             // below, a helper costs more than it gives
constexpr int64_t kStripBytesMax = int64_t{4} << 20;  // packed strip of one item
constexpr int64_t kMinBlockK = 256;

WordKind KindOf(DType dtype, const Kernels& kernels) {
  if (dtype == DType::kS8) return WordKind::kS16;
  return dtype == DType::kBF16 && kernels.has_bf16 ? WordKind::kBF16 : WordKind::kF32;
}

// A batch dimension over which rhs is the same and lhs rows run on is part of m.
void FoldBatches(Gemm* gemm) {
  if (gemm->image != nullptr) return;
  if (gemm->epilogue.bias_kind == BiasKind::kRow) return;  // the row bias repeats every m
  for (int axis = 1; axis >= 0; --axis) {
    if (axis == 0 && gemm->batch[1] != 1) return;
    const bool runs_on = gemm->lhs.batch_stride[axis] == gemm->m * gemm->lhs.row_stride;
    if (gemm->batch[axis] == 1) continue;
    if (gemm->rhs.batch_stride[axis] != 0 || !runs_on) return;
    gemm->m *= gemm->batch[axis];
    gemm->batch[axis] = 1;
  }
}

bool NativeWords(WordKind kind, DType dtype) {
  return (kind == WordKind::kF32 && dtype == DType::kF32) ||
         (kind == WordKind::kBF16 && dtype == DType::kBF16);
}

bool CanStream(const Plan& plan) {
  const Gemm& gemm = plan.gemm;
  return !gemm.is_rhs_packed && !IsRounded(gemm) && gemm.rhs.col_stride == 1 &&
         gemm.m <= plan.kernels->stream_rows && plan.kind != WordKind::kS16 &&
         gemm.image == nullptr;
}

void PlanLhs(Plan* plan) {
  const Gemm& gemm = plan->gemm;
  plan->words = CeilDiv(gemm.k, plan->per_word);
  bool readable =
      NativeWords(plan->kind, gemm.lhs.dtype) && gemm.lhs.col_stride == 1 && gemm.image == nullptr;
  if (plan->stream) readable = readable && gemm.m == 1 && gemm.k % plan->per_word == 0;
  if (readable && !plan->schedule.copy_lhs) {
    plan->lhs_mode = LhsMode::kDirect;
    plan->lhs_row_bytes = gemm.lhs.row_stride * SizeOf(gemm.lhs.dtype);
    return;
  }
  const bool by_item = plan->stream || plan->strips == 1 || gemm.image != nullptr;
  plan->lhs_mode = by_item ? LhsMode::kItemCopy : LhsMode::kSharedCopy;
  if (by_item && !plan->stream) plan->words = std::min(plan->words, plan->block_k / plan->per_word);
  if (plan->stream) {
    plan->lhs_row_bytes = plan->words * 4;
    return;
  }
  // An odd number of cache lines, so that the rows of a tile fall into different sets.
  plan->lhs_row_bytes = (CeilDiv(plan->words * 4, 64) | 1) * 64;
}

void PlanBlocks(Plan* plan) {
  const Gemm& gemm = plan->gemm;
  const Schedule& schedule = plan->schedule;
  const int64_t panel = plan->kernels->panel_cols;
  const int64_t strip = schedule.strip > 0 ? std::min(schedule.strip, gemm.n) : panel;
  plan->strip = CeilDiv(strip, panel) * panel;
  plan->strips = CeilDiv(gemm.n, plan->strip);
  plan->panels = CeilDiv(gemm.n, panel);
  plan->block_m = schedule.block_m > 0 ? std::min(schedule.block_m, gemm.m) : gemm.m;
  plan->blocks_m = CeilDiv(gemm.m, plan->block_m);
  int64_t block_k = schedule.block_k > 0 ? schedule.block_k : gemm.k;
  if (!plan->shared_rhs) {
    const int64_t fits = kStripBytesMax / (4 * plan->strip) * plan->per_word;
    block_k = std::min(block_k, std::max(kMinBlockK, fits));
  }
  block_k = std::max<int64_t>(CeilDiv(block_k, plan->per_word) * plan->per_word, 2);
  plan->blocks_k = std::max<int64_t>(1, CeilDiv(gemm.k, block_k));
  plan->block_k = block_k;
}

}  // namespace

Plan MakePlan(const Gemm& gemm, const Schedule& schedule, const Kernels& kernels, int threads) {
  Plan plan;
  plan.gemm = gemm;
  plan.schedule = schedule;
  plan.kernels = &kernels;
  FoldBatches(&plan.gemm);
  plan.batches = plan.gemm.batch[0] * plan.gemm.batch[1];
  plan.kind = KindOf(gemm.lhs.dtype, kernels);
  plan.per_word = plan.kind == WordKind::kF32 ? 1 : 2;
  plan.stream = schedule.path == Path::kStream && CanStream(plan);
  plan.panels_given = gemm.is_rhs_packed && NativeWords(plan.kind, gemm.rhs.dtype);
  plan.shared_rhs = plan.panels_given || (!plan.stream && schedule.pack == PackWhere::kShared);
  const bool raw_sums = plan.kind == WordKind::kS16 || gemm.out_dtype == DType::kF32;
  plan.direct_out = raw_sums && gemm.epilogue.IsIdentity();
  plan.tile_rows =
      schedule.rows > 0 ? std::min<int64_t>(schedule.rows, kernels.tile_rows) : kernels.tile_rows;
  PlanBlocks(&plan);
  PlanLhs(&plan);
  plan.threads = schedule.threads > 0 ? std::min<int>(schedule.threads, threads) : threads;
  const double flops = 2.0 * plan.batches * plan.gemm.m * gemm.n * gemm.k;
  if (flops < kSerialFlops) plan.threads = 1;
  return plan;
}

}  // namespace jaxpipe::host
