#include "ptx/fragments.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace jaxpipe::ptx {
namespace {

template <typename T>
T Decode(Element element, const uint8_t* bytes) {
  if constexpr (std::is_same_v<T, float>)
    return DecodeFloat(element, bytes);
  else
    return DecodeInt(element, bytes);
}

// Scatters the elements of one operand register: place(lane, byte offset in the 4-byte unit) .
template <typename T, typename F>
void Scatter(Element element, const uint32_t* reg, T* to, F&& place) {
  const int bytes = ElementBytes(element);
  for (int lane = 0; lane < kLanes; ++lane) {
    uint8_t raw[4];
    std::memcpy(raw, reg + lane, 4);
    for (int i = 0; i < 4 / bytes; ++i) to[place(lane, i)] = Decode<T>(element, raw + i * bytes);
  }
}

template <typename T>
void LoadA(const MmaShape& shape, const uint32_t* const* registers, T* a) {
  const int per_unit = 4 / ElementBytes(shape.a);
  for (int q = 0; q < shape.OperandRegisters(kMmaRows); ++q)
    Scatter<T>(shape.a, registers[q], a, [&](int lane, int i) {
      return (lane / 4 + 8 * (q & 1)) * kMaxK + (lane % 4 + 4 * (q >> 1)) * per_unit + i;
    });
}

template <typename T>
void LoadB(const MmaShape& shape, const uint32_t* const* registers, int count, T* b) {
  const int per_unit = 4 / ElementBytes(shape.b);
  for (int q = 0; q < count; ++q)
    Scatter<T>(shape.b, registers[q], b, [&](int lane, int i) {
      return ((lane % 4 + 4 * q) * per_unit + i) * kMmaColumns + lane / 4;
    });
}

void MultiplyFloats(int k_count, const float* a, const float* b, float* d) {
  for (int row = 0; row < kMmaRows; ++row) {
    float sums[kMmaColumns];
    std::memcpy(sums, d + row * kMmaColumns, sizeof sums);
    for (int k = 0; k < k_count; ++k) {
      const float factor = a[row * kMaxK + k];
      for (int n = 0; n < kMmaColumns; ++n) sums[n] += factor * b[k * kMmaColumns + n];
    }
    std::memcpy(d + row * kMmaColumns, sums, sizeof sums);
  }
}

// The products of 8-bit factors cannot overflow; only the one addition to the accumulator can.
void MultiplyIntegers(const MmaShape& shape, const int32_t* a, const int32_t* b, int32_t* d) {
  constexpr int64_t kLow = std::numeric_limits<int32_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int32_t>::max();
  for (int row = 0; row < kMmaRows; ++row) {
    int32_t sums[kMmaColumns] = {};
    for (int k = 0; k < shape.k; ++k) {
      const int32_t factor = a[row * kMaxK + k];
      for (int n = 0; n < kMmaColumns; ++n) sums[n] += factor * b[k * kMmaColumns + n];
    }
    for (int n = 0; n < kMmaColumns; ++n) {
      int32_t& to = d[row * kMmaColumns + n];
      const int64_t sum = int64_t{to} + sums[n];
      to = static_cast<int32_t>(shape.saturates ? std::clamp(sum, kLow, kHigh) : sum);
    }
  }
}

// Index in an accumulator tile of register q at a lane (32-bit accumulators).
int AccumulatorIndex(int q, int lane) {
  return (lane / 4 + 8 * (q >> 1)) * kMmaColumns + lane % 4 * 2 + (q & 1);
}

}  // namespace

float DecodeFloat(Element element, const uint8_t* bytes) {
  uint16_t half;
  uint32_t word;
  switch (element) {
    case Element::kBf16:
      std::memcpy(&half, bytes, 2);
      return FloatOfBf16(half);
    case Element::kF16:
      std::memcpy(&half, bytes, 2);
      return FloatOfF16(half);
    case Element::kTf32:
      std::memcpy(&word, bytes, 4);
      return FloatOfTf32(word);
    case Element::kE4m3:
      return FloatOfE4m3(*bytes);
    case Element::kE5m2:
      return FloatOfE5m2(*bytes);
    default:
      return static_cast<float>(DecodeInt(element, bytes));
  }
}

int32_t DecodeInt(Element element, const uint8_t* bytes) {
  return element == Element::kS8 ? static_cast<int8_t>(*bytes) : *bytes;
}

void LoadOperandA(const MmaShape& shape, const uint32_t* const* registers, MmaTile* tile) {
  if (shape.is_integer())
    LoadA(shape, registers, tile->ai);
  else
    LoadA(shape, registers, tile->a);
}

void LoadOperandB(const MmaShape& shape, const uint32_t* const* registers, int count,
                  MmaTile* tile) {
  if (shape.is_integer())
    LoadB(shape, registers, count, tile->bi);
  else
    LoadB(shape, registers, count, tile->b);
}

void LoadAccumulator(const MmaShape& shape, const uint32_t* const* registers, MmaTile* tile) {
  for (int q = 0; q < shape.AccumulatorRegisters(kMmaColumns); ++q) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t bits = registers[q][lane];
      if (shape.accumulator == Accumulator::kF32) {
        tile->d[AccumulatorIndex(q, lane)] = FloatOf(bits);
      } else if (shape.accumulator == Accumulator::kS32) {
        tile->di[AccumulatorIndex(q, lane)] = static_cast<int32_t>(bits);
      } else {
        float* pair = &tile->d[AccumulatorIndex(2 * q, lane)];
        pair[0] = FloatOfF16(static_cast<uint16_t>(bits));
        pair[1] = FloatOfF16(static_cast<uint16_t>(bits >> 16));
      }
    }
  }
}

void StoreAccumulator(const MmaShape& shape, const MmaTile& tile, uint32_t* const* registers) {
  for (int q = 0; q < shape.AccumulatorRegisters(kMmaColumns); ++q) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (shape.accumulator == Accumulator::kF32) {
        registers[q][lane] = BitsOf(tile.d[AccumulatorIndex(q, lane)]);
      } else if (shape.accumulator == Accumulator::kS32) {
        registers[q][lane] = static_cast<uint32_t>(tile.di[AccumulatorIndex(q, lane)]);
      } else {
        const float* pair = &tile.d[AccumulatorIndex(2 * q, lane)];
        registers[q][lane] = F16OfFloat(pair[0]) | static_cast<uint32_t>(F16OfFloat(pair[1])) << 16;
      }
    }
  }
}

void MultiplyAccumulate(const MmaShape& shape, MmaTile* tile) {
  if (shape.is_integer())
    MultiplyIntegers(shape, tile->ai, tile->bi, tile->di);
  else
    MultiplyFloats(shape.k, tile->a, tile->b, tile->d);
}

}  // namespace jaxpipe::ptx
