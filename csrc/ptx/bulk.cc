// Bulk copies (TMA): tensor and flat, global to shared memory with an mbarrier, shared to global
// in bulk groups.
//
// A load is checked as a write by its issuer and is in flight until it lands; it then is a write by
// the mbarrier in its current phase, so that only who waited for that phase may read. A store reads
// its source when it is waited for (late) or at once (early), and nobody may write there before.
#include <algorithm>
#include <cstring>

#include "ptx/address.h"
#include "ptx/element_add.h"
#include "ptx/mbarrier.h"
#include "ptx/tensor_map.h"

namespace jaxpipe::ptx {
namespace {

constexpr uint8_t kPoisonByte = 0xff;
constexpr uint32_t kChunk = 16;
constexpr uint32_t kTmaAlignment = 128;

// Instruction::type, shared with encode.py. Bits 0 to 2: 64-bit addresses of src 0, 1, 2.
enum BulkType : int32_t {
  kWideFirst = 1,
  kWideSecond = 2,
  kWideThird = 4,
  kMulticast = 8,
  kReduceAdd = 16
};

bool ReadTensorMap(Step& s, uint64_t address, int lane, TensorMapBits* map) {
  Location at;
  // The map may lie in parameters, constant or global memory; 64-byte alignment is required.
  if (!Resolve(s, Space::kGeneric, address, 64, lane, &at)) return false;
  std::memcpy(map, at.data, sizeof *map);
  const std::string problem = CheckTensorMap(*map, s.ins.list_size);
  if (problem.empty()) return true;
  s.Fault(HazardKind::kTensorMap, lane, address, problem);
  return false;
}

void Coordinates(const Step& s, int lane, int32_t (&at)[kMaxRank]) {
  for (int i = 0; i < kMaxRank; ++i)
    at[i] = i < s.ins.list_size ? static_cast<int32_t>(s.Operand(s.ListAt(i))[lane]) : 0;
}

void CountBulk(Step& s, const Box& box) {
  Counters& counted = s.counters();
  counted.shared_bytes += box.bytes;
  counted.global_requests++;
  for (const BoxRun& run : box.runs) {
    counted.global_bytes += run.size;
    counted.global_sectors += (run.address + run.size - 1) / 32 - run.address / 32 + 1;
  }
}

// The image of the box, zero where it lies outside of the tensor.
bool Gather(Step& s, const Box& box, int lane, std::vector<uint8_t>* image) {
  image->assign(box.bytes, 0);
  for (const BoxRun& run : box.runs) {
    const uint8_t* from = GlobalForRead(s, run.address, run.size, 1, lane);
    if (from == nullptr) return false;
    std::memcpy(image->data() + run.offset, from, run.size);
  }
  return true;
}

// Chunks of 16 bytes with their swizzled places; without a swizzle one span for all.
std::vector<Span> Place(uint32_t offset, uint32_t bytes, int swizzle_bytes) {
  if (swizzle_bytes == 0) return {Span{offset, bytes, 0}};
  std::vector<Span> spans;
  spans.reserve(bytes / kChunk);
  for (uint32_t at = 0; at < bytes; at += kChunk)
    spans.push_back({Swizzle(offset + at, swizzle_bytes), kChunk, at});
  return spans;
}

void WriteBytes(const BulkCopy& copy) {
  for (const Span& span : copy.spans)
    std::memcpy(&copy.cta->shared[span.offset], copy.data.data() + span.data, span.size);
}

// The copy has landed: a write by the mbarrier, and its bytes are credited.
bool Complete(Cluster& cluster, BulkCopy copy) {
  if (!copy.landed) WriteBytes(copy);
  Mbarrier& barrier = copy.cta->mbarriers[copy.mbarrier];
  const uint32_t clock = static_cast<uint32_t>(barrier.phase + 1);
  if (cluster.launch.check)
    for (const Span& span : copy.spans)
      copy.cta->shadow.LandCopy({barrier.actor, clock, copy.pc, kWholeWarp, 0, false}, span.offset,
                                span.size);
  Hazard hazard{HazardKind::kMbarrierBytes,
                copy.pc,
                barrier.init_pc,
                copy.cta->block,
                0,
                -1,
                barrier.offset,
                1,
                "transaction count of a copy"};
  if (!barrier.valid) hazard.kind = HazardKind::kMbarrierInvalid;
  if (!barrier.valid || !AddBytes(&barrier, -int64_t{copy.bytes})) {
    cluster.Stop(std::move(hazard));
    return false;
  }
  CompleteIfDone(cluster, &barrier);
  return true;
}

// Issues one copy into the shared memory of one block.
bool IssueInto(Step& s, int lane, Cta* cta, uint32_t offset, uint32_t barrier_offset,
               int swizzle_bytes, const std::vector<uint8_t>& image) {
  if (offset + image.size() > cta->shared.size()) {
    s.Fault(HazardKind::kSharedBounds, lane, offset,
            std::to_string(image.size()) + " bytes at shared address " + std::to_string(offset));
    return false;
  }
  BulkCopy copy;
  copy.pc = s.pc;
  copy.cta = cta;
  copy.bytes = static_cast<uint32_t>(image.size());
  copy.mbarrier = -1;
  for (size_t i = 0; i < cta->mbarriers.size(); ++i)
    if (cta->mbarriers[i].valid && cta->mbarriers[i].offset == barrier_offset)
      copy.mbarrier = static_cast<int>(i);
  if (copy.mbarrier < 0) {
    s.Fault(HazardKind::kMbarrierInvalid, lane, barrier_offset,
            "in block " + std::to_string(cta->block));
    return false;
  }
  copy.spans = Place(offset, copy.bytes, swizzle_bytes);
  copy.data = image;
  if (s.checks())
    for (const Span& span : copy.spans)
      cta->shadow.IssueCopy(s.Who(kWholeWarp), span.offset, span.size, true);
  copy.landed = s.cluster.Chance(s.cluster.launch.landing);
  if (copy.landed) {
    WriteBytes(copy);
    return Complete(s.cluster, std::move(copy));
  }
  for (const Span& span : copy.spans)
    std::memset(&cta->shared[span.offset], kPoisonByte, span.size);
  s.cluster.bulk_copies.push_back(std::move(copy));
  return true;
}

// Into the own block, the block that the address names, or all blocks of the multicast mask.
bool IssueLoad(Step& s, int lane, uint32_t alignment, int swizzle_bytes,
               const std::vector<uint8_t>& image) {
  Location to;
  const uint64_t address =
      s.SrcAsU64(0, lane, (s.ins.type & kWideFirst) != 0) + static_cast<uint64_t>(s.ins.imm);
  if (!ResolveShared(s, address, kChunk, alignment, lane, &to)) return false;
  Cta* owner = nullptr;
  const Mbarrier* barrier =
      FindMbarrier(s, s.SrcAsU64(2, lane, (s.ins.type & kWideThird) != 0), lane, &owner);
  if (barrier == nullptr) return false;
  const uint32_t offset = static_cast<uint32_t>(to.offset), at = barrier->offset;
  if ((s.ins.type & kMulticast) == 0)
    return IssueInto(s, lane, to.cta, offset, at, swizzle_bytes, image);
  const uint32_t ranks = s.Src(3)[lane] & 0xffff;
  if (ranks == 0 || ranks >> s.cluster.ctas.size() != 0) {
    s.Fault(HazardKind::kSharedBounds, lane, address,
            "multicast mask " + std::to_string(ranks) + " names blocks outside of the cluster");
    return false;
  }
  for (Cta& cta : s.cluster.ctas)
    if ((ranks >> cta.rank & 1) != 0 && !IssueInto(s, lane, &cta, offset, at, swizzle_bytes, image))
      return false;
  return true;
}

Flow TmaLoad(Step& s) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    TensorMapBits map;
    good = good && ReadTensorMap(s, s.SrcAsU64(1, lane, true), lane, &map);
    if (!good) return;
    int32_t at[kMaxRank];
    Coordinates(s, lane, at);
    const Box box = WalkBox(map, at);
    CountBulk(s, box);
    std::vector<uint8_t> image;
    good =
        Gather(s, box, lane, &image) && IssueLoad(s, lane, kTmaAlignment, SwizzleBytes(map), image);
  });
  s.cluster.events++;
  return good ? Flow::kNext : Flow::kStop;
}

