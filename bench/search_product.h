// How fast cuBLASLt's algorithms are for a product, against the one that the library holds for the
// fastest, which training uses.

#pragma once

#include "bench/products.h"
#include "kernels/device/backend.h"

namespace trainyard::bench {

struct ProductTimes {
  double first = 0;  // Seconds of the first algorithm that the library does not refuse.
  double best = 0;
  int number = 0;  // Of the best, from 1 in the library's order...
  int of = 1;      // ... and how many there are.
};

// On operands of random numbers, each algorithm for about `seconds`. `backend`: CUDA's.
// RESOURCE_EXHAUSTED where the memory is lacking.
absl::StatusOr<ProductTimes> SearchProduct(const Backend& backend, const StepProduct& product,
                                           double seconds);

}  // namespace trainyard::bench
