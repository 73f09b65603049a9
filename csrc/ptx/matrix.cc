// ldmatrix, stmatrix and mma.sync.
#include <cstring>

#include "ptx/address.h"
#include "ptx/fragments.h"

namespace jaxpipe::ptx {
namespace {

constexpr int kRows8 = 8;
constexpr int kRowBytes = 16;

// Row addresses: lanes 8j .. 8j+7 give the rows of matrix j.
bool RowAddresses(Step& s, Location (&rows)[kLanes]) {
  const int matrices = s.ins.list_size;
  uint32_t offsets[kLanes] = {};
  const uint32_t lanes = matrices == 4 ? kAllLanes : (1u << (kRows8 * matrices)) - 1;
  bool good = true;
  ForLanes(lanes, [&](int lane) {
    if (!good) return;
    const uint64_t address =
        s.SrcAsU64(0, lane, (s.ins.type & 2) != 0) + static_cast<uint64_t>(s.ins.imm);
    good = ResolveShared(s, address, kRowBytes, kRowBytes, lane, &rows[lane]);
    offsets[lane] = good ? static_cast<uint32_t>(rows[lane].offset) : 0;
  });
  if (good) CountShared(s.counters(), offsets, lanes, kRowBytes);
  return good;
}

// type bit 0: .trans, bit 1: 64-bit addresses.
Flow LdMatrix(Step& s) {
  Location rows[kLanes];
  if (!RowAddresses(s, rows)) return Flow::kStop;
  const bool transposed = (s.ins.type & 1) != 0;
  for (int j = 0; j < s.ins.list_size; ++j) {
    uint16_t tile[kRows8][kRows8];
    for (int r = 0; r < kRows8; ++r) {
      const Location& row = rows[kRows8 * j + r];
      if (s.checks())
        row.cta->shadow.Read(s.Who(kWholeWarp), static_cast<uint32_t>(row.offset), kRowBytes);
      std::memcpy(tile[r], row.data, kRowBytes);
    }
    uint32_t* to = s.warp.Reg(s.ListAt(j));
    for (int lane = 0; lane < kLanes; ++lane) {
      const int g = lane / 4, t = lane % 4 * 2;
      to[lane] = transposed ? tile[t][g] | static_cast<uint32_t>(tile[t + 1][g]) << 16
                            : tile[g][t] | static_cast<uint32_t>(tile[g][t + 1]) << 16;
    }
  }
  return Flow::kNext;
}

Flow StMatrix(Step& s) {
  Location rows[kLanes];
  if (!RowAddresses(s, rows)) return Flow::kStop;
  const bool transposed = (s.ins.type & 1) != 0;
  for (int j = 0; j < s.ins.list_size; ++j) {
    uint16_t tile[kRows8][kRows8];
    const uint32_t* from = s.Operand(s.ListAt(j));
    for (int lane = 0; lane < kLanes; ++lane) {
      const int g = lane / 4, t = lane % 4 * 2;
      (transposed ? tile[t][g] : tile[g][t]) = static_cast<uint16_t>(from[lane]);
      (transposed ? tile[t + 1][g] : tile[g][t + 1]) = static_cast<uint16_t>(from[lane] >> 16);
    }
    for (int r = 0; r < kRows8; ++r) {
      const Location& row = rows[kRows8 * j + r];
      const auto* bytes = reinterpret_cast<const uint8_t*>(tile[r]);
      if (s.checks())
        row.cta->shadow.Write(s.Who(kWholeWarp), static_cast<uint32_t>(row.offset), kRowBytes,
                              bytes);
      std::memcpy(row.data, bytes, kRowBytes);
    }
  }
  s.cluster.events++;
  return Flow::kNext;
}

// mma.sync m16n8kK: D = A B + C. The list holds D, A, B, C; type as in MmaShape.
Flow Mma(Step& s) {
  const MmaShape shape(s.ins.type);
  const int d_registers = shape.AccumulatorRegisters(kMmaColumns);
  const int a_registers = shape.OperandRegisters(kMmaRows);
  const int b_registers = shape.OperandRegisters(kMmaColumns);
  const uint32_t* in[20];
  for (int i = 0; i < s.ins.list_size; ++i) in[i] = s.Operand(s.ListAt(i));
  MmaTile tile;
  LoadOperandA(shape, in + d_registers, &tile);
  LoadOperandB(shape, in + d_registers + a_registers, b_registers, &tile);
  LoadAccumulator(shape, in + d_registers + a_registers + b_registers, &tile);
  MultiplyAccumulate(shape, &tile);
  uint32_t* out[4];
  for (int i = 0; i < d_registers; ++i) out[i] = s.warp.Reg(s.ListAt(i));
  StoreAccumulator(shape, tile, out);
  return Flow::kNext;
}

constexpr HandlerRow kRows[] = {
    {Op::kLdMatrix, LdMatrix},
    {Op::kStMatrix, StMatrix},
    {Op::kMma, Mma},
};

}  // namespace

void AddMatrixHandlers(HandlerTable& table) {
  for (const HandlerRow& row : kRows) table[static_cast<int>(row.op)] = row.handler;
}

}  // namespace jaxpipe::ptx
