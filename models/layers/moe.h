// A mixture of experts in place of an MLP: a gate chooses some experts for each token, whose
// outputs are added by weight; to which may come MLPs that all tokens share.
//
// Experts are divided over the ranks of Mesh::expert_axes. Tokens are divided over all ranks of a
// pipeline stage (sequence parallelism), so that nothing is gathered: rows go to their experts and
// back.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/layers/mlp.h"
#include "models/layers/moe_config.h"
#include "models/program/recorder.h"

namespace trainyard {

struct MoeInit {
  Init in;   // Of the gate, and of what reads the model width.
  Init out;  // Of what writes it.
};

// What a family fixes.
struct MoeForm {
  std::string gate = "gate";  // The gate's name below the mixture's.
  bool bias = false;          // Of the gate's and the experts' products.
  double swiglu_limit = 0;    // Of the experts' gated unit (kernels/scaled_swiglu.h); 0: none.
};

class Moe {
 public:
  // `name` as in "model.layers.0.mlp". There are no shared experts with biases or limits.
  Moe(const std::string& name, const MoeConfig& config, int64_t width, const MoeInit& init,
      const MoeForm& form = {});
  // x [T, D] to [T, D].
  Value operator()(Recorder& recorder, Value x) const;

 private:
  MoeConfig config_;
  MoeForm form_;
  ParameterSpec gate_;
  ParameterSpec gate_bias_;             // Of a form with biases, as the experts' below.
  ParameterSpec choice_bias_;           // Of a config with expert_bias.
  std::vector<ParameterSpec> gate_up_;  // Of the experts.
  ParameterSpec down_;
  std::vector<ParameterSpec> gate_up_bias_;
  ParameterSpec down_bias_;
  std::optional<Mlp> shared_;
};

}  // namespace trainyard
