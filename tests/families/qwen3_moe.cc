#include <cmath>

#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

// What DeepSeek-V3 adds: sigmoid scores, chosen with a bias from the best groups; a shared expert.
ModelConfig Grouped() {
  ModelConfig config = TinyMoeAs("qwen3_moe");
  MoeConfig& moe = *AsDecoder(config).moe;
  moe.router = RouterScoring::kSigmoid;
  moe.groups = 3, moe.topk_groups = 2;
  moe.expert_bias = true;
  moe.routed_scaling = 2.5;
  moe.shared_experts = 1, moe.shared_ffn = 4;
  return config;
}

std::vector<ModelVariant> Variants() {
  return {{"in_rounds", TinyMoeAs("qwen3_moe"), 0.3},
          {"grouped", Grouped()},
          {.name = "adapted", .config = TinyMoeAs("qwen3_moe"), .adapted = true},
          {.name = "adapted_experts",
           .config = TinyMoeAs("qwen3_moe"),
           .expert_rows = 0.3,
           .adapted_experts = true}};
}

MoeConfig& Moe(ModelConfig& config) { return *AsDecoder(config).moe; }

}  // namespace

FamilyCase Qwen3MoeCase() {
  return {
      .name = "qwen3_moe",
      .tiny = [] { return TinyMoeAs("qwen3_moe"); },
      .variants = Variants,
      .published = {{.preset = "qwen3-30b-a3b",
                     .parameters = 30.5e9,
                     .within = 0.05e9,
                     .active = 3.3e9,
                     .active_within = 0.06e9,
                     .numbers = {{"rope_base", 1e6},
                                 {"max_seq", 40960},
                                 {"tied", 0},
                                 {"norm_eps", 1e-6},
                                 {"rope_scaling.factor", 0},
                                 {"rope_scaling.low_freq_factor", 1},
                                 {"rope_scaling.high_freq_factor", 4},
                                 {"rope_scaling.original_max_seq", 8192}}}},
      .wrong_preset = "qwen3-30b-a3b",
      .wrong = {{"moe.experts", "wanted 1 to 4096, found 0; nearest 1",
                 [](ModelConfig& c) { Moe(c).experts = 0; }},
                {"moe.top_k", "wanted 1 to 128, found 129; nearest 128",
                 [](ModelConfig& c) { Moe(c).top_k = 129; }},
                {"moe.expert_ffn", "found 0; nearest 1",
                 [](ModelConfig& c) { Moe(c).expert_ffn = 0; }},
                {"moe.groups", "wanted a divisor of experts = 128, found 5; nearest 4",
                 [](ModelConfig& c) { Moe(c).groups = 5; }},
                {"moe.topk_groups", "wanted 1 to 4, found 5; nearest 4",
                 [](ModelConfig& c) { Moe(c).groups = 4, Moe(c).topk_groups = 5; }},
                {"moe.top_k", "wanted at most the 4 experts of 2 of 64 groups, found 8; nearest 4",
                 [](ModelConfig& c) { Moe(c).groups = 64, Moe(c).topk_groups = 2; }},
                {"moe.shared_experts", "wanted 0 to 4096, found -1; nearest 0",
                 [](ModelConfig& c) { Moe(c).shared_experts = -1; }},
                {"moe.shared_ffn", "wanted 0 (without shared experts), found 8; nearest 0",
                 [](ModelConfig& c) { Moe(c).shared_ffn = 8; }},
                {"moe.shared_ffn", "found 0; nearest 1",
                 [](ModelConfig& c) { Moe(c).shared_experts = 1; }},
                {"moe.bias_update_rate", "found -1",
                 [](ModelConfig& c) { Moe(c).bias_update_rate = -1; }},
                {"moe.aux_loss", "found nan", [](ModelConfig& c) { Moe(c).aux_loss = NAN; }},
                {"moe.routed_scaling", "found 0",
                 [](ModelConfig& c) { Moe(c).routed_scaling = 0; }}},
      .flops = LlamaFlops,
      .parts = LlamaParts,
  };
}

}  // namespace trainyard::testing
