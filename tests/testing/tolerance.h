// How far a result may be from the exact one: the one table of tolerances.

#pragma once

#include <cmath>

#include "kernels/device/dtype.h"

namespace trainyard::testing {

// Distance from 1 to the next number.
constexpr double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    default:
      return 0x1p-7;  // bf16: 8 bits of precision.
  }
}

// Relative, in the Euclidean norm, for outputs of `dtype` that are sums over `reduction` terms of
// like size and random sign. Sums run in the accumulate dtype and are rounded once at the end, so
// the length counts at that dtype's precision.
inline double Tolerance(DType dtype, int64_t reduction) {
  constexpr double kFactor = 2;
  return kFactor * (Epsilon(dtype) + Epsilon(AccumulateOfDType(dtype)) * std::sqrt(reduction));
}

}  // namespace trainyard::testing
