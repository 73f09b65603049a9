// Tensor-core fragments: how a warp's registers hold the pieces of A, B and the accumulator.
//
// With g = lane / 4 and t = lane % 4, every operand register holds 4 bytes of K: of A the row
// g + 8 (q & 1) from byte 4 t + 16 (q >> 1), of B the column g from byte 4 t + 16 q. Accumulators
// hold row g + 8 (q >> 1), column 2 t + (q & 1) of each 8 columns; float16 ones two columns packed.
// wgmma uses the same fragments, with N up to 256. Source: PTX ISA, matrix fragments of
// mma.m16n8k*.
#ifndef JAXPIPE_PTX_FRAGMENTS_H_
#define JAXPIPE_PTX_FRAGMENTS_H_

#include <cstdint>
#include <vector>

#include "ptx/formats.h"
#include "ptx/program.h"

namespace jaxpipe::ptx {

inline constexpr int kMmaRows = 16;
inline constexpr int kMmaColumns = 8;
inline constexpr int kMaxK = 32;

enum class Accumulator : int32_t { kF32, kF16, kS32 };

// Instruction::type of mma.sync and wgmma, shared with encode.py.
struct MmaShape {
  Element a, b;
  Accumulator accumulator;
  int k;                                            // elements
  int columns;                                      // N
  bool a_transposed, b_transposed, a_in_registers;  // wgmma
  bool saturates;                                   // integers: clamp instead of wrapping

  explicit MmaShape(int32_t type)
      : a(static_cast<Element>(type & 7)),
        b(static_cast<Element>(type >> 3 & 7)),
        accumulator(static_cast<Accumulator>(type >> 6 & 3)),
        k(type >> 8 & 63),
        columns((type >> 14 & 63) * 8),
        a_transposed((type >> 20 & 1) != 0),
        b_transposed((type >> 21 & 1) != 0),
        a_in_registers((type >> 22 & 1) != 0),
        saturates((type >> 23 & 1) != 0) {}

  // Registers a lane holds of a 16-bit-wide or other operand of `rows` rows and K columns.
  int OperandRegisters(int rows) const { return rows * k * ElementBytes(a) / (4 * kLanes); }
  int AccumulatorRegisters(int n) const { return accumulator == Accumulator::kF16 ? n / 4 : n / 2; }
  bool is_integer() const { return accumulator == Accumulator::kS32; }
};

// One warp's 16 x N accumulator with its operands, unpacked. Integers use the int members.
struct MmaTile {
  float a[kMmaRows * kMaxK];        // [row][k]
  float b[kMaxK * kMmaColumns];     // [k][column]
  float d[kMmaRows * kMmaColumns];  // [row][column]
  int32_t ai[kMmaRows * kMaxK];
  int32_t bi[kMaxK * kMmaColumns];
  int32_t di[kMmaRows * kMmaColumns];
};

// One element as float; integers up to 8 bits are exact.
float DecodeFloat(Element element, const uint8_t* bytes);
int32_t DecodeInt(Element element, const uint8_t* bytes);

void LoadOperandA(const MmaShape& shape, const uint32_t* const* registers, MmaTile* tile);
void LoadOperandB(const MmaShape& shape, const uint32_t* const* registers, int count,
                  MmaTile* tile);
void LoadAccumulator(const MmaShape& shape, const uint32_t* const* registers, MmaTile* tile);
void StoreAccumulator(const MmaShape& shape, const MmaTile& tile, uint32_t* const* registers);
void MultiplyAccumulate(const MmaShape& shape, MmaTile* tile);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_FRAGMENTS_H_
