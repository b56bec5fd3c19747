// Gradients by central differences, and the comparison that tests of numerics use.

#pragma once

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/array.h"

namespace trainyard::testing {

// d loss() / d x[i], by differences of fourth order: the error is about 1e-12 of the values
// involved, for functions that are smooth on a scale of 0.01.
template <typename Loss>
std::vector<double> NumericGrad(std::vector<double>& x, Loss&& loss) {
  constexpr double kStep = 1e-3;
  std::vector<double> gradient;
  for (double& xi : x) {
    const double at = xi;
    const auto difference = [&](double h) {
      xi = at + h;
      const double above = loss();
      xi = at - h;
      const double below = loss();
      xi = at;
      return above - below;
    };
    gradient.push_back((8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep));
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

}  // namespace trainyard::testing
