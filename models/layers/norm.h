// Normalisations over the model width and over heads. Gains start at 1 and biases at 0. Weight
// decay does not apply to them.

#pragma once

#include <string>

#include "models/program/ops/ops.h"
#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// How the parameter of a gain is stored.
enum class GainForm : uint8_t {
  kPlain,        // The parameter is the gain.
  kZeroCentred,  // The parameter is the gain less 1.
};

class RmsNorm {
 public:
  RmsNorm(const std::string& name, int64_t width, double eps, GainForm form = GainForm::kPlain);
  Value operator()(Recorder& recorder, Value x) const;

 private:
  ParameterSpec gain_;
  ops::NormOptions options_;
};

class LayerNorm {
 public:
  LayerNorm(const std::string& name, int64_t width, double eps, GainForm form = GainForm::kPlain);
  Value operator()(Recorder& recorder, Value x) const;

 private:
  ParameterSpec gain_;
  ParameterSpec bias_;
  ops::NormOptions options_;
};

class ZeroCentredRmsNorm : public RmsNorm {
 public:
  ZeroCentredRmsNorm(const std::string& name, int64_t width, double eps)
      : RmsNorm(name, width, eps, GainForm::kZeroCentred) {}
};

class ZeroCentredLayerNorm : public LayerNorm {
 public:
  ZeroCentredLayerNorm(const std::string& name, int64_t width, double eps)
      : LayerNorm(name, width, eps, GainForm::kZeroCentred) {}
};

// RMSNorm of every query and key head. The queries have one gain of the width of a head, and the
// keys another.
class QkNorm {
 public:
  // `name` is the attention's name. The gains `name`.q_norm and `name`.k_norm are those of the
  // projections `name`.q_proj and `name`.k_proj, whose outputs follow one another in qkv.
  QkNorm(const std::string& name, int64_t head_dim, double eps, GainForm form = GainForm::kPlain);
  Value operator()(Recorder& recorder, Value qkv, const ops::Heads& heads) const;

 private:
  ParameterSpec q_gain_;
  ParameterSpec k_gain_;
  ops::NormOptions options_;
};

}  // namespace trainyard
