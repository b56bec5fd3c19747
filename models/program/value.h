// A value of a recorded program: an index, and the facts known about it. A value never holds data.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "kernels/device/tensor.h"
#include "models/parallel/axis.h"

namespace trainyard {

struct Value {
  int32_t id = -1;

  bool valid() const { return id >= 0; }
  auto operator<=>(const Value&) const = default;
};

enum class ValueKind : uint8_t {
  kInput,              // Written by the host before each micro-batch: tokens, targets.
  kConstant,           // Computed once by list kPrepare: rotation tables.
  kStepConstant,       // Computed by a step's first micro-batch for all of them: rounded weights.
  kActivation,         // Everything else that is computed, gradients of activations included.
  kParameter,          // A storage of parameters, in the format of weights.
  kParameterGradient,  // The gradient of a storage: sums over micro-batches.
};

struct ValueInfo {
  Shape shape = {};
  DType dtype = DType::kF32;
  ValueKind kind = ValueKind::kActivation;
  AxisSet varying = {};  // The axes along which its *gradient* differs from rank to rank.
  int block = 0;
  int storage = -1;             // Index of the storage, for parameters and their gradients.
  bool differentiable = false;  // The value depends on a trainable parameter.
  std::string name = {};        // For people: dumps and failed checks.

  size_t bytes() const { return size_t(shape.elements()) * SizeOf(dtype); }
};

inline std::ostream& operator<<(std::ostream& out, const ValueInfo& info) {
  return out << info.name << ' ' << info.dtype << info.shape << ' ' << info.varying;
}

}  // namespace trainyard