// cp.async.bulk of `width`-free size: src 1 the source, list 0 the size in bytes.
Flow BulkLoad(Step& s) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    const uint32_t size = s.Operand(s.ListAt(0))[lane];
    const uint8_t* from = GlobalForRead(s, s.SrcAsU64(1, lane, true), size, kChunk, lane);
    good = from != nullptr;
    if (!good) return;
    Box box{size, {{s.SrcAsU64(1, lane, true), 0, size}}};
    CountBulk(s, box);
    good = IssueLoad(s, lane, kChunk, 0, std::vector<uint8_t>(from, from + size));
  });
  s.cluster.events++;
  return good ? Flow::kNext : Flow::kStop;
}

// Queues a store, or executes it at once.
bool IssueStore(Step& s, int lane, const Box& box, uint32_t offset, int swizzle_bytes,
                int element) {
  if (offset + box.bytes > s.cta.shared.size())
    return s.Fault(HazardKind::kSharedBounds, lane, offset, "source of a bulk store") ==
           Flow::kNext;
  BulkStore store;
  store.pc = s.pc;
  store.cta = &s.cta;
  store.actor = s.warp.actor;
  store.lane = lane;
  store.group = s.warp.bulk.committed[lane];
  store.reduction = (s.ins.type & kReduceAdd) != 0 ? 1 : 0;
  store.element = element;
  store.spans = Place(offset, box.bytes, swizzle_bytes);
  for (const BoxRun& run : box.runs) {
    uint8_t* to = GlobalForWrite(s, run.address, run.size, 1, lane);
    if (to == nullptr) return false;
    for (uint32_t done = 0; done < run.size;) {
      const uint32_t in_chunk = (run.offset + done) % kChunk;
      const uint32_t size = std::min(run.size - done, kChunk - in_chunk);
      store.pieces.push_back({to + done, Swizzle(offset + run.offset + done, swizzle_bytes), size});
      done += size;
    }
  }
  if (s.checks())
    for (const Span& span : store.spans)
      s.cta.shadow.BeginStoreRead(s.Who(lane), span.offset, span.size);
  store.done = s.cluster.Chance(s.cluster.launch.landing);
  if (store.done) FinishBulkStore(s.cluster, store);
  s.cluster.bulk_stores.push_back(std::move(store));
  return true;
}

