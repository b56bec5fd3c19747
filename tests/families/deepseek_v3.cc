#include "models/families/deepseek_v3.h"

#include "tests/families/decoder.h"

namespace trainyard::testing {
namespace {

// A dense layer, and then three of the experts of the best two of three groups. All widths of a
// head differ.
ModelConfig TinyDeepseekV3() {
  ModelConfig config = Tiny("deepseek_v3", 3, 3);
  DeepseekV3Config& c = config.As<DeepseekV3Config>();
  c.dense_layers = 1;
  c.ffn = 20;
  c.q_lora_rank = 7;
  c.kv_lora_rank = 5;
  c.qk_nope_head_dim = 3;
  c.qk_rope_head_dim = 4;
  c.v_head_dim = 5;
  c.rope_base = 100;
  c.yarn_factor = 4;
  c.yarn_beta_fast = 2;
  c.yarn_original_max_seq = 16;
  c.moe = MoeConfig{.experts = 6,
                    .top_k = 3,
                    .expert_ffn = 5,
                    .shared_experts = 1,
                    .shared_ffn = 5,
                    .router = RouterScoring::kSigmoid,
                    .expert_bias = true,
                    .groups = 3,
                    .topk_groups = 2,
                    .routed_scaling = 2.5};
  return config;
}

// Fields as in the released config.json files. The active parameters are published as "37B" and
// "32B", without the embedding.
PublishedModel Published(const char* preset, double parameters, double within, double active,
                         int64_t exact_active, std::map<std::string, double> numbers) {
  numbers.insert({{"tied", 0},
                  {"norm_eps", 1e-6},
                  {"yarn_beta_slow", 1},
                  {"yarn_mscale", 1},
                  {"yarn_original_max_seq", 4096}});
  return {.preset = preset,
          .parameters = parameters,
          .within = within,
          .active = active,
          .active_within = 0.5e9,
          .active_without_embedding = true,
          .exact_active = exact_active,
          .numbers = numbers,
          .choices = {{"moe.aux_loss_scope", "SEQUENCE"}}};
}

double TrainingFlops(const ModelConfig& config, double sequence) {
  const auto& c = config.As<DeepseekV3Config>();
  const double h = double(c.hidden), a = double(c.heads);
  const double q = double(c.q_lora_rank), kv = double(c.kv_lora_rank);
  const double nope = double(c.qk_nope_head_dim), rope = double(c.qk_rope_head_dim);
  const double v = double(c.v_head_dim);
  const double query = q > 0 ? h * q + q * a * (nope + rope) : h * a * (nope + rope);
  return DecoderFlops(
      config, sequence,
      {.attention_weights = query + h * (kv + rope) + kv * a * (nope + v) + a * v * h,
       .attention_width = a * (nope + rope + v),
       .dense_layers = c.dense_layers});
}

void Size(ModelConfig& config, LayoutSizes& sizes) {
  DeepseekV3Config& c = config.As<DeepseekV3Config>();
  c.dense_layers = 1;
  c.ffn = 3 * sizes.tensor;
  c.q_lora_rank = sizes.pipeline % 2 == 0 ? 5 : 0;  // 0: whole queries.
  c.kv_lora_rank = 3;
  c.qk_nope_head_dim = 1;
  c.qk_rope_head_dim = 2;
  c.v_head_dim = 2;
  c.yarn_factor = 4;
  c.yarn_original_max_seq = 16;
}

GivenFields Widths(int64_t width) {
  GivenFields fields;
  for (const char* name :
       {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    fields[name] = width;
  }
  return fields;
}

// As the preset: experts in groups, all ways to balance, YaRN.
GivenFields Measured() {
  GivenFields fields = Widths(16);
  fields["moe.experts"] = 8, fields["moe.groups"] = 2, fields["moe.topk_groups"] = 1;
  fields["moe.aux_loss"] = 1e-2, fields["moe.aux_loss_scope"] = std::string("SEQUENCE");
  fields["yarn_factor"] = 40.0;
  return fields;
}

DeepseekV3Config& Of(ModelConfig& config) { return config.As<DeepseekV3Config>(); }

std::vector<WrongValue> WrongValues() {
  return {
      {"q_lora_rank", "wanted 0 to 65536, found -1; nearest 0",
       [](ModelConfig& c) { Of(c).q_lora_rank = -1; }},
      {"kv_lora_rank", "wanted 1 to 65536, found -3; nearest 1",
       [](ModelConfig& c) { Of(c).kv_lora_rank = -3; }},
      {"qk_rope_head_dim", "wanted an even number from 2 to 256, found 63; nearest 62",
       [](ModelConfig& c) { Of(c).qk_rope_head_dim = 63; }},
      {"qk_nope_head_dim", "wanted heads of at most 256 columns together, found 264; nearest 192",
       [](ModelConfig& c) { Of(c).qk_nope_head_dim = 200; }},
      {"v_head_dim", "found 257; nearest 256", [](ModelConfig& c) { Of(c).v_head_dim = 257; }},
      {"dense_layers", "wanted less than layers = 61, found 61; nearest 60",
       [](ModelConfig& c) { Of(c).dense_layers = 61; }},
      {"ffn", "wanted 1 to 262144, found 0; nearest 1", [](ModelConfig& c) { Of(c).ffn = 0; }},
      {"yarn_factor", "found 0.5", [](ModelConfig& c) { Of(c).yarn_factor = 0.5; }},
      {"yarn_beta_fast", "wanted at least yarn_beta_slow = 1, found 0.5",
       [](ModelConfig& c) { Of(c).yarn_beta_fast = 0.5; }},
      {"yarn_beta_slow", "found 0", [](ModelConfig& c) { Of(c).yarn_beta_slow = 0; }},
      {"yarn_mscale", "found -1", [](ModelConfig& c) { Of(c).yarn_mscale = -1; }},
      {"moe.topk_groups", "found 9; nearest 8",
       [](ModelConfig& c) { Of(c).moe->topk_groups = 9; }}};
}

}  // namespace

FamilyCase DeepseekV3Case() {
  return {
      .name = "deepseek_v3",
      .as_decoder = [](ModelConfig& c) -> DecoderConfig& { return c.As<DeepseekV3Config>(); },
      .tiny = TinyDeepseekV3,
      .variants =
          [] {
            return std::vector<ModelVariant>{
                {.name = "adapted", .config = TinyDeepseekV3(), .adapted = true}};
          },
      .published = {Published("deepseek-v3-671b", 671'026'419'200, 0, 37e9, 37'552'297'472,
                              {{"rope_base", 1e4},
                               {"max_seq", 163840},
                               {"dense_layers", 3},
                               {"yarn_factor", 40},
                               {"yarn_beta_fast", 32},
                               {"moe.groups", 8},
                               {"moe.topk_groups", 4},
                               {"moe.routed_scaling", 2.5}}),
                    Published("kimi-k2", 1026e9, 0.5e9, 32e9, 0,
                              {{"rope_base", 5e4},
                               {"max_seq", 131072},
                               {"dense_layers", 1},
                               {"yarn_factor", 32},
                               {"yarn_beta_fast", 1},
                               {"moe.groups", 1},
                               {"moe.routed_scaling", 2.827}})},
      .wrong_preset = "deepseek-v3-671b",
      .wrong = WrongValues(),
      .flops = TrainingFlops,
      .size_layout = Size,
      .parts = LlamaParts,
      // The map has yarn_factor and what follows from it.
      .fields = {.architecture = R"({"kv_heads": null, "head_dim": null, "rope_base": 20,
                   "moe": {"experts": 6, "top_k": 2, "expert_ffn": 12, "aux_loss": 0.1},
                   "fields": {"dense_layers": "1", "q_lora_rank": "7", "kv_lora_rank": "5",
                     "qk_nope_head_dim": "3", "qk_rope_head_dim": "8", "v_head_dim": "5",
                     "yarn_factor": "8", "yarn_beta_fast": "4", "yarn_beta_slow": "0.5",
                     "yarn_mscale": "1", "yarn_original_max_seq": "64"}})",
                 .changes = {{"dense_layers", "0"},
                             {"q_lora_rank", "6"},
                             {"q_lora_rank", "0"},
                             {"kv_lora_rank", "6"},
                             {"qk_nope_head_dim", "4"},
                             {"qk_rope_head_dim", "2"},
                             {"v_head_dim", "4"},
                             {"yarn_factor", "4"},
                             {"yarn_beta_fast", "60"},
                             {"yarn_beta_slow", "0.01"},
                             {"yarn_mscale", "2"},
                             {"yarn_original_max_seq", "6"}}},
      .emulated = Widths(8),
      .measured = Measured(),
      .nf4 = {{"q_lora_rank", 64},
              {"kv_lora_rank", 64},
              {"qk_nope_head_dim", 32},
              {"qk_rope_head_dim", 32},
              {"v_head_dim", 32}},
  };
}

}  // namespace trainyard::testing
