// The matrix products of a recorded step, for a search among cuBLASLt's algorithms.

#pragma once

#include <string>
#include <vector>

#include "kernels/device/dtype.h"
#include "models/program/program.h"

namespace trainyard::bench {

// [m, k] by [k, n], as MatMulArgs has them.
struct StepProduct {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  DType operands = DType::kBF16, result = DType::kBF16;
  bool add = false;  // To what is there.
  enum class Gelu { kNone, kForward, kBackward } gelu = Gelu::kNone;
  bool bias = false;
  auto operator<=>(const StepProduct&) const = default;

  double flops() const { return 2.0 * double(m) * double(n) * double(k); }
  std::string ToString() const;  // "bf16 to f32 M 4096 N 1024 K 4096, a transposed, added"
};

// Of one micro-batch, each with the number of its calls; the most work first.
struct CountedProduct {
  StepProduct product;
  int64_t calls = 0;
};
std::vector<CountedProduct> ProductsOf(const Program& program);

}  // namespace trainyard::bench
