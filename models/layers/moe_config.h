// The sizes and options of a mixture of experts (models/layers/moe.h).

#pragma once

#include <cstdint>

#include "kernels/experts/load_balance.h"
#include "kernels/experts/router.h"

namespace trainyard {

// Over what the load-balancing loss takes its means.
enum class BalanceScope : uint8_t {
  kBatch,     // A micro-batch on all of its ranks, in each layer by itself.
  kSequence,  // A sequence, in each layer by itself.
  kModel,     // A micro-batch on all of its ranks, in all layers together.
};

// Each token goes through `top_k` of the experts.
struct MoeConfig {
  int64_t experts = 0;
  int64_t top_k = 0;       // At most the experts in topk_groups of the groups.
  int64_t expert_ffn = 0;  // Width of one expert.
  // Width of the vectors that the routed experts read and write. 0: that of the model.
  int64_t latent = 0;
  // MLPs that every token goes through besides the routed experts, and the width of all of them
  // together.
  int64_t shared_experts = 0;
  int64_t shared_ffn = 0;
  RouterScoring router = RouterScoring::kSoftmax;
  // Whether experts are balanced by a bias instead of a loss. The bias is added to the scores that
  // choose experts. Each step moves the bias of an expert by bias_update_rate: up if the expert was
  // chosen less often than the mean.
  bool expert_bias = false;
  double bias_update_rate = 1e-3;
  // Weight of the load-balancing term in the loss, for each layer; 0: none.
  double aux_loss = 0;
  BalanceScope aux_loss_scope = BalanceScope::kBatch;
  // Neighbouring experts form `groups` groups. Experts are chosen from the best `topk_groups`
  // groups.
  int64_t groups = 1;  // Divides experts.
  int64_t topk_groups = 1;
  bool norm_topk = true;       // The chosen experts' weights sum to 1.
  double routed_scaling = 1;   // Factor of the weights, after norm_topk.
  bool fake_balanced = false;  // For benchmarks: takes the experts in turn instead of the best.
};

// In the spelling of a spec.
constexpr const char* Name(RouterScoring scoring) {
  return scoring == RouterScoring::kSoftmax ? "SOFTMAX" : "SIGMOID";
}
constexpr const char* Name(BalanceScope scope) {
  constexpr const char* kNames[] = {"BATCH", "SEQUENCE", "MODEL"};
  return kNames[static_cast<int>(scope)];
}

}  // namespace trainyard
