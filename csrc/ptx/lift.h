// Turns a function of scalars into a handler that applies it lane by lane.
//
// `Lift<AddU32>` reads as many operands as the function has parameters, with their types, and
// writes its result to the destination: the signature is the whole description of an operation.
#ifndef JAXPIPE_PTX_LIFT_H_
#define JAXPIPE_PTX_LIFT_H_

#include <cstddef>
#include <utility>

#include "ptx/machine.h"

namespace jaxpipe::ptx {

template <auto kFunction>
struct Lifted;

template <typename D, typename... S, D (*kFunction)(S...)>
struct Lifted<kFunction> {
  static Flow Run(Step& step) { return Apply(step, std::index_sequence_for<S...>{}); }

  template <size_t... I>
  static Flow Apply(Step& step, std::index_sequence<I...>) {
    const uint32_t* in[] = {step.Src(I)...};
    // Results go to a buffer first: the destination may be a source, and this vectorises.
    D out[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = kFunction(Get<S>(in[I], lane)...);
    uint32_t* to = step.Dst();
    ForLanes(step.mask, [&](int lane) { Put<D>(to, lane, out[lane]); });
    return Flow::kNext;
  }
};

template <auto kFunction>
inline constexpr Handler Lift = &Lifted<kFunction>::Run;

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_LIFT_H_
