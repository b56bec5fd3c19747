// What an architecture is made of: the fields of a model in a job spec and in the catalogue.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/violations.h"
#include "kernels/router.h"

namespace trainyard {

// Llama 3.1's stretching of rotary wavelengths (kernels/rope.h).
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_seq = 8192;
  bool operator==(const RopeScaling&) const = default;
};

// As in a spec.
constexpr const char* Name(RouterScoring scoring) {
  return scoring == RouterScoring::kSoftmax ? "SOFTMAX" : "SIGMOID";
}
// A field's value as specs and manifests spell it.
template <typename T>
const T& Spelled(const T& value) {
  return value;
}
constexpr const char* Spelled(RouterScoring scoring) { return Name(scoring); }

// A mixture of experts in place of every block's MLP: each token goes through `top_k` of them.
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
  bool operator==(const MoeConfig&) const = default;
};

// Complete: every field has its value.
struct ModelConfig {
  std::string family;  // A key of the registry: "llama", "gpt3", "qwen3_moe".
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;  // Width of the MLP; of no effect where all are mixtures of experts.
  int64_t heads = 0;
  int64_t kv_heads = 0;  // Divides heads.
  int64_t head_dim = 0;  // Even.
  int64_t vocab = 0;
  int64_t max_seq = 0;
  double norm_eps = 1e-5;
  double rope_base = 0;  // 0: the family has no rotary positions.
  std::optional<RopeScaling> rope_scaling = {};
  bool tied = false;                  // The output projection shares the embedding.
  std::optional<MoeConfig> moe = {};  // Of families with experts.
  bool operator==(const ModelConfig&) const = default;
};

struct MoeFields {
  std::optional<int64_t> experts = {};
  std::optional<int64_t> top_k = {};
  std::optional<int64_t> expert_ffn = {};
  std::optional<int64_t> shared_experts = {};
  std::optional<int64_t> shared_ffn = {};
  std::optional<RouterScoring> router = {};
  std::optional<bool> expert_bias = {};
  std::optional<double> bias_update_rate = {};
  std::optional<double> aux_loss = {};
  std::optional<int64_t> groups = {};
  std::optional<int64_t> topk_groups = {};
  std::optional<bool> norm_topk = {};
  std::optional<double> routed_scaling = {};
  std::optional<bool> fake_balanced = {};
};

// Calls visit(name, field...) for each field of a MoeConfig or MoeFields, or of several at once, in
// the order of their declaration.
template <typename Visit, typename... Moe>
void ForEachField(const Visit& visit, Moe&... moe) {
  visit("experts", moe.experts...);
  visit("top_k", moe.top_k...);
  visit("expert_ffn", moe.expert_ffn...);
  visit("shared_experts", moe.shared_experts...);
  visit("shared_ffn", moe.shared_ffn...);
  visit("router", moe.router...);
  visit("expert_bias", moe.expert_bias...);
  visit("bias_update_rate", moe.bias_update_rate...);
  visit("aux_loss", moe.aux_loss...);
  visit("groups", moe.groups...);
  visit("topk_groups", moe.topk_groups...);
  visit("norm_topk", moe.norm_topk...);
  visit("routed_scaling", moe.routed_scaling...);
  visit("fake_balanced", moe.fake_balanced...);
}

// Some of the fields: overrides of a preset, or an architecture inline. Names are those of the
// spec.
struct ModelFields {
  std::optional<std::string> family = {};
  std::optional<int64_t> layers = {};
  std::optional<int64_t> hidden = {};
  std::optional<int64_t> ffn = {};
  std::optional<int64_t> heads = {};
  std::optional<int64_t> kv_heads = {};
  std::optional<int64_t> head_dim = {};
  std::optional<int64_t> vocab = {};
  std::optional<int64_t> max_seq = {};
  std::optional<double> norm_eps = {};
  std::optional<double> rope_base = {};
  std::optional<bool> tied = {};
  std::optional<MoeFields> moe = {};
};

// Replaces what is given. Overriding `hidden` or `heads` resets head_dim to their quotient unless
// it is given, too, and a quotient with a remainder is a violation; overriding `heads` where
// kv_heads equalled heads resets kv_heads likewise; overriding rope_base drops the scaling, which
// belongs to the base it was fitted with; overriding moe.shared_experts or moe.expert_ffn resets
// moe.shared_ffn to their product. Another family is a violation. `path` is that of the fields:
// "model.overrides".
ModelConfig Override(ModelConfig config, const ModelFields& fields, Violations& violations,
                     absl::string_view path);

// An architecture given inline: the family's defaults, then `fields`. Adds a violation for each
// missing field that has no default (layers, hidden, heads, vocab; ffn, or moe's experts, top_k and
// expert_ffn), for an unknown family, and where head_dim is absent and `heads` do not divide
// `hidden`.
// `path` is that of the fields: "model.architecture".
ModelConfig FromFields(const ModelFields& fields, Violations& violations, absl::string_view path);

// Every field within its limits and consistent with the others; a violation names the field below
// `path`, what was found and the nearest legal value.
void Validate(const ModelConfig& config, Violations& violations, absl::string_view path);

// Limits, also of job specs.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHidden = 1 << 16;
inline constexpr int64_t kMaxFfn = 1 << 18;
inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 256;  // kernels/attention.h
inline constexpr int64_t kMaxVocab = 1 << 21;
inline constexpr int64_t kMaxSequence = 1 << 20;
inline constexpr int64_t kMaxExperts = 4096;

}  // namespace trainyard
