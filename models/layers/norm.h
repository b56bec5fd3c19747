// Normalisations over the model width. Gains start at 1, biases at 0; neither decays.

#pragma once

#include <string>

#include "models/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

class RmsNorm {
 public:
  RmsNorm(const std::string& name, int64_t width, double eps);
  Value operator()(Recorder& recorder, Value x) const;

 private:
  ParameterSpec gain_;
  double eps_;
};

class LayerNorm {
 public:
  LayerNorm(const std::string& name, int64_t width, double eps);
  Value operator()(Recorder& recorder, Value x) const;

 private:
  ParameterSpec gain_;
  ParameterSpec bias_;
  double eps_;
};

}  // namespace trainyard
