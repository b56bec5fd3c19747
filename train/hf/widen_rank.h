// Makes the adapter of a layer one of a larger rank and of another scale that computes the same.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/dtype.h"
#include "models/hf/places.h"

namespace trainyard {

struct WidenedRank {
  int64_t rank = 0;   // At least that of the layer.
  double factor = 1;  // What b is multiplied by; a power of two.
};

// Returns the shape that the parameter has in an adapter of this rank.
Shape WidenedShape(const HfParameter& parameter, int64_t rank);

// Adds rows of zeros to a matrix a [rank, in]. Multiplies a matrix b [out, rank] by the factor and
// adds columns of zeros. What is added has no gradient, because the other matrix has zeros there,
// too. Leaves other parameters as they are. `values` are those of the parameter, in `dtype`, a
// floating-point format. Returns whether all numbers are finite, and exact. Otherwise the values
// have no meaning.
bool WidenRank(const WidenedRank& wanted, DType dtype, HfParameter& parameter,
               std::vector<char>& values);

}  // namespace trainyard
