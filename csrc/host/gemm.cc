#include "host/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "host/image.h"
#include "host/operands.h"
#include "host/parallel.h"
#include "host/plan.h"
#include "host/scratch.h"

namespace jaxpipe::host {
namespace {

constexpr int64_t kLine = 64;          // bytes of a cache line
constexpr int64_t kLhsChunkRows = 32;  // rows that one phase-0 item copies

const char* Bytes(const void* p) { return static_cast<const char*>(p); }
char* Bytes(void* p) { return static_cast<char*>(p); }

// One call: the plan and the memory that its items share.
class Call {
 public:
  Call(const Plan& plan) : p_(plan) {}

  Status Run(TaskPool* pool);

 private:
  // A rectangle of the result.
  struct Item {
    int64_t batch, m0, m1, n0, n1;
  };
  // What an item's tiles read and write.
  struct Work {
    char* lhs_copy = nullptr;   // kItemCopy: room for the item's rows of one k block
    const char* lhs = nullptr;  // row m0, first word of the current k block
    char* panels = nullptr;     // of this strip and k block; unused when shared
    float* sums = nullptr;      // of the whole item, when k is blocked
    int64_t sums_row = 0;
    float* tile = nullptr;  // one register tile
  };

  int64_t LhsChunks() const { return p_.batches * CeilDiv(p_.gemm.m, kLhsChunkRows); }
  int64_t LhsBatchBytes() const { return p_.gemm.m * p_.lhs_row_bytes; }
  int64_t PanelBytes(int64_t k) const {
    return CeilDiv(k, p_.per_word) * p_.kernels->panel_cols * 4;
  }
  int64_t RhsBatchBytes() const { return p_.panels_given ? 0 : p_.panels * PanelBytes(p_.gemm.k); }

  void RunItem(int phase, int64_t index);
  Item ItemAt(int64_t index) const;
  bool PrepareWork(const Item& item, Work* work) const;
  const char* LhsBlock(const Item& item, const Work& work, int64_t k0, int64_t k1) const;
  void ComputeBlock(const Item& item, const Work& work, int64_t kb) const;
  const char* Panel(const Item& item, const Work& work, int64_t n, int64_t kb) const;
  void ComputeTile(const Item& item, const Work& work, int64_t kb, int64_t t, int64_t n) const;
  void PrefetchOut(const Item& item, int64_t m, int64_t rows, int64_t n, int64_t cols) const;
  void AskForNextPanel(const Item& item, int64_t kb, int64_t t, int64_t tiles, int64_t n,
                       TileArgs* args) const;
  void Finish(const Item& item, int64_t m, int64_t rows, int64_t n, int64_t cols, const float* sums,
              int64_t sums_row) const;
  void ComputeStream(const Item& item, const Work& work) const;
  char* Out(void* base, int64_t batch, int64_t m, int64_t n) const {
    if (base == nullptr) return nullptr;
    return Bytes(base) + ((batch * p_.gemm.m + m) * p_.gemm.n + n) * SizeOf(p_.gemm.out_dtype);
  }

