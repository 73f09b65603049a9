// Narrow number formats: to and from float, as the PTX conversions define them.
#ifndef JAXPIPE_PTX_FORMATS_H_
#define JAXPIPE_PTX_FORMATS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace jaxpipe::ptx {

inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline bool IsNan(float value) { return (BitsOf(value) & 0x7fffffffu) > 0x7f800000u; }

// Subnormals become zero of their sign (.ftz).
inline float FlushToZero(float value) {
  const uint32_t bits = BitsOf(value);
  return (bits & 0x7f800000u) == 0 ? FloatOf(bits & 0x80000000u) : value;
}

inline float FloatOfBf16(uint16_t bits) { return FloatOf(static_cast<uint32_t>(bits) << 16); }

// Round to nearest even; NaN becomes the canonical 0x7fff.
inline uint16_t Bf16OfFloat(float value) {
  if (IsNan(value)) return 0x7fff;
  const uint32_t bits = BitsOf(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

inline float FloatOfF16(uint16_t half) {
  // Shifting the exponent field into place scales by 2^-112; one product undoes it, subnormals too.
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  uint32_t bits = BitsOf(FloatOf(magnitude) * 0x1p112f);
  if ((half & 0x7c00) == 0x7c00) bits = magnitude | 0x7f800000u;
  return FloatOf(bits | sign);
}

// Rounds |value| to `mantissa` bits with minimum exponent `min_exponent`, to nearest even.
inline double RoundMagnitude(double magnitude, int mantissa, int min_exponent) {
  if (magnitude == 0) return 0;
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int unit = std::max(exponent - 1, min_exponent) - mantissa;
  return std::ldexp(std::nearbyint(std::ldexp(magnitude, -unit)), unit);
}

inline uint16_t F16OfFloat(float value) {
  const uint16_t sign = static_cast<uint16_t>(BitsOf(value) >> 16 & 0x8000);
  if (IsNan(value)) return 0x7fff;
  const double rounded = RoundMagnitude(std::fabs(static_cast<double>(value)), 10, -14);
  if (rounded > 65504.0) return sign | 0x7c00;
  if (rounded < 0x1p-14) return sign | static_cast<uint16_t>(rounded * 0x1p24);
  int exponent;
  const double fraction = std::frexp(rounded, &exponent);
  const int mantissa = static_cast<int>(fraction * 2048) - 1024;
  return sign | static_cast<uint16_t>((exponent - 1 + 15) << 10 | mantissa);
}

// float32 with 10 bits of mantissa, ties away from zero (cvt.rna.tf32).
inline uint32_t Tf32OfFloat(uint32_t bits) {
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & 0xffffe000u;
}
inline uint32_t Tf32RnOfFloat(uint32_t bits) {
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0xfffu + ((bits >> 13) & 1)) & 0xffffe000u;
}
// What a tensor core reads of a tf32 operand: the low 13 bits are ignored.
inline float FloatOfTf32(uint32_t bits) { return FloatOf(bits & 0xffffe000u); }

// e4m3: no infinity, NaN is S.1111.111, largest 448. e5m2: the upper byte of a float16.
inline float FloatOfE4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return FloatOf(0x7fffffffu);
  const float magnitude = exponent != 0
                              ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 10)
                              : std::ldexp(static_cast<float>(mantissa), -9);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}
inline float FloatOfE5m2(uint8_t bits) { return FloatOfF16(static_cast<uint16_t>(bits << 8)); }

// With .satfinite: beyond the largest finite number is the largest finite number.
inline uint8_t E4m3OfFloat(float value) {
  const uint8_t sign = static_cast<uint8_t>(BitsOf(value) >> 24 & 0x80);
  if (IsNan(value)) return sign | 0x7f;
  double rounded = RoundMagnitude(std::fabs(static_cast<double>(value)), 3, -6);
  if (rounded > 448.0 || std::isinf(value)) rounded = 448.0;
  if (rounded < 0x1p-6) return sign | static_cast<uint8_t>(rounded * 0x1p9);
  int exponent;
  const double fraction = std::frexp(rounded, &exponent);
  return sign |
         static_cast<uint8_t>((exponent - 1 + 7) << 3 | (static_cast<int>(fraction * 16) - 8));
}
inline uint8_t E5m2OfFloat(float value) {
  const uint8_t sign = static_cast<uint8_t>(BitsOf(value) >> 24 & 0x80);
  if (IsNan(value)) return sign | 0x7f;
  double rounded = RoundMagnitude(std::fabs(static_cast<double>(value)), 2, -14);
  if (rounded > 57344.0 || std::isinf(value)) rounded = 57344.0;
  if (rounded < 0x1p-14) return sign | static_cast<uint8_t>(rounded * 0x1p16);
  int exponent;
  const double fraction = std::frexp(rounded, &exponent);
  return sign |
         static_cast<uint8_t>((exponent - 1 + 15) << 2 | (static_cast<int>(fraction * 8) - 4));
}

// The element types of tensor-core operands; the numbers are shared with encode.py.
enum class Element : int32_t { kBf16, kF16, kTf32, kE4m3, kE5m2, kS8, kU8 };

constexpr int ElementBytes(Element element) {
  switch (element) {
    case Element::kBf16:
    case Element::kF16:
      return 2;
    case Element::kTf32:
      return 4;
    default:
      return 1;
  }
}

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_FORMATS_H_
