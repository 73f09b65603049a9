// Atomic updates of memory that several blocks share.
#ifndef JAXPIPE_PTX_ELEMENT_ADD_H_
#define JAXPIPE_PTX_ELEMENT_ADD_H_

#include <cstdint>

#include "ptx/formats.h"
#include "ptx/tensor_map.h"

namespace jaxpipe::ptx {

// Replaces *at by next(*at) as one step; returns what was there.
template <typename T, typename F>
T UpdateAtomically(uint8_t* at, F&& next) {
  T* word = reinterpret_cast<T*>(at);
  T old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(word, &old, static_cast<T>(next(old)), false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

// Adds `bytes` of elements of a tensor map's type, each as one atomic step (cp.reduce .add).
inline void AddElements(int type, uint8_t* to, const uint8_t* from, uint32_t bytes) {
  const uint32_t size = TensorElementBytes(static_cast<uint8_t>(type));
  for (uint32_t at = 0; at < bytes; at += size) {
    uint64_t bits = 0;
    std::memcpy(&bits, from + at, size);
    if (size == 2) {
      const bool is_f16 = type == 6;
      UpdateAtomically<uint16_t>(to + at, [&](uint16_t old) {
        const uint16_t added = static_cast<uint16_t>(bits);
        return is_f16 ? F16OfFloat(FloatOfF16(old) + FloatOfF16(added))
                      : Bf16OfFloat(FloatOfBf16(old) + FloatOfBf16(added));
      });
    } else if (size == 4) {
      const bool is_float = type >= 7;
      UpdateAtomically<uint32_t>(to + at, [&](uint32_t old) {
        const uint32_t added = static_cast<uint32_t>(bits);
        return is_float ? BitsOf(FloatOf(old) + FloatOf(added)) : old + added;
      });
    }
  }
}

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_ELEMENT_ADD_H_