  const Plan& p_;
  char* lhs_ = nullptr;        // kSharedCopy: rows of words, [batch][m]
  char* packed_ = nullptr;     // the panels that phase 0 packs
  const char* rhs_ = nullptr;  // shared_rhs: panels, [batch][panel][step][column]
  std::atomic<bool> out_of_memory_{false};
};

Status Call::Run(TaskPool* pool) {
  Phases phases;
  int64_t preparation = 0;
  if (p_.lhs_mode == LhsMode::kSharedCopy) {
    lhs_ = Bytes(ThreadScratch(ScratchSlot::kLhs, p_.batches * LhsBatchBytes()));
    preparation += LhsChunks();
  }
  if (p_.panels_given) {
    rhs_ = Bytes(p_.gemm.rhs.data);
  } else if (p_.shared_rhs) {
    rhs_ = packed_ = Bytes(ThreadScratch(ScratchSlot::kRhs, p_.batches * RhsBatchBytes()));
    preparation += p_.batches * p_.panels;
  }
  if ((p_.lhs_mode == LhsMode::kSharedCopy && lhs_ == nullptr) ||
      (p_.shared_rhs && rhs_ == nullptr)) {
    return Internal("the host executor could not allocate its packed operands");
  }
  phases.count = preparation > 0 ? 2 : 1;
  phases.items[0] = preparation;
  phases.items[phases.count - 1] = p_.items();
  const int first = 2 - phases.count;
  RunPhases(pool, p_.threads, phases,
            [this, first](int phase, int64_t index) { RunItem(first + phase, index); });
  TrimThreadScratch();
  if (out_of_memory_) return Internal("the host executor could not allocate its scratch memory");
  return Status();
}

void Call::RunItem(int phase, int64_t index) {
  const Gemm& gemm = p_.gemm;
  if (phase == 0 && p_.lhs_mode == LhsMode::kSharedCopy) {
    const int64_t per_batch = CeilDiv(gemm.m, kLhsChunkRows);
    if (index < LhsChunks()) {
      const int64_t batch = index / per_batch, m0 = index % per_batch * kLhsChunkRows;
      char* dst = lhs_ + batch * LhsBatchBytes() + m0 * p_.lhs_row_bytes;
      return CopyLhsRows(p_, {batch, m0, std::min(gemm.m, m0 + kLhsChunkRows), 0, gemm.k}, dst);
    }
    index -= LhsChunks();
  }
  if (phase == 0) {
    const int64_t batch = index / p_.panels, panel = index % p_.panels;
    char* dst = packed_ + batch * RhsBatchBytes() + panel * PanelBytes(gemm.k);
    return PackPanel(p_, batch, panel * p_.kernels->panel_cols, 0, gemm.k, dst);
  }
  const Item item = ItemAt(index);
  Work work;
  if (!PrepareWork(item, &work)) {
    out_of_memory_ = true;
    return;
  }
  if (p_.stream) {
    work.lhs = LhsBlock(item, work, 0, gemm.k);
    return ComputeStream(item, work);
  }
  for (int64_t kb = 0; kb < p_.blocks_k; ++kb) {
    const int64_t k0 = kb * p_.block_k;
    work.lhs = LhsBlock(item, work, k0, std::min(gemm.k, k0 + p_.block_k));
    ComputeBlock(item, work, kb);
  }
}

Call::Item Call::ItemAt(int64_t index) const {
  const int64_t per_batch = p_.blocks_m * p_.strips;
  const int64_t batch = index / per_batch, rest = index % per_batch;
  const int64_t m0 = rest % p_.blocks_m * p_.block_m, n0 = rest / p_.blocks_m * p_.strip;
  return {batch, m0, std::min(p_.gemm.m, m0 + p_.block_m), n0, std::min(p_.gemm.n, n0 + p_.strip)};
}

// The item's rows from k0 on, in words; copies k0..k1 of them where items copy.
const char* Call::LhsBlock(const Item& item, const Work& work, int64_t k0, int64_t k1) const {
  switch (p_.lhs_mode) {
    case LhsMode::kDirect:
      return ElementAt(p_.gemm, p_.gemm.lhs, item.batch, item.m0, k0);
    case LhsMode::kSharedCopy:
      return lhs_ + item.batch * LhsBatchBytes() + item.m0 * p_.lhs_row_bytes +
             k0 / p_.per_word * 4;
    case LhsMode::kItemCopy:
      break;
  }
  const LhsRect rect = {item.batch, item.m0, item.m1, k0, k1};
  (p_.stream ? CopyLhsColumns : CopyLhsRows)(p_, rect, work.lhs_copy);
  return work.lhs_copy;
}

bool Call::PrepareWork(const Item& item, Work* work) const {
  const int64_t rows = item.m1 - item.m0;
  if (p_.lhs_mode == LhsMode::kItemCopy) {
    work->lhs_copy = Bytes(ThreadScratch(ScratchSlot::kItemLhs, rows * p_.lhs_row_bytes));
    if (work->lhs_copy == nullptr) return false;
  }
  if (!p_.shared_rhs && !p_.stream) {
    const int64_t panels = p_.strip / p_.kernels->panel_cols;
    const int64_t bytes = panels * PanelBytes(std::min(p_.block_k, p_.gemm.k));
    work->panels = Bytes(ThreadScratch(ScratchSlot::kPanel, bytes));
    if (work->panels == nullptr) return false;
  }
  if (p_.stream || (p_.blocks_k > 1 && (!p_.direct_out || p_.gemm.n % p_.kernels->panel_cols))) {
    work->sums_row = p_.strip;
    const int64_t bytes = rows * p_.strip * 4;
    work->sums = static_cast<float*>(ThreadScratch(ScratchSlot::kSums, bytes));
    if (work->sums == nullptr) return false;
  }
  const int64_t tile_bytes = kMaxTileRows * kMaxPanelCols * 4;
  work->tile = static_cast<float*>(ThreadScratch(ScratchSlot::kTile, tile_bytes));
  return work->tile != nullptr;
}

const char* Call::Panel(const Item& item, const Work& work, int64_t n, int64_t kb) const {
  const int64_t panel = p_.kernels->panel_cols;
  if (p_.shared_rhs) {
    return rhs_ + item.batch * RhsBatchBytes() + n / panel * PanelBytes(p_.gemm.k) +
           PanelBytes(kb * p_.block_k);
  }
  return work.panels + (n - item.n0) / panel * PanelBytes(std::min(p_.block_k, p_.gemm.k));
}

void Call::ComputeBlock(const Item& item, const Work& work, int64_t kb) const {
  const int64_t panel = p_.kernels->panel_cols;
  const int64_t k0 = kb * p_.block_k, k1 = std::min(p_.gemm.k, k0 + p_.block_k);
  const auto pack = [&](int64_t n) {
    if (p_.shared_rhs) return;
    PackPanel(p_, item.batch, n, k0, k1, const_cast<char*>(Panel(item, work, n, kb)));
  };
  const int64_t tiles = CeilDiv(item.m1 - item.m0, p_.tile_rows);
  if (p_.schedule.order == Order::kPanel) {
    for (int64_t n = item.n0; n < item.n1; n += panel) {
      pack(n);
      for (int64_t t = 0; t < tiles; ++t) ComputeTile(item, work, kb, t, n);
    }
    return;
  }
  for (int64_t n = item.n0; n < item.n1; n += panel) pack(n);
  for (int64_t t = 0; t < tiles; ++t) {
    for (int64_t n = item.n0; n < item.n1; n += panel) ComputeTile(item, work, kb, t, n);
  }
}

// Tiles are balanced: 128 rows in tiles of at most 14 are ten of 12 or 13, never a tail of 2.
void Call::ComputeTile(const Item& item, const Work& work, int64_t kb, int64_t t, int64_t n) const {
  const int64_t panel = p_.kernels->panel_cols, cols = std::min(panel, item.n1 - n);
  const int64_t height = item.m1 - item.m0, tiles = CeilDiv(height, p_.tile_rows);
  const int64_t m = item.m0 + height * t / tiles, rows = item.m0 + height * (t + 1) / tiles - m;
  const int64_t k0 = kb * p_.block_k;
  const bool direct = p_.direct_out && cols == panel;
  const bool narrow = cols <= panel / 2;
  TileArgs args;
  args.k = std::min(p_.gemm.k - k0, p_.block_k);
  args.lhs = work.lhs + (m - item.m0) * p_.lhs_row_bytes;
  args.lhs_row_bytes = p_.lhs_row_bytes;
  args.panel = Panel(item, work, n, kb);
  args.accumulate = kb > 0;
  if (direct) {
    args.out = reinterpret_cast<float*>(Out(p_.gemm.out, item.batch, m, n));
    args.out_row = p_.gemm.n;
  } else if (p_.blocks_k > 1) {
    args.out = work.sums + (m - item.m0) * work.sums_row + (n - item.n0);
    args.out_row = work.sums_row;
  } else {
    args.out = work.tile;
    args.out_row = panel;
  }
  if (p_.schedule.stages > 1) {
    PrefetchOut(item, m, rows, n, cols);
    AskForNextPanel(item, kb, t, tiles, n, &args);
  }
  p_.kernels->tile[static_cast<int>(p_.kind)][narrow][rows](args);
  if (!direct && kb == p_.blocks_k - 1) {
    Finish(item, m, rows, n, cols, args.out, args.out_row);
  }
}

void Call::PrefetchOut(const Item& item, int64_t m, int64_t rows, int64_t n, int64_t cols) const {
  const int64_t bytes = cols * SizeOf(p_.gemm.out_dtype);
  for (int64_t i = 0; i < rows; ++i) {
    const char* row = Out(p_.gemm.out, item.batch, m + i, n);
    for (int64_t b = 0; b < bytes; b += kLine) __builtin_prefetch(row + b, 1, 3);
  }
}

// The second stage: while this panel's tiles compute, each asks for its share of the lines that
// packing the next panel will read. Only where packing walks down rows that are far apart; along
// contiguous k the hardware runs ahead by itself.
void Call::AskForNextPanel(const Item& item, int64_t kb, int64_t t, int64_t tiles, int64_t n,
                           TileArgs* args) const {
  const Gemm& gemm = p_.gemm;
  const int64_t next = n + p_.kernels->panel_cols;
  if (p_.shared_rhs || p_.schedule.order != Order::kPanel || next >= gemm.n) return;
  if (gemm.rhs.col_stride != 1 || gemm.is_rhs_packed) return;
  const int64_t row_bytes = gemm.rhs.row_stride * SizeOf(gemm.rhs.dtype);
  const int64_t k0 = kb * p_.block_k;
  const int64_t first = k0 + args->k * t / tiles, last = k0 + args->k * (t + 1) / tiles;
  args->ahead = ElementAt(gemm, gemm.rhs, item.batch, first, next);
  args->ahead_end = ElementAt(gemm, gemm.rhs, item.batch, last, next);
  const bool two_lines = p_.kernels->panel_cols * SizeOf(gemm.rhs.dtype) > kLine;
  args->ahead_second_bytes = two_lines ? kLine : row_bytes;
  args->ahead_step_bytes = two_lines ? row_bytes : 2 * row_bytes;
}

void Call::Finish(const Item& item, int64_t m, int64_t rows, int64_t n, int64_t cols,
                  const float* sums, int64_t sums_row) const {
  const Gemm& gemm = p_.gemm;
  const Epilogue& epilogue = gemm.epilogue;
  if (gemm.out_dtype == DType::kS32) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(Out(gemm.out, item.batch, m + i, n), sums + i * sums_row, cols * 4);
    }
    return;
  }
  EpilogueArgs args;
  args.sums = sums;
  args.sums_row = sums_row;
  args.rows = rows;
  args.cols = cols;
  args.alpha = epilogue.alpha;
  args.bias_dtype = epilogue.bias_dtype;
  const int64_t bias_size = SizeOf(epilogue.bias_dtype);
  if (epilogue.bias_kind == BiasKind::kColumn)
    args.column_bias = Bytes(epilogue.bias) + n * bias_size;
  if (epilogue.bias_kind == BiasKind::kRow) args.row_bias = Bytes(epilogue.bias) + m * bias_size;
  args.residual = Out(const_cast<void*>(epilogue.residual), item.batch, m, n);
  args.residual_first = epilogue.residual_first;
  args.derivative = epilogue.derivative;
  args.preactivation = Out(epilogue.preactivation, item.batch, m, n);
  args.out = Out(gemm.out, item.batch, m, n);
  args.out_row = gemm.n;
  const int out_dtype = static_cast<int>(gemm.out_dtype);
  p_.kernels->epilogue[out_dtype][static_cast<int>(epilogue.activation)](args);
}

