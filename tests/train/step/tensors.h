// Global tensors by name, and how far two sets of them are apart.

#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "common/check.h"

namespace trainyard::testing {

using Tensors = std::map<std::string, std::vector<double>>;

// Returns the largest relative L2 difference of any tensor; infinity where a value is no number.
//
// Some gradients are zero but for rounding: a key's bias, where positions do not rotate keys, adds
// the same to all scores of a row, which softmax leaves as they are. The difference of a tensor
// that is below 1e-14 of the largest tensor is divided by the norm of that largest tensor.
inline double LargestDifference(const Tensors& a, const Tensors& b) {
  CHECK(a.size() == b.size()) << a.size() << " and " << b.size() << " tensors";
  double largest = 0, most = 0;
  for (const auto& [name, y] : b) {
    most = std::max(most, std::inner_product(y.begin(), y.end(), y.begin(), 0.0));
  }
  for (const auto& [name, x] : a) {
    const std::vector<double>& y = b.at(name);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      norm += y[i] * y[i];
    }
    const double beside = std::max(norm < 1e-28 * most ? most : norm, 1e-300);
    const double relative = std::sqrt(difference / beside);
    largest = std::isnan(relative) ? INFINITY : std::max(largest, relative);
  }
  return largest;
}

}  // namespace trainyard::testing