Flow TmaStore(Step& s) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    TensorMapBits map;
    good = good && ReadTensorMap(s, s.SrcAsU64(1, lane, true), lane, &map);
    if (!good) return;
    Location from;
    const uint64_t address =
        s.SrcAsU64(0, lane, (s.ins.type & kWideFirst) != 0) + static_cast<uint64_t>(s.ins.imm);
    good = ResolveShared(s, address, kChunk, kTmaAlignment, lane, &from);
    if (!good) return;
    int32_t at[kMaxRank];
    Coordinates(s, lane, at);
    const Box box = WalkBox(map, at);
    CountBulk(s, box);
    good =
        IssueStore(s, lane, box, static_cast<uint32_t>(from.offset), SwizzleBytes(map), map.type);
  });
  s.cluster.events++;
  return good ? Flow::kNext : Flow::kStop;
}

Flow BulkStoreFlat(Step& s) {
  bool good = true;
  ForLanes(s.mask, [&](int lane) {
    if (!good) return;
    const uint32_t size = s.Operand(s.ListAt(0))[lane];
    Location from;
    const uint64_t address =
        s.SrcAsU64(0, lane, (s.ins.type & kWideFirst) != 0) + static_cast<uint64_t>(s.ins.imm);
    good = ResolveShared(s, address, kChunk, kChunk, lane, &from);
    if (!good) return;
    const Box box{size, {{s.SrcAsU64(1, lane, true), 0, size}}};
    CountBulk(s, box);
    good = IssueStore(s, lane, box, static_cast<uint32_t>(from.offset), 0, 0);
  });
  s.cluster.events++;
  return good ? Flow::kNext : Flow::kStop;
}

Flow Commit(Step& s) {
  ForLanes(s.mask, [&](int lane) { s.warp.bulk.committed[lane]++; });
  return Flow::kNext;
}

// wait_group N of the lanes' own stores; with or without .read the source may be written again.
Flow WaitGroup(Step& s) {
  auto& stores = s.cluster.bulk_stores;
  for (BulkStore& store : stores) {
    if (store.actor != s.warp.actor || (s.mask >> store.lane & 1) == 0) continue;
    const int64_t pending = static_cast<int64_t>(s.warp.bulk.committed[store.lane]) - s.ins.imm;
    if (static_cast<int64_t>(store.group) >= pending) continue;
    if (!store.done) FinishBulkStore(s.cluster, store);
    if (s.checks())
      for (const Span& span : store.spans)
        store.cta->shadow.EndStoreRead(s.Who(store.lane), span.offset, span.size);
    store.waited = true;
  }
  stores.erase(std::remove_if(stores.begin(), stores.end(),
                              [](const BulkStore& store) { return store.waited; }),
               stores.end());
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kTmaLoad, TmaLoad},         {Op::kTmaStore, TmaStore}, {Op::kBulkLoad, BulkLoad},
    {Op::kBulkStore, BulkStoreFlat}, {Op::kBulkCommit, Commit}, {Op::kBulkWait, WaitGroup},
};

}  // namespace

bool LandOneBulkCopy(Cluster& cluster) {
  auto& copies = cluster.bulk_copies;
  if (copies.empty()) return false;
  // The latest first: nothing may rely on the order of issue.
  size_t pick = copies.size() - 1;
  if (cluster.launch.landing == When::kRandom) pick = cluster.random() % copies.size();
  BulkCopy copy = std::move(copies[pick]);
  copies.erase(copies.begin() + static_cast<int64_t>(pick));
  Complete(cluster, std::move(copy));
  return true;
}

void FinishBulkStore(Cluster& cluster, const BulkStore& store) {
  for (const StorePiece& piece : store.pieces) {
    const uint8_t* from = &store.cta->shared[piece.offset];
    if (store.reduction != 0)
      AddElements(store.element, piece.to, from, piece.size);
    else
      std::memcpy(piece.to, from, piece.size);
  }
}

void AddBulkHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
