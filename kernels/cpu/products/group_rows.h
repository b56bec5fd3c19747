// The rows of the groups of kernels/products/grouped_*.h.

#pragma once

#include <cstdint>

#include "common/check.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

// Calls body(g, first row, rows) for each group. CHECKs the offsets, with the name of the op.
template <typename Body>
void ForEachGroup(const char* op, const ConstTensor& offsets, int64_t bound, const Body& body) {
  const int32_t* offset = offsets.as<int32_t>();
  const int64_t groups = offsets.elements() - 1;
  for (int64_t g = 0; g < groups; ++g) {
    CHECK(offset[g] >= 0 && offset[g] <= offset[g + 1] && offset[g + 1] <= bound)
        << op << " offsets: group " << g << " has rows " << offset[g] << " to " << offset[g + 1]
        << " of " << bound;
    body(g, int64_t{offset[g]}, int64_t{offset[g + 1]} - offset[g]);
  }
}

}  // namespace trainyard::cpu
