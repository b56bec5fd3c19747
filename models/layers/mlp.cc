#include "models/layers/mlp.h"

#include <utility>

#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

Value Activate(Recorder& recorder, Activation activation, Value x) {
  switch (activation) {
    case Activation::kSwiGlu:
      return ops::SwiGlu(recorder, x);
    case Activation::kGeGlu:
      return ops::SwiGlu(recorder, x, GateActivation::kGelu);
    case Activation::kGelu:
      return ops::Gelu(recorder, x);
    case Activation::kSquaredRelu:
      return ops::SquaredRelu(recorder, x);
  }
  return {};
}

}  // namespace

Mlp::Mlp(Activation activation, ColumnLinear up, RowLinear down)
    : activation_(activation), up_(std::move(up)), down_(std::move(down)) {}

Value Mlp::operator()(Recorder& recorder, Value x) const {
  recorder.set_label("mlp");
  return down_(recorder, Activate(recorder, activation_, up_(recorder, x)));
}

}  // namespace trainyard
