// The state that data-parallel ranks divide among themselves (Rajbhandari et al. 2020,
// arXiv:1910.02054), and the format of the gradients that they send each other.

#pragma once

#include <cstdint>

namespace trainyard {

enum class Zero : uint8_t {
  kNone,
  kOptimizer,  // Master weights and moments are divided.
  kFull,       // Gradients and compute copies, too: a block is whole only while in use.
};

enum class Reduction : uint8_t {
  kF32,   // As they are accumulated: f32, or f64 in f64 training.
  kBF16,  // Rounded before they are sent, summed in f32, and the sums rounded again.
};

// In the spelling of a job spec.
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
