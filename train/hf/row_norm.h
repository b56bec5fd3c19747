// The norm of a row of a weight, as DoRA has it (arXiv:2402.09353, section 4).

#pragma once

#include <cmath>
#include <numeric>
#include <span>

namespace trainyard {

// Export adds the norms that import has subtracted, so both take the same sum.
inline double RowNorm(std::span<const double> row) {
  return std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
}

}  // namespace trainyard
