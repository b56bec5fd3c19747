#include "models/layers/mlp.h"

#include <utility>

#include "models/program/ops/ops.h"

namespace trainyard {

Mlp::Mlp(Activation activation, ColumnLinear up, RowLinear down)
    : activation_(activation), up_(std::move(up)), down_(std::move(down)) {}

Value Mlp::operator()(Recorder& recorder, Value x) const {
  recorder.set_label("mlp");
  const Value up = up_(recorder, x);
  const Value active =
      activation_ == Activation::kSwiGlu ? ops::SwiGlu(recorder, up) : ops::Gelu(recorder, up);
  return down_(recorder, active);
}

}  // namespace trainyard