void Call::ComputeStream(const Item& item, const Work& work) const {
  const Gemm& gemm = p_.gemm;
  StreamArgs args;
  args.k = gemm.k;
  args.lhs = work.lhs;
  args.rhs = ElementAt(gemm, gemm.rhs, item.batch, 0, item.n0);
  args.rhs_row = gemm.rhs.row_stride;
  args.cols = item.n1 - item.n0;
  args.out = work.sums;
  args.out_row = work.sums_row;
  args.prefetch_rows = p_.schedule.prefetch_rows;
  const int kind = static_cast<int>(p_.kind), dtype = static_cast<int>(gemm.rhs.dtype);
  p_.kernels->stream[kind][dtype][item.m1 - item.m0](args);
  Finish(item, item.m0, item.m1 - item.m0, item.n0, item.n1 - item.n0, work.sums, work.sums_row);
}

Status Validate(const Gemm& gemm) {
  if (gemm.image != nullptr && gemm.lhs.dtype == DType::kS8) {
    return InvalidArgument("the host executor has no int8 convolutions");
  }
  if (gemm.is_rhs_packed && (gemm.rhs.batch_stride[0] != 0 || gemm.rhs.batch_stride[1] != 0)) {
    return InvalidArgument(
        "a packed rhs is the same for every batch entry: its batch strides are 0");
  }
  for (const Operand* operand : {&gemm.lhs, &gemm.rhs}) {
    if (operand->row_stride != 1 && operand->col_stride != 1) {
      return InvalidArgument("an operand has row stride " + std::to_string(operand->row_stride) +
                             " and column stride " + std::to_string(operand->col_stride) +
                             " elements: one of them must be 1");
    }
  }
  if (gemm.lhs.dtype != gemm.rhs.dtype && !IsRounded(gemm)) {
    return InvalidArgument("operands differ in dtype");
  }
  if (IsRounded(gemm) && (gemm.rhs.col_stride != 1 || gemm.is_rhs_packed)) {
    return InvalidArgument("a rhs that is rounded must have rows of stride 1 and come unpacked");
  }
  const bool integer = gemm.lhs.dtype == DType::kS8;
  if (integer != (gemm.out_dtype == DType::kS32) || gemm.lhs.dtype == DType::kS32) {
    return InvalidArgument(
        "the host executor takes float operands to float results and int8 to int32");
  }
  if (integer && !gemm.epilogue.IsIdentity()) {
    return InvalidArgument("the host executor has no epilogue for int8 products");
  }
  return Status();
}

}  // namespace

Status RunGemm(const Gemm& gemm, const Schedule& schedule, const Kernels& kernels, TaskPool* pool) {
  JAXPIPE_RETURN_IF_ERROR(Validate(gemm));
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch[0] == 0 || gemm.batch[1] == 0) return Status();
  const int threads = pool == nullptr ? 1 : pool->num_threads();
  Plan plan = MakePlan(gemm, schedule, kernels, threads);
  if (gemm.image != nullptr && plan.kind == WordKind::kF32 && gemm.lhs.dtype != DType::kF32) {
    JAXPIPE_RETURN_IF_ERROR(WidenImage(kernels, plan.threads, pool, &plan.gemm));
  }
  return Call(plan).Run(pool);
}

}  // namespace jaxpipe::host
