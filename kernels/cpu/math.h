// Elementary functions that the compiler can vectorise: they have no calls and no branches.

#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace trainyard::cpu {

inline double Exp(double x) { return std::exp(x); }

// Replaces x by exp(x), within 2 units in the last place. The result is 0 for x below -87.3,
// infinite above 88.7, and NaN for NaN.
//
// Method: exp(x) = 2^n exp(r) with |r| <= ln(2)/2, and exp(r) by the polynomial of Cephes' expf
// (Moshier 1992). Adding 1.5 2^23 rounds to an integer and leaves it in the lowest bits, from which
// a shift moves it to the exponent.
//
// F is float or a GCC vector of floats, and U the unsigned integers of the same shape. x is passed
// by reference, because vectors wider than the target's registers change the calling convention.
template <typename F, typename U>
[[gnu::always_inline]] inline void ReplaceByExp(F& x) {
  constexpr float kRound = 12582912.0f;
  const F t = x * 1.44269504088896341f + kRound;
  const F n = t - kRound;
  const F r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const U bits = __builtin_bit_cast(U, p) + (__builtin_bit_cast(U, t) << 23);
  const F infinite = F{} + std::numeric_limits<float>::infinity();
  F y = x > 88.7f ? infinite : __builtin_bit_cast(F, bits);
  y = x < -87.3f ? F{} : y;
  x = x == x ? y : x;
}

inline float Exp(float x) {
  ReplaceByExp<float, uint32_t>(x);
  return x;
}

template <typename A>
A Sigmoid(A x) {
  return A(1) / (A(1) + Exp(-x));
}

template <typename A>
A Tanh(A x) {
  return A(1) - A(2) / (A(1) + Exp(A(2) * x));
}

// log(1 + exp(x)), within a few units in the last place.
inline double Softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
// With u = exp(-|x|) and z = u / (2 + u), log(1 + u) = 2 artanh(z), and z is at most 1/3.
inline float Softplus(float x) {
  const float u = Exp(x < 0.0f ? x : -x), z = u / (2.0f + u), w = z * z;
  float p = w * (1.0f / 13) + 1.0f / 11;
  p = p * w + 1.0f / 9;
  p = p * w + 1.0f / 7;
  p = p * w + 1.0f / 5;
  p = p * w + 1.0f / 3;
  p = p * w + 1.0f;
  return (x > 0.0f ? x : 0.0f) + 2.0f * z * p;
}

inline constexpr double kRootTwoOverPi = 0.7978845608028653558798921;
inline constexpr double kCubic = 0.044715;

// GELU in its tanh form (gelu.h), and its derivative.
template <typename A>
A Gelu(A x) {
  const A z = A(kRootTwoOverPi) * (x + A(kCubic) * x * x * x);
  return A(0.5) * x * (A(1) + Tanh(z));
}

template <typename A>
A GeluDerivative(A x) {
  const A tanh = Tanh(A(kRootTwoOverPi) * (x + A(kCubic) * x * x * x));
  const A dz = A(kRootTwoOverPi) * (A(1) + A(3 * kCubic) * x * x);
  return A(0.5) * (A(1) + tanh) + A(0.5) * x * (A(1) - tanh * tanh) * dz;
}

}  // namespace trainyard::cpu
