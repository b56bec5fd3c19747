// The feed-forward part of a block: a projection up, an activation, and a projection down.

#pragma once

#include "models/layers/linear.h"
#include "models/program/recorder.h"

namespace trainyard {

enum class Activation : uint8_t {
  kSwiGlu,  // `up` returns gate and up, each as wide as the MLP.
  kGeGlu,   // The same.
  kGelu,
  kSquaredRelu,
};
constexpr bool IsGated(Activation activation) {
  return activation == Activation::kSwiGlu || activation == Activation::kGeGlu;
}

class Mlp {
 public:
  Mlp(Activation activation, ColumnLinear up, RowLinear down);
  // x [T, D] to [T, D].
  Value operator()(Recorder& recorder, Value x) const;

 private:
  Activation activation_;
  ColumnLinear up_;
  RowLinear down_;
};

}  // namespace trainyard
