// What data-parallel ranks divide among them (Rajbhandari et al. 2020, arXiv:1910.02054).

#pragma once

#include <cstdint>

namespace trainyard {

enum class Zero : uint8_t {
  kNone,
  kOptimizer,  // Master weights and moments.
};

}  // namespace trainyard
