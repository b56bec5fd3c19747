#include "models/layers/norm.h"

namespace trainyard {
namespace {

ParameterSpec Gain(const std::string& name, int64_t width, GainForm form) {
  return {.name = name + ".weight",
          .shape = {width},
          .init = form == GainForm::kPlain ? Init::Ones() : Init::Zeros()};
}

ops::NormOptions OptionsOf(double eps, GainForm form) {
  return {.eps = eps, .gain_offset = form == GainForm::kPlain ? 0.0 : 1.0};
}

}  // namespace

RmsNorm::RmsNorm(const std::string& name, int64_t width, double eps, GainForm form)
    : gain_(Gain(name, width, form)), options_(OptionsOf(eps, form)) {}

Value RmsNorm::operator()(Recorder& recorder, Value x) const {
  return ops::RmsNorm(recorder, x, recorder.Parameter(gain_), options_);
}

LayerNorm::LayerNorm(const std::string& name, int64_t width, double eps, GainForm form)
    : gain_(Gain(name, width, form)),
      bias_{.name = name + ".bias", .shape = {width}},
      options_(OptionsOf(eps, form)) {}

Value LayerNorm::operator()(Recorder& recorder, Value x) const {
  const Value gain = recorder.Parameter(gain_);
  return ops::LayerNorm(recorder, x, gain, recorder.Parameter(bias_), options_);
}

QkNorm::QkNorm(const std::string& name, int64_t head_dim, double eps, GainForm form)
    : q_gain_(Gain(name + ".q_norm", head_dim, form)),
      k_gain_(Gain(name + ".k_norm", head_dim, form)),
      options_(OptionsOf(eps, form)) {}

Value QkNorm::operator()(Recorder& recorder, Value qkv, const ops::Heads& heads) const {
  const Value query = recorder.Parameter(q_gain_);
  const ops::HeadGains gains{
      .query = query, .key = recorder.Parameter(k_gain_), .options = options_};
  return ops::HeadNorm(recorder, qkv, gains, heads);
}

}  // namespace trainyard
