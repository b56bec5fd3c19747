#include "models/layers/norm.h"

#include "models/program/ops/ops.h"

namespace trainyard {

RmsNorm::RmsNorm(const std::string& name, int64_t width, double eps)
    : gain_{.name = name + ".weight", .shape = {width}, .init = Init::Ones()}, eps_(eps) {}

Value RmsNorm::operator()(Recorder& recorder, Value x) const {
  return ops::RmsNorm(recorder, x, recorder.Parameter(gain_), eps_);
}

LayerNorm::LayerNorm(const std::string& name, int64_t width, double eps)
    : gain_{.name = name + ".weight", .shape = {width}, .init = Init::Ones()},
      bias_{.name = name + ".bias", .shape = {width}},
      eps_(eps) {}

Value LayerNorm::operator()(Recorder& recorder, Value x) const {
  const Value gain = recorder.Parameter(gain_);
  return ops::LayerNorm(recorder, x, gain, recorder.Parameter(bias_), eps_);
}

}  // namespace trainyard
