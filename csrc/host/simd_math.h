// Activations on vectors. Include after one of simd_*.h. Errors are against float64, measured by
// tests/ops/test_fused_dot.py and tests/ops/test_gradient_epilogue.py.
#ifndef JAXPIPE_HOST_SIMD_MATH_H_
#define JAXPIPE_HOST_SIMD_MATH_H_

#include "host/problem.h"

namespace jaxpipe::host {
namespace {

using V = Simd::V;

// exp(x) for x clamped to [-87, 88]: Cody-Waite reduction, then 1 + r + r^2 Q(r) on |r| <= ln2/2.
// Q is a minimax fit (relative error 3e-9, below float32's rounding).
inline V Exp(V x) {
  x = Simd::Min(Simd::Set1(88.0f), Simd::Max(Simd::Set1(-87.0f), x));
  const V n = Simd::Round(Simd::Mul(x, Simd::Set1(1.44269504f)));
  V r = Simd::Fma(n, Simd::Set1(-0.693359375f), x);
  r = Simd::Fma(n, Simd::Set1(2.12194440e-4f), r);
  V q = Simd::Set1(1.39506306e-3f);
  q = Simd::Fma(q, r, Simd::Set1(8.36896995e-3f));
  q = Simd::Fma(q, r, Simd::Set1(4.16662037e-2f));
  q = Simd::Fma(q, r, Simd::Set1(1.66665182e-1f));
  q = Simd::Fma(q, r, Simd::Set1(5.0000001e-1f));
  const V p = Simd::Add(Simd::Fma(q, Simd::Mul(r, r), r), Simd::Set1(1.0f));
  return Simd::Scale(p, n);
}

// x * sigmoid(z). A reciprocal and a product, so that -inf gives NaN as x * 0 does in XLA.
inline V TimesSigmoid(V x, V z) {
  const V one = Simd::Set1(1.0f);
  return Simd::Mul(x, Simd::Div(one, Simd::Add(one, Exp(Simd::Sub(Simd::Zero(), z)))));
}

inline V Sigmoid(V z) { return TimesSigmoid(Simd::Set1(1.0f), z); }

// logit(Phi(x)) as x * P(x^2): P is a minimax fit on |x| <= 6, weighted by its effect on
// x * Phi(x) (absolute error 7e-8 before rounding).
inline V LogitPhi(V x) {
  const V t = Simd::Min(Simd::Set1(36.0f), Simd::Mul(x, x));
  V p = Simd::Set1(3.611122952129688e-09f);
  p = Simd::Fma(p, t, Simd::Set1(-2.668883677573714e-07f));
  p = Simd::Fma(p, t, Simd::Set1(7.938153493719943e-06f));
  p = Simd::Fma(p, t, Simd::Set1(-1.1047987968e-04f));
  p = Simd::Fma(p, t, Simd::Set1(-6.6261333936e-05f));
  p = Simd::Fma(p, t, Simd::Set1(7.26685687606e-02f));
  p = Simd::Fma(p, t, Simd::Set1(1.59576843157f));
  return Simd::Mul(x, p);
}

inline V GeluErf(V x) { return TimesSigmoid(x, LogitPhi(x)); }

// 0.5 x (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
inline V GeluTanh(V x) {
  const V cubic =
      Simd::Fma(Simd::Mul(x, x), Simd::Set1(0.0713548162726f), Simd::Set1(1.59576912160573f));
  return TimesSigmoid(x, Simd::Mul(x, cubic));
}

// |x| < 0.625: x + x^3 Q(x^2), a minimax fit (relative error 5e-9); else 1 - 2 / (exp(2|x|) + 1).
inline V Tanh(V x) {
  const V a = Simd::Abs(x), one = Simd::Set1(1.0f), t = Simd::Mul(x, x);
  V q = Simd::Set1(-5.60155989e-3f);
  q = Simd::Fma(q, t, Simd::Set1(2.05496122e-2f));
  q = Simd::Fma(q, t, Simd::Set1(-5.37134659e-2f));
  q = Simd::Fma(q, t, Simd::Set1(1.33311452e-1f));
  q = Simd::Fma(q, t, Simd::Set1(-3.33332718e-1f));
  const V small = Simd::Fma(Simd::Mul(q, t), x, x);
  const V e = Exp(Simd::Add(a, a));
  const V large = Simd::Sub(one, Simd::Div(Simd::Set1(2.0f), Simd::Add(e, one)));
  return Simd::SelectLess(a, Simd::Set1(0.625f), small, Simd::CopySign(large, x));
}

// The slope of x * sigmoid(z), s + x s (1 - s) w, where w is that of z. With e = exp(-z) the factor
// 1 - s is e s, without cancellation.
inline V SlopeOfTimesSigmoid(V x, V z, V w) {
  const V one = Simd::Set1(1.0f), e = Exp(Simd::Sub(Simd::Zero(), z));
  const V s = Simd::Div(one, Simd::Add(one, e));
  return Simd::Fma(Simd::Mul(Simd::Mul(x, s), Simd::Mul(e, s)), w, s);
}

inline V GeluTanhSlope(V x) {
  const V t = Simd::Min(Simd::Set1(1.0e6f), Simd::Mul(x, x)), one = Simd::Set1(1.59576912160573f);
  const V z = Simd::Mul(x, Simd::Fma(t, Simd::Set1(0.0713548162726f), one));
  return SlopeOfTimesSigmoid(x, z, Simd::Fma(t, Simd::Set1(0.2140644488178f), one));
}

inline V GeluErfSlope(V x) {
  const V density =
      Simd::Mul(Simd::Set1(0.398942280401f), Exp(Simd::Mul(Simd::Mul(x, x), Simd::Set1(-0.5f))));
  return Simd::Fma(x, density, Sigmoid(LogitPhi(x)));
}

// The first derivative of an activation.
inline V Derivative(Activation activation, V x) {
  const V one = Simd::Set1(1.0f);
  switch (activation) {
    case Activation::kRelu:
      return Simd::SelectLess(Simd::Zero(), x, one, Simd::Zero());
    case Activation::kGeluTanh:
      return GeluTanhSlope(x);
    case Activation::kGeluErf:
      return GeluErfSlope(x);
    case Activation::kSilu:
      return SlopeOfTimesSigmoid(x, x, one);
    case Activation::kTanh: {
      const V t = Tanh(x);
      return Simd::Sub(one, Simd::Mul(t, t));
    }
    case Activation::kNone:
      break;
  }
  return one;
}

template <Activation kActivation>
inline V Activate(V x) {
  if constexpr (kActivation == Activation::kRelu) return Simd::Max(Simd::Zero(), x);
  if constexpr (kActivation == Activation::kGeluTanh) return GeluTanh(x);
  if constexpr (kActivation == Activation::kGeluErf) return GeluErf(x);
  if constexpr (kActivation == Activation::kSilu) return TimesSigmoid(x, x);
  if constexpr (kActivation == Activation::kTanh) return Tanh(x);
  return x;
}

}  // namespace
}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_SIMD_MATH_H_
