// What a mixture of experts is made of (models/layers/moe.h).

#pragma once

#include <cstdint>

#include "kernels/router.h"

namespace trainyard {

// Each token goes through `top_k` of the experts.
struct MoeConfig {
  int64_t experts = 0;
  int64_t top_k = 0;       // At most experts; within topk_groups of the groups.
  int64_t expert_ffn = 0;  // Width of one expert.
  // MLPs that every token goes through, beside the routed ones; and their width, all together.
  int64_t shared_experts = 0;
  int64_t shared_ffn = 0;
  RouterScoring router = RouterScoring::kSoftmax;
  // Balances without a loss: a bias on the scores that choose, which each step moves by
  // bias_update_rate towards experts that were chosen less than the mean.
  bool expert_bias = false;
  double bias_update_rate = 1e-3;
  double aux_loss = 0;  // Coefficient of the load-balancing loss; 0: none.
  // Experts are chosen from the best `topk_groups` of `groups` of neighbours.
  int64_t groups = 1;  // Divides experts.
  int64_t topk_groups = 1;
  bool norm_topk = true;       // The chosen experts' weights sum to 1.
  double routed_scaling = 1;   // And are multiplied by this.
  bool fake_balanced = false;  // For benchmarks: experts in turn instead of the best.
};

// As a spec spells the scoring.
constexpr const char* Name(RouterScoring scoring) {
  return scoring == RouterScoring::kSoftmax ? "SOFTMAX" : "SIGMOID";
}

}  // namespace trainyard
