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

// The gated unit of swiglu.h, g sigmoid(g) u.
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

}  // namespace trainyard::cuda
