// A mixture of experts, which takes the place of an MLP. A gate chooses some experts for each
// token; the layer returns the weighted sum of their outputs. MLPs that all tokens share may be
// added. With a latent width, one projection makes the narrower vectors that the chosen experts
// read, and another projection leads their sum back to the model's width. The gate and the shared
// MLPs read the wide vectors.
//
// Experts are divided over the ranks of Mesh::expert_axes. Tokens are divided over all ranks of a
// pipeline stage (sequence parallelism). So nothing is gathered: each row is sent to its experts
// and back. With a latent width, the narrow rows are sent; every rank has both projections whole.
//
// Source of the latent form: NVIDIA 2025, Nemotron 3 (LatentMoE), as in transformers' nemotron_h.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/layers/mlp.h"
#include "models/layers/moe_config.h"
#include "models/program/recorder.h"

namespace trainyard {

struct MoeInit {
  Init in;   // For the gate, and for weights that read the residual value.
  Init out;  // For weights whose products are added to the residual value.
};

// The properties that are the same for all models of a family.
struct MoeForm {
  std::string gate = "gate";                    // Name of the gate, below the mixture's name.
  Activation activation = Activation::kSwiGlu;  // Or kSquaredRelu, without a gate_proj.
  // Names of an expert's matrices, below the expert's name.
  std::string gate_proj = "gate_proj";
  std::string up_proj = "up_proj";
  std::string down_proj = "down_proj";
  bool bias = false;  // The products of the gate and the experts have biases.
  double swiglu_limit =
      0;  // Limit in the experts' SwiGLU (kernels/elementwise/scaled_swiglu.h); 0: none.
  // Names of the projections to the latent width and from it.
  std::string latent_in = "fc1_latent_proj";
  std::string latent_out = "fc2_latent_proj";
};

class Moe {
 public:
  // `name` is the prefix of the parameters' names: "model.layers.0.mlp". Shared experts cannot have
  // biases or limits.
  Moe(const std::string& name, const MoeConfig& config, int64_t width, const MoeInit& init,
      const MoeForm& form = {});
  // x [T, D] to [T, D]. Adds to `load`, the load of the layers before this one, if the load of all
  // layers is balanced together (models/program/ops/model_load.h).
  Value operator()(Recorder& recorder, Value x, Value& load) const;

 private:
  void Balance(Recorder& recorder, Value logits, Value experts, Value& load) const;

  MoeConfig config_;
  MoeForm form_;
  ParameterSpec gate_;
  ParameterSpec gate_bias_;               // This and the experts' biases: if the form has them.
  ParameterSpec choice_bias_;             // Used if the config has expert_bias.
  ParameterSpec latent_in_, latent_out_;  // Used if the config has a latent width.
  std::vector<ParameterSpec> gate_up_;    // The experts' gate, if they have one, and up matrices.
  ParameterSpec down_;
  std::vector<ParameterSpec> gate_up_bias_;
  ParameterSpec down_bias_;
  std::optional<Mlp> shared_;
};

}  // namespace trainyard
