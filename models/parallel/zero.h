// What data-parallel ranks divide among them (Rajbhandari et al. 2020, arXiv:1910.02054), and what
// they send each other.

#pragma once

#include <cstdint>

namespace trainyard {

enum class Zero : uint8_t {
  kNone,
  kOptimizer,  // Master weights and moments.
  kFull,       // Gradients and compute copies, too: a block is whole only while it is in use.
};

enum class Reduction : uint8_t {
  kF32,   // Gradients as they are accumulated: f32, in f64 training f64.
  kBF16,  // Rounded before they are sent, summed in f32, the sums rounded once more.
};

// As in a job spec.
constexpr const char* Name(Zero zero) {
  switch (zero) {
    case Zero::kNone:
      return "NONE";
    case Zero::kOptimizer:
      return "OPTIMIZER";
    case Zero::kFull:
      return "FULL";
  }
  return "?";
}

}  // namespace trainyard
