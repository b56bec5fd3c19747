// Gradients by central differences, and the comparison that tests of numerics use.

#pragma once

#include <cmath>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/rng.h"
#include "gtest/gtest.h"
#include "tests/testing/array.h"

namespace trainyard::testing {

// Whether Derivative is calling its function. Tests of kernels then call the CPU's kernels
// (tests/kernels/call.h).
inline bool& InDerivative() {
  thread_local bool in_derivative = false;
  return in_derivative;
}

// The derivative at 0 of value(h), by differences of fourth order. The error is about 1e-12 of the
// values involved, for functions that are smooth on a scale of 0.01.
template <typename Function>
double Derivative(Function&& value) {
  constexpr double kStep = 5e-4;
  InDerivative() = true;
  const absl::Cleanup done = [] { InDerivative() = false; };
  const auto difference = [&](double h) {
    const double above = value(h);
    return above - value(-h);
  };
  return (8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep);
}

// d loss() / d x[i] for each i.
template <typename Loss>
std::vector<double> NumericGrad(std::vector<double>& x, Loss&& loss) {
  std::vector<double> gradient;
  for (double& xi : x) {
    const double at = xi;
    gradient.push_back(Derivative([&](double h) {
      xi = at + h;
      return loss();
    }));
    xi = at;
  }
  return gradient;
}

// |got - want| / |want| in the Euclidean norm; infinite where a value is not a number.
template <typename T>
double RelativeError(const std::vector<T>& got, const std::vector<T>& want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(double(got[i]) - double(want[i]), 2);
    norm += std::pow(double(want[i]), 2);
  }
  const double error = std::sqrt(difference) / std::sqrt(norm > 0 ? norm : 1);
  return std::isfinite(error) ? error : INFINITY;
}

template <typename T>
void ExpectClose(const std::vector<T>& got, const std::vector<T>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LE(RelativeError(got, want), tolerance);
}

// Expects that `got` is the gradient of loss() by x. If there are more elements than kDirections,
// which takes long on an emulated device, they are not varied one by one, but all at once in random
// directions of signs. A wrong element of `got` changes every such derivative by its error.
template <typename Loss>
void ExpectGradient(const std::vector<double>& got, std::vector<double>& x, Loss&& loss,
                    double tolerance) {
  constexpr size_t kDirections = 32;
  ASSERT_EQ(got.size(), x.size());
  if (x.size() <= kDirections) return ExpectClose(got, NumericGrad(x, loss), tolerance);
  const std::vector<double> at = x;
  std::vector<double> got_derivatives, want;
  for (size_t k = 0; k < kDirections; ++k) {
    const auto sign = [&](size_t i) { return (RandomBits(1, k, i) & 1) != 0 ? 1.0 : -1.0; };
    want.push_back(Derivative([&](double h) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = at[i] + h * sign(i);
      return loss();
    }));
    double derivative = 0;
    for (size_t i = 0; i < x.size(); ++i) derivative += got[i] * sign(i);
    got_derivatives.push_back(derivative);
  }
  x = at;
  ExpectClose(got_derivatives, want, tolerance);
}

}  // namespace trainyard::testing
