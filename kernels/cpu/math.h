// Elementary functions that the compiler can vectorise: no calls, no branches.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace trainyard::cpu {

inline double Exp(double x) { return std::exp(x); }

// Within 2 units in the last place; 0 below -87.3, infinite above 88.7, NaN for NaN.
// Method: exp(x) = 2^n exp(r) with |r| <= ln(2)/2, exp(r) by the polynomial of Cephes' expf
// (Moshier 1992).
inline float Exp(float x) {
  constexpr float kLow = -87.3f, kHigh = 88.7f;
  const float c = x < kLow ? kLow : (x > kHigh ? kHigh : x);  // In this form NaN stays NaN.
  const float n = __builtin_rintf(c * 1.44269504088896341f);
  const float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const float y = p * std::bit_cast<float>((uint32_t(int32_t(n)) + 127u) << 23);
  return x < kLow ? 0.0f : (x > kHigh ? std::numeric_limits<float>::infinity() : y);
}

template <typename A>
A Sigmoid(A x) {
  return A(1) / (A(1) + Exp(-x));
}

template <typename A>
A Tanh(A x) {
  return A(1) - A(2) / (A(1) + Exp(A(2) * x));
}

}  // namespace trainyard::cpu
