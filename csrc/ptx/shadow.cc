#include "ptx/shadow.h"

#include <algorithm>
#include <cstring>

namespace jaxpipe::ptx {
namespace {

constexpr uint32_t kGranule = 16;
constexpr uint32_t kShift[] = {4, 2, 0};  // log2 of the bytes of a cell, by level

// The coarsest level whose cells do not straddle the ends of [from, to) inside a granule.
uint8_t LevelFor(uint32_t from, uint32_t to) {
  if (from == 0 && to == kGranule) return 0;
  return ((from | to) & 3) == 0 ? 1 : 2;
}

}  // namespace

void Shadow::Reset(uint32_t bytes, int warps, int readers, const uint8_t* memory, HazardLog* log) {
  warps_ = warps;
  readers_ = readers;
  memory_ = memory;
  log_ = log;
  const uint32_t count = (bytes + kGranule - 1) / kGranule;
  granules_.resize(count);
  for (uint32_t i = 0; i < count; ++i) granules_[i] = Granule{i, 0};
  cells_.assign(count, Cell());
  marks_.resize(static_cast<size_t>(count) * readers);
}

void Shadow::Refine(Granule& granule, uint8_t level) {
  const uint32_t factor = 1u << (kShift[granule.level] - kShift[level]);
  const uint32_t old_cells = kGranule >> kShift[granule.level];
  const uint32_t first = static_cast<uint32_t>(cells_.size());
  cells_.resize(first + old_cells * factor);
  marks_.resize(cells_.size() * readers_);
  for (uint32_t i = 0; i < old_cells * factor; ++i) {
    const uint32_t from = granule.first + i / factor;
    cells_[first + i] = cells_[from];
    std::copy_n(&marks_[static_cast<size_t>(from) * readers_], readers_,
                &marks_[static_cast<size_t>(first + i) * readers_]);
  }
  granule = Granule{first, level};
}

template <typename F>
void Shadow::ForCells(uint32_t offset, uint32_t size, F&& f) {
  const uint32_t end = offset + size;
  for (uint32_t at = offset; at < end;) {
    Granule& granule = granules_[at / kGranule];
    const uint32_t base = at & ~(kGranule - 1);
    const uint32_t from = at - base;
    const uint32_t to = std::min(end - base, kGranule);
    const uint8_t level = LevelFor(from, to);
    if (level > granule.level) Refine(granule, level);
    const uint32_t shift = kShift[granule.level];
    const Granule g = granule;
    for (uint32_t i = from >> shift; i << shift < to; ++i)
      f(g.first + i, base + (i << shift), 1u << shift);
    at = base + to;
  }
}

void Shadow::Report(HazardKind kind, const Accessor& who, int32_t other_pc, uint32_t at) {
  Hazard hazard;
  hazard.kind = kind;
  hazard.pc = who.pc;
  hazard.other_pc = other_pc;
  hazard.block = who.block;
  hazard.warp = who.warp;
  hazard.lane = who.lane == kWholeWarp ? -1 : who.lane;
  hazard.address = at;
  hazard.detail = "shared address " + std::to_string(at);
  log_->Add(std::move(hazard));
}

void Shadow::CheckRead(const Accessor& who, const Cell& cell, uint32_t at) {
  if (cell.copies != 0) return Report(HazardKind::kReadPending, who, cell.pending_pc, at);
  if (!cell.written) return Report(HazardKind::kUnwrittenShared, who, -1, at);
  if (cell.clock > who.clocks->seen[cell.writer])
    return Report(HazardKind::kReadRace, who, cell.pc, at);
  if (cell.writer == who.actor && cell.lane != who.lane && cell.lane_epoch == who.lane_epoch)
    Report(HazardKind::kLaneRace, who, cell.pc, at);
}

void Shadow::CheckProxy(const Accessor& who, const Cell& cell, uint32_t at) {
  if (cell.written && cell.generic && cell.clock > who.clocks->fenced[cell.writer])
    Report(HazardKind::kProxyFence, who, cell.pc, at);
}

void Shadow::MarkRead(uint32_t index, int32_t reader, uint32_t clock, int32_t pc) {
  Mark& mark = marks_[static_cast<size_t>(index) * readers_ + reader];
  const uint64_t bit = uint64_t{1} << reader;
  if ((cells_[index].readers & bit) != 0 && mark.clock > clock) return;
  mark = Mark{clock, pc};
  cells_[index].readers |= bit;
}

void Shadow::CheckOverwrite(const Accessor& who, uint32_t index, uint32_t at, const uint8_t* data,
                            uint32_t size) {
  const Cell& cell = cells_[index];
  if (cell.object) return Report(HazardKind::kMbarrierInUse, who, cell.pc, at);
  if (cell.copies != 0) return Report(HazardKind::kOverwritePending, who, cell.pending_pc, at);
  if (cell.stores != 0) return Report(HazardKind::kOverwriteAsyncRead, who, cell.pending_pc, at);
  const bool same = data != nullptr && cell.written && std::memcmp(data, memory_ + at, size) == 0;
  if (cell.clock > who.clocks->seen[cell.writer] && !same)
    return Report(HazardKind::kWriteRace, who, cell.pc, at);
  for (uint64_t rest = cell.readers; rest != 0; rest &= rest - 1) {
    const int reader = __builtin_ctzll(rest);
    const Mark& mark = marks_[static_cast<size_t>(index) * readers_ + reader];
    if (mark.clock <= who.clocks->seen[reader] || same) continue;
    const auto kind =
        reader < warps_ ? HazardKind::kOverwriteRace : HazardKind::kOverwriteAsyncRead;
    return Report(kind, who, mark.pc, at);
  }
}

void Shadow::SetWriter(Cell& cell, const Landing& landing) {
  cell.readers = 0;
  cell.clock = landing.clock;
  cell.lane_epoch = landing.lane_epoch;
  cell.pc = landing.pc;
  cell.writer = static_cast<int16_t>(landing.writer);
  cell.lane = static_cast<int16_t>(landing.lane);
  cell.written = true;
  cell.generic = landing.generic;
  cell.atomic = false;
}

void Shadow::Read(const Accessor& who, uint32_t offset, uint32_t size) {
  ForCells(offset, size, [&](uint32_t index, uint32_t at, uint32_t) {
    CheckRead(who, cells_[index], at);
    MarkRead(index, who.actor, who.clock(), who.pc);
  });
}

void Shadow::Write(const Accessor& who, uint32_t offset, uint32_t size, const uint8_t* data) {
  ForCells(offset, size, [&](uint32_t index, uint32_t at, uint32_t bytes) {
    CheckOverwrite(who, index, at, data == nullptr ? nullptr : data + (at - offset), bytes);
    SetWriter(cells_[index], {who.actor, who.clock(), who.pc, who.lane, who.lane_epoch, true});
  });
}

void Shadow::SetObject(uint32_t offset, uint32_t size, bool is_object) {
  ForCells(offset, size,
           [&](uint32_t index, uint32_t, uint32_t) { cells_[index].object = is_object; });
}

void Shadow::Atomic(const Accessor& who, uint32_t offset, uint32_t size) {
  ForCells(offset, size, [&](uint32_t index, uint32_t at, uint32_t bytes) {
    if (!cells_[index].atomic) {
      CheckRead(who, cells_[index], at);
      CheckOverwrite(who, index, at, nullptr, bytes);
    }
    SetWriter(cells_[index], {who.actor, who.clock(), who.pc, who.lane, who.lane_epoch, true});
    cells_[index].atomic = true;
  });
}

void Shadow::IssueCopy(const Accessor& who, uint32_t offset, uint32_t size, bool async_proxy) {
  ForCells(offset, size, [&](uint32_t index, uint32_t at, uint32_t bytes) {
    CheckOverwrite(who, index, at, nullptr, bytes);
    Cell& cell = cells_[index];
    if (async_proxy) CheckProxy(who, cell, at);
    cell.copies++;
    cell.pending_pc = who.pc;
  });
}

void Shadow::LandCopy(const Landing& landing, uint32_t offset, uint32_t size) {
  ForCells(offset, size, [&](uint32_t index, uint32_t, uint32_t) {
    cells_[index].copies--;
    SetWriter(cells_[index], landing);
  });
}

void Shadow::AsyncRead(const Accessor& who, int32_t reader, uint32_t clock, uint32_t offset,
                       uint32_t size) {
  ForCells(offset, size, [&](uint32_t index, uint32_t at, uint32_t) {
    const Cell& cell = cells_[index];
    CheckRead(who, cell, at);
    if (cell.copies == 0) CheckProxy(who, cell, at);
    MarkRead(index, reader, clock, who.pc);
  });
}

void Shadow::BeginStoreRead(const Accessor& who, uint32_t offset, uint32_t size) {
  ForCells(offset, size, [&](uint32_t index, uint32_t at, uint32_t) {
    Cell& cell = cells_[index];
    CheckRead(who, cell, at);
    CheckProxy(who, cell, at);
    cell.stores++;
    cell.pending_pc = who.pc;
  });
}

void Shadow::EndStoreRead(const Accessor& who, uint32_t offset, uint32_t size) {
  ForCells(offset, size, [&](uint32_t index, uint32_t, uint32_t) {
    cells_[index].stores--;
    MarkRead(index, who.actor, who.clock(), who.pc);
  });
}

}  // namespace jaxpipe::ptx
