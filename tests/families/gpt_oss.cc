#include "models/families/gpt_oss.h"

#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

// A window in the first of the two layers. No unit is near its limit: beyond that, gradients jump.
ModelConfig TinyGptOss() {
  ModelConfig config = TinyMoeAs("gpt_oss");
  GptOssConfig& c = config.As<GptOssConfig>();
  c.window = 3;
  c.rope_base = 100;
  c.yarn_original_max_seq = 16;
  c.yarn_beta_fast = 2;
  c.yarn_beta_slow = 0.25;
  return config;
}

std::vector<ModelVariant> Variants() {
  return {{"capped", Capped(TinyGptOss())}, {"in_rounds", TinyGptOss(), 0.3}};
}

// Fields as in the released config.json files. The active parameters are published without the
// embedding, but with the output projection (arXiv:2508.10925, table 1).
PublishedModel Published(const char* preset, double parameters, double active) {
  return {.preset = preset,
          .parameters = parameters,
          .within = 0.005e9,
          .active = active,
          .active_within = 0.005e9,
          .active_without_embedding = true,
          .numbers = {{"rope_base", 1.5e5},
                      {"max_seq", 131072},
                      {"tied", 0},
                      {"norm_eps", 1e-5},
                      {"window", 128},
                      {"swiglu_limit", 7},
                      {"yarn_factor", 32},
                      {"yarn_beta_fast", 32},
                      {"yarn_beta_slow", 1},
                      {"yarn_original_max_seq", 4096}}};
}

double TrainingFlops(const ModelConfig& config, double sequence) {
  const int64_t window = config.As<GptOssConfig>().window;
  return DecoderFlops(config, sequence,
                      {.window = [&](int64_t layer) { return layer % 2 == 0 ? window : 0; }});
}

void Size(ModelConfig& config, LayoutSizes&) {
  GptOssConfig& c = config.As<GptOssConfig>();
  c.window = 3;          // Across two parts of the sequence, and not all of the sequence.
  c.swiglu_limit = 0.1;  // Of which some units of new weights are beyond.
  c.yarn_original_max_seq = 16;
  c.yarn_beta_fast = 4;
  c.attention_soft_cap = 0.5;
}

std::vector<FrozenPart> Parts(const ModelConfig& config) {
  std::vector<FrozenPart> parts = LlamaParts(config);
  parts.push_back({"biases_and_sinks", {"*.bias", "*.sinks"}, {}});
  return parts;
}

GptOssConfig& Of(ModelConfig& config) { return config.As<GptOssConfig>(); }

}  // namespace

FamilyCase GptOssCase() {
  return {
      .name = "gpt_oss",
      .as_decoder = [](ModelConfig& c) -> DecoderConfig& { return c.As<GptOssConfig>(); },
      .tiny = TinyGptOss,
      .variants = Variants,
      .published = {Published("gpt-oss-20b", 20.91e9, 3.61e9),
                    Published("gpt-oss-120b", 116.83e9, 5.13e9)},
      .wrong_preset = "gpt-oss-20b",
      .wrong = {{"window", "wanted 0 to 1048576, found -1; nearest 0",
                 [](ModelConfig& c) { Of(c).window = -1; }},
                {"swiglu_limit", "wanted 0 (none) <= x <= 1e6 (usual: 7), found -7",
                 [](ModelConfig& c) { Of(c).swiglu_limit = -7; }},
                {"yarn_factor", "wanted 0 (none), or 1 <= x <= 1e6 (usual: 32), found 0.5",
                 [](ModelConfig& c) { Of(c).yarn_factor = 0.5; }},
                {"yarn_beta_fast", "wanted more than yarn_beta_slow = 1, found 1",
                 [](ModelConfig& c) { Of(c).yarn_beta_fast = 1; }},
                {"yarn_beta_slow", "found 0", [](ModelConfig& c) { Of(c).yarn_beta_slow = 0; }},
                {"yarn_original_max_seq", "found 0; nearest 1",
                 [](ModelConfig& c) { Of(c).yarn_original_max_seq = 0; }},
                {"rope_base", "wanted more than 1 where yarn_factor stretches, found 1",
                 [](ModelConfig& c) { Of(c).rope_base = 1; }}},
      .flops = TrainingFlops,
      .size_layout = Size,
      .parts = Parts,
      // With this base of positions the second pair is on the ramp.
      .fields = {.architecture = R"({"ffn": null, "rope_base": 20,
                   "moe": {"experts": 6, "top_k": 2, "expert_ffn": 12, "aux_loss": 0.1},
                   "fields": {"window": "6", "swiglu_limit": "0.01", "yarn_factor": "8",
                     "yarn_beta_fast": "4", "yarn_beta_slow": "0.5",
                     "yarn_original_max_seq": "64", "attention_soft_cap": "0.01"}})",
                 .changes = {{"window", "5"},
                             {"swiglu_limit", "0.02"},
                             {"yarn_factor", "4"},
                             {"yarn_beta_fast", "3"},
                             {"yarn_beta_slow", "0.25"},
                             {"yarn_original_max_seq", "60"},
                             {"attention_soft_cap", "0.02"}}},
      .emulated = {{"window", 3}, {"swiglu_limit", 0.02}},
  };
}

}  // namespace trainyard::testing
