#include "models/layers/norm.h"

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

QkNorm::QkNorm(const std::string& name, int64_t head_dim, double eps)
    : q_gain_{.name = name + ".q_norm.weight", .shape = {head_dim}, .init = Init::Ones()},
      k_gain_{.name = name + ".k_norm.weight", .shape = {head_dim}, .init = Init::Ones()},
      eps_(eps) {}

Value QkNorm::operator()(Recorder& recorder, Value qkv, const ops::Heads& heads) const {
  const Value query = recorder.Parameter(q_gain_);
  const ops::HeadGains gains{.query = query, .key = recorder.Parameter(k_gain_), .eps = eps_};
  return ops::HeadNorm(recorder, qkv, gains, heads);
}

}  // namespace trainyard
