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

class Moe {
 public:
  // `name` as in "model.layers.0.mlp".
  Moe(const std::string& name, const MoeConfig& config, int64_t width, const MoeInit& init);
  // x [T, D] to [T, D].
  Value operator()(Recorder& recorder, Value x) const;

 private:
  MoeConfig config_;
  ParameterSpec gate_;
  ParameterSpec bias_;                  // Of a config with expert_bias.
  std::vector<ParameterSpec> gate_up_;  // Of the experts.
  ParameterSpec down_;
  std::optional<Mlp> shared_;
};

}  // namespace trainyard
