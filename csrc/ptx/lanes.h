// Lanes of a warp: iteration over a mask, and typed access to a register of 32 lanes.
#ifndef JAXPIPE_PTX_LANES_H_
#define JAXPIPE_PTX_LANES_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ptx/program.h"

namespace jaxpipe::ptx {

// Calls f(lane) for every lane of the mask, in ascending order.
template <typename F>
inline void ForLanes(uint32_t mask, F&& f) {
  if (mask == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
    return;
  }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) f(__builtin_ctz(rest));
}

inline int FirstLane(uint32_t mask) { return __builtin_ctz(mask); }

// A lane of a register as T: 8-byte values take two slots, smaller ones sit low in one.
template <typename T>
inline T Get(const uint32_t* reg, int lane) {
  static_assert(sizeof(T) <= 8);
  if constexpr (sizeof(T) == 8) {
    T value;
    std::memcpy(&value, reg + 2 * lane, 8);
    return value;
  } else if constexpr (std::is_floating_point_v<T>) {
    T value;
    std::memcpy(&value, reg + lane, 4);
    return value;
  } else {
    return static_cast<T>(reg[lane]);
  }
}

template <typename T>
inline void Put(uint32_t* reg, int lane, T value) {
  if constexpr (sizeof(T) == 8) {
    std::memcpy(reg + 2 * lane, &value, 8);
  } else if constexpr (std::is_floating_point_v<T>) {
    std::memcpy(reg + lane, &value, 4);
  } else {
    reg[lane] = static_cast<std::make_unsigned_t<T>>(value);
  }
}

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_LANES_H_
