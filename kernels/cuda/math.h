// Functions of single elements, in f32 and f64, that several kernels use.

#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

namespace trainyard::cuda {

// The result has an error of a few units in the last place. It is 0 if exp(-x) overflows.
template <typename A>
__device__ A Sigmoid(A x) {
  const A denominator = A(1) + std::exp(-x);
  if constexpr (std::is_same_v<A, float>) {
    return __fdividef(1.0f, denominator);  // Two instructions instead of ten.
  } else {
    return A(1) / denominator;
  }
}

constexpr double kRootTwoOverPi = 0.7978845608028653558798921;
constexpr double kCubic = 0.044715;

// GELU in its tanh form (gelu.h) is x GeluGate(x). The gate is (1 + tanh z) / 2 = sigmoid(2z).
template <typename A>
__device__ A GeluGate(A x) {
  return Sigmoid(A(2 * kRootTwoOverPi) * (x + A(kCubic) * x * x * x));
}
// The derivative of GELU at x; `gate` is GeluGate(x).
template <typename A>
__device__ A GeluDerivative(A x, A gate) {
  const A dz = A(2 * kRootTwoOverPi) * (A(1) + A(3 * kCubic) * x * x);
  return gate + x * gate * (A(1) - gate) * dz;
}

// The gated unit of swiglu.h with SiLU, g sigmoid(g) u.
template <typename A>
__device__ A SwiGlu(A g, A u) {
  return g * Sigmoid(g) * u;
}

// The derivatives of SwiGlu(g, u) times d, and its value times d.
template <typename A>
struct SwiGluGradient {
  A dg, du, along;
  __device__ SwiGluGradient(A d, A g, A u) {
    const A s = Sigmoid(g);
    dg = d * u * s * (A(1) + g * (A(1) - s));
    du = d * g * s;
    along = du * u;
  }
};

// The gated unit of swiglu.h with GELU, and its derivatives times d.
template <typename A>
__device__ A GeGlu(A g, A u) {
  return g * GeluGate(g) * u;
}
template <typename A>
struct GeGluGradient {
  A dg, du;
  __device__ GeGluGradient(A d, A g, A u) {
    const A gate = GeluGate(g);
    dg = d * u * GeluDerivative(g, gate);
    du = d * g * gate;
  }
};

}  // namespace trainyard::cuda
