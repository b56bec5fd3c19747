// Proves the catalogue against what the models' publishers print.
#include "models/arch/registry.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/arch/flops.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

TEST(RegistryTest, ParameterTotalsAreThePublished) {
  struct Published {
    const char* preset;
    double total, tolerance;
  };
  for (const Published& row :
       {Published{"llama2-7b", 6.74e9, 0.005e9}, Published{"llama2-13b", 13.02e9, 0.005e9},
        Published{"llama2-70b", 68.98e9, 0.005e9}, Published{"llama3-8b", 8.03e9, 0.005e9},
        Published{"llama3-70b", 70.55e9, 0.005e9}, Published{"llama3.1-8b", 8.03e9, 0.005e9},
        Published{"llama3.1-70b", 70.55e9, 0.005e9}, Published{"llama3.1-405b", 405.85e9, 0.01e9},
        Published{"llama3.2-1b", 1.24e9, 0.005e9}, Published{"qwen3-30b-a3b", 30.5e9, 0.05e9},
        Published{"qwen2.5-7b", 7.62e9, 0.005e9}, Published{"qwen2.5-32b", 32.8e9, 0.05e9},
        Published{"gpt-oss-20b", 20.91e9, 0.005e9}, Published{"gpt-oss-120b", 116.83e9, 0.005e9},
        Published{"kimi-k2", 1026e9, 0.5e9},
        // By name only; the small ones have their vocabulary padded.
        Published{"gpt3-5b", 5e9, 0.3e9}, Published{"gpt3-20b", 20e9, 0.4e9},
        Published{"gpt3-175b", 175e9, 1e9}, Published{"gpt2-124m", 124e6, 0.6e6},
        Published{"gpt2-350m", 355e6, 0.6e6}, Published{"gpt2-774m", 774e6, 0.6e6},
        Published{"gpt2-1558m", 1558e6, 0.6e6}}) {
    EXPECT_NEAR(double(CountParameters(FindPreset(row.preset)->config).total), row.total,
                row.tolerance)
        << row.preset;
  }
}

TEST(RegistryTest, ActiveParametersAreThePublished) {
  EXPECT_NEAR(double(CountParameters(FindPreset("qwen3-30b-a3b")->config).active), 3.3e9, 0.06e9);
  // Published without the embedding, but with the output projection (arXiv:2508.10925, table 1).
  for (const auto& [preset, active] :
       {std::pair{"gpt-oss-20b", 3.61e9}, std::pair{"gpt-oss-120b", 5.13e9}}) {
    EXPECT_NEAR(double(CountParameters(FindPreset(preset)->config).active - 201088 * 2880), active,
                0.005e9);
  }
  // As "37B" and "32B", without the embedding.
  for (const auto& [preset, active] :
       {std::pair{"deepseek-v3-671b", 37e9}, std::pair{"kimi-k2", 32e9}}) {
    const ModelConfig config = FindPreset(preset)->config;
    const int64_t embedding = AsDecoder(config).vocab * AsDecoder(config).hidden;
    EXPECT_NEAR(double(CountParameters(config).active - embedding), active, 0.5e9) << preset;
  }
  const ParameterCount dense = CountParameters(FindPreset("llama3-8b")->config);
  EXPECT_EQ(dense.active, dense.total);
}

// Table 1 of arXiv:2212.09748 with the counts of table 4. The paper's models say a variance beside
// the noise, so that the last product is twice as wide, and its released code counts the fixed
// positions of 256 patches: 675,129,632 for DiT-XL/2.
TEST(RegistryTest, DitHasThePapersParametersLessVarianceAndPositions) {
  for (const auto& [preset, published] :
       {std::pair{"dit-s-2", 33e6}, std::pair{"dit-b-2", 130e6}, std::pair{"dit-l-2", 458e6},
        std::pair{"dit-xl-2", 675e6}}) {
    const ModelConfig config = FindPreset(preset)->config;
    const DitConfig& c = config.As<DitConfig>();
    const int64_t d = c.hidden, elements = c.token_elements();
    const int64_t blocks = c.layers * (18 * d * d + 15 * d);
    const int64_t embedders = (256 + 1) * d + (d + 1) * d + 1001 * d;
    const int64_t ends = (elements + 1) * d + 2 * d * (d + 1) + (d + 1) * elements;
    const ParameterCount count = CountParameters(config);
    EXPECT_EQ(count.total, blocks + embedders + ends) << preset;
    EXPECT_EQ(count.active, count.total) << preset;
    const int64_t as_published = count.total + (d + 1) * elements + 256 * d;
    EXPECT_NEAR(double(as_published), published, 0.6e6) << preset;
    if (d == 1152) {
      EXPECT_EQ(as_published, 675'129'632);
    }
  }
}

// 124,439,808 in the public checkpoint of 50,257 tokens.
TEST(RegistryTest, Gpt2WithItsOwnVocabularyHasThePublicCheckpointsParameters) {
  ModelConfig config = FindPreset("gpt2-124m")->config;
  AsDecoder(config).vocab = 50257;
  EXPECT_EQ(CountParameters(config).total, 124'439'808);
}

// The published names are of whole billions.
TEST(RegistryTest, NemotronHasTheParametersOfItsShapes) {
  for (const auto& [preset, billions] :
       {std::pair{"nemotron-8b", 8.5}, std::pair{"nemotron-22b", 21.3},
        std::pair{"nemotron4-15b", 15.6}, std::pair{"nemotron4-340b", 341.0}}) {
    const ModelConfig config = FindPreset(preset)->config;
    const DecoderConfig& c = AsDecoder(config);
    const int64_t d = c.hidden, attention = 2 * (c.heads + c.kv_heads) * c.head_dim * d;
    const int64_t block = attention + 2 * d * c.ffn + 4 * d;  // Two norms, each with a bias.
    const int64_t total = CountParameters(config).total;
    EXPECT_EQ(total, 2 * c.vocab * d + c.layers * block + 2 * d) << preset;
    EXPECT_NEAR(double(total) / 1e9, billions, 0.1) << preset;
    EXPECT_EQ(config.As<NemotronConfig>().rotary_dims(), c.head_dim / 2) << preset;
  }
}

// Table 1 of arXiv:2503.19786, in millions. It counts the projection of images into the model, of
// 1152 columns, to the embedding.
TEST(RegistryTest, Gemma3HasThePapersParametersAndLayers) {
  struct Published {
    const char* preset;
    int64_t embedding, others, window, scalar;
    double factor;
  };
  for (const Published& row : {Published{"gemma3-1b", 302, 698, 512, 256, 0},
                               Published{"gemma3-4b", 675, 3209, 1024, 256, 8},
                               Published{"gemma3-12b", 1012, 10759, 1024, 256, 8},
                               Published{"gemma3-27b", 1416, 25600, 1024, 168, 8}}) {
    SCOPED_TRACE(row.preset);
    const ModelConfig config = FindPreset(row.preset)->config;
    const Gemma3Config& c = config.As<Gemma3Config>();
    const int64_t embedding = c.vocab * c.hidden, images = c.window == 512 ? 0 : 1152 * c.hidden;
    EXPECT_NEAR(double(embedding + images) / 1e6, double(row.embedding), 1);
    EXPECT_NEAR(double(CountParameters(config).total - embedding) / 1e6, double(row.others), 1);
    EXPECT_EQ(c.window, row.window);
    EXPECT_EQ(c.query_pre_attn_scalar, row.scalar);
    EXPECT_EQ(c.rope_factor, row.factor);
    EXPECT_EQ(c.local_rope_base, 1e4);
    EXPECT_EQ(c.global_every, 6);
  }
}

// As the public checkpoints' safetensors files count them. A head that shares the embedding counts
// once. The active parameters of Mixtral are published as 12.9 and 39 billion. Those of Nemotron 3
// Super, 12.7 billion, include the embedding of tokens; those of Nano, 3.2 billion, do not.
TEST(RegistryTest, ParameterCountsAreThoseOfThePublicCheckpoints) {
  struct Count {
    const char* preset;
    int64_t total, active;
  };
  for (const Count& row : {Count{"qwen2.5-7b", 7'615'616'512, 7'615'616'512},
                           Count{"qwen2.5-32b", 32'763'876'352, 32'763'876'352},
                           Count{"qwen3-0.6b", 596'049'920, 596'049'920},
                           Count{"qwen3-1.7b", 1'720'574'976, 1'720'574'976},
                           Count{"qwen3-4b", 4'022'468'096, 4'022'468'096},
                           Count{"qwen3-8b", 8'190'735'360, 8'190'735'360},
                           Count{"qwen3-14b", 14'768'307'200, 14'768'307'200},
                           Count{"qwen3-32b", 32'762'123'264, 32'762'123'264},
                           Count{"deepseek-v3-671b", 671'026'419'200, 37'552'297'472},
                           Count{"gemma3-1b", 999'885'952, 999'885'952},
                           Count{"nemotron3-nano-30b", 31'577'940'288, 3'580'076'352},
                           Count{"nemotron3-super-120b", 120'668'707'840, 12'770'237'440},
                           Count{"mixtral-8x7b", 46'702'792'704, 12'879'925'248},
                           Count{"mixtral-8x22b", 140'620'634'112, 39'152'031'744}}) {
    const ParameterCount count = CountParameters(FindPreset(row.preset)->config);
    EXPECT_EQ(count.total, row.total) << row.preset;
    EXPECT_EQ(count.active, row.active) << row.preset;
  }
}

// As in the recipes of Megatron-LM and the released config.json files.
TEST(RegistryTest, Nemotron3HasThePublishedLayersAndParameters) {
  struct Published {
    const char* preset;
    int64_t mamba, experts, attention;
    double total, active;
    bool embedding;  // Counts as active.
  };
  for (const Published& row :
       {Published{"nemotron3-nano-30b", 23, 23, 6, 31.6e9, 3.2e9, false},
        Published{"nemotron3-super-120b", 40, 40, 8, 120.6e9, 12.7e9, true}}) {
    SCOPED_TRACE(row.preset);
    const ModelConfig config = FindPreset(row.preset)->config;
    const NemotronHConfig& c = config.As<NemotronHConfig>();
    EXPECT_EQ(c.count('M'), row.mamba);
    EXPECT_EQ(c.count('E'), row.experts);
    EXPECT_EQ(c.count('*'), row.attention);
    EXPECT_EQ(c.layers, row.mamba + row.experts + row.attention);
    const ParameterCount count = CountParameters(config);
    const int64_t embedding = row.embedding ? 0 : c.vocab * c.hidden;
    EXPECT_NEAR(double(count.total), row.total, 0.1e9);
    EXPECT_NEAR(double(count.active - embedding), row.active, 0.1e9);
    EXPECT_EQ(c.mamba_min_step, 0);
    EXPECT_EQ(c.moe->router, RouterScoring::kSigmoid);
    EXPECT_TRUE(c.moe->expert_bias && c.moe->norm_topk);
    EXPECT_EQ(c.moe->aux_loss_scope, BalanceScope::kSequence);
  }
}

// As in the released config.json files.
TEST(RegistryTest, GptOssHasThePublishedWindowLimitAndStretching) {
  for (const char* preset : {"gpt-oss-20b", "gpt-oss-120b"}) {
    const GptOssConfig c = FindPreset(preset)->config.As<GptOssConfig>();
    EXPECT_EQ(c.window, 128);
    EXPECT_EQ(c.swiglu_limit, 7);
    EXPECT_EQ(c.yarn_factor, 32);
    EXPECT_EQ(c.yarn_beta_fast, 32);
    EXPECT_EQ(c.yarn_beta_slow, 1);
    EXPECT_EQ(c.yarn_original_max_seq, 4096);
  }
}

// As in the released config.json files.
TEST(RegistryTest, DeepseekV3AndKimiK2HaveThePublishedFirstLayersAndStretching) {
  const auto v3 = FindPreset("deepseek-v3-671b")->config.As<DeepseekV3Config>();
  EXPECT_EQ(v3.dense_layers, 3);
  EXPECT_EQ(v3.yarn_factor, 40);
  EXPECT_EQ(v3.yarn_beta_fast, 32);
  EXPECT_EQ(v3.moe->groups, 8);
  EXPECT_EQ(v3.moe->topk_groups, 4);
  EXPECT_EQ(v3.moe->routed_scaling, 2.5);
  const auto kimi = FindPreset("kimi-k2")->config.As<DeepseekV3Config>();
  EXPECT_EQ(kimi.dense_layers, 1);
  EXPECT_EQ(kimi.yarn_factor, 32);
  EXPECT_EQ(kimi.yarn_beta_fast, 1);
  EXPECT_EQ(kimi.moe->groups, 1);
  EXPECT_EQ(kimi.moe->routed_scaling, 2.827);
  for (const DeepseekV3Config& c : {v3, kimi}) {
    EXPECT_EQ(c.yarn_beta_slow, 1);
    EXPECT_EQ(c.yarn_mscale, 1);
    EXPECT_EQ(c.yarn_original_max_seq, 4096);
    EXPECT_EQ(c.moe->aux_loss_scope, BalanceScope::kSequence);
  }
}

struct Positions {
  double rope_base = 0;
  double factor = 0;  // Of the scaling; 0: none.
  int64_t max_seq = 0;
  bool tied = false;
  double norm_eps = 1e-5;
};

// As in the released config.json files, which no count of parameters shows.
TEST(RegistryTest, PositionsAndNormsAreThePublished) {
  constexpr Positions kLlama2 = {.rope_base = 1e4, .max_seq = 4096};
  constexpr Positions kLlama3 = {.rope_base = 5e5, .max_seq = 8192};
  constexpr Positions kLlama31 = {.rope_base = 5e5, .factor = 8, .max_seq = 131072};
  constexpr Positions kGpt3 = {.max_seq = 2048, .tied = true};
  constexpr Positions kGpt2 = {.max_seq = 1024, .tied = true};
  constexpr Positions kGemma3 = {
      .rope_base = 1e6, .max_seq = 131072, .tied = true, .norm_eps = 1e-6};
  constexpr Positions kNemotron = {.rope_base = 1e4, .max_seq = 4096};
  constexpr Positions kQwen3 = {.rope_base = 1e6, .max_seq = 40960, .norm_eps = 1e-6};
  constexpr Positions kSmallQwen3 = {
      .rope_base = 1e6, .max_seq = 40960, .tied = true, .norm_eps = 1e-6};
  const std::map<std::string, Positions> published = {
      {"llama2-7b", kLlama2},
      {"llama2-13b", kLlama2},
      {"llama2-70b", kLlama2},
      {"llama3-8b", kLlama3},
      {"llama3-70b", kLlama3},
      {"llama3.1-8b", kLlama31},
      {"llama3.1-70b", kLlama31},
      {"llama3.1-405b", kLlama31},
      {"llama3.1-405b-proxy-8", kLlama31},
      {"llama3.1-405b-proxy-30", kLlama31},
      {"llama3.1-405b-proxy-62", kLlama31},
      {"llama3.2-1b", {.rope_base = 5e5, .factor = 32, .max_seq = 131072, .tied = true}},
      {"gpt3-5b", kGpt3},
      {"gpt3-20b", kGpt3},
      {"gpt3-175b", kGpt3},
      {"gpt2-124m", kGpt2},
      {"gpt2-350m", kGpt2},
      {"gpt2-774m", kGpt2},
      {"gpt2-1558m", kGpt2},
      {"qwen3-30b-a3b", kQwen3},
      {"qwen2.5-7b", {.rope_base = 1e6, .max_seq = 131072, .norm_eps = 1e-6}},
      {"qwen2.5-32b", {.rope_base = 1e6, .max_seq = 131072}},
      {"gemma3-1b", {.rope_base = 1e6, .max_seq = 32768, .tied = true, .norm_eps = 1e-6}},
      {"gemma3-4b", kGemma3},
      {"gemma3-12b", kGemma3},
      {"gemma3-27b", kGemma3},
      {"mixtral-8x7b", {.rope_base = 1e6, .max_seq = 32768}},
      {"mixtral-8x22b", {.rope_base = 1e6, .max_seq = 65536}},
      {"nemotron-8b", kNemotron},
      {"nemotron-22b", kNemotron},
      {"nemotron4-15b", kNemotron},
      {"nemotron4-340b", kNemotron},
      {"qwen3-0.6b", kSmallQwen3},
      {"qwen3-1.7b", kSmallQwen3},
      {"qwen3-4b", kSmallQwen3},
      {"qwen3-8b", kQwen3},
      {"qwen3-14b", kQwen3},
      {"qwen3-32b", kQwen3},
      {"deepseek-v3-671b", {.rope_base = 1e4, .max_seq = 163840, .norm_eps = 1e-6}},
      {"kimi-k2", {.rope_base = 5e4, .max_seq = 131072, .norm_eps = 1e-6}},
      {"nemotron3-nano-30b", {.max_seq = 262144}},
      {"nemotron3-super-120b", {.max_seq = 262144}},
      {"gpt-oss-20b", {.rope_base = 1.5e5, .max_seq = 131072}},
      {"gpt-oss-120b", {.rope_base = 1.5e5, .max_seq = 131072}}};
  std::vector<std::string> names = PresetNames();
  std::erase_if(names, [](const std::string& name) {
    return FindDecoder(FindPreset(name)->config) == nullptr;
  });
  EXPECT_EQ(names.size(), published.size());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(published.contains(name));
    const Positions& want = published.at(name);
    const DecoderConfig got = AsDecoder(FindPreset(name)->config);
    EXPECT_EQ(got.rope_base, want.rope_base);
    EXPECT_EQ(got.max_seq, want.max_seq);
    EXPECT_EQ(got.tied, want.tied);
    EXPECT_EQ(got.norm_eps, want.norm_eps);
    EXPECT_EQ(got.rope_scaling.factor, want.factor);
    EXPECT_EQ(got.rope_scaling.low_freq_factor, 1);
    EXPECT_EQ(got.rope_scaling.high_freq_factor, 4);
    EXPECT_EQ(got.rope_scaling.original_max_seq, 8192);
  }
}

TEST(RegistryTest, EveryPresetIsValidAndItsNameUnique) {
  std::set<std::string> names;
  for (const std::string& name : PresetNames()) {
    const auto preset = FindPreset(name);
    ASSERT_TRUE(preset.ok());
    Violations violations;
    Validate(preset->config, violations, "");
    EXPECT_TRUE(violations.empty()) << name << ": " << violations.ToStatus();
    EXPECT_TRUE(names.insert(name).second) << name;
    for (const std::string& alias : preset->aliases) {
      EXPECT_TRUE(names.insert(alias).second) << alias;
      EXPECT_EQ(FindPreset(alias)->name, name);
    }
  }
  EXPECT_EQ(names.size(), 48u + 3u);
}

TEST(RegistryTest, AnUnknownPresetIsAnsweredWithTheNearest) {
  const absl::Status status = FindPreset("lama3-8b").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean llama3-8b?"));
  for (const char* name : {"LLAMA3-8B", "llama3"}) {
    EXPECT_THAT(std::string(FindPreset(name).status().message()),
                HasSubstr("did you mean llama3-8b?"));
  }
  EXPECT_THAT(std::string(FindPreset("dit").status().message()),
              HasSubstr("\"dit\"; the models of this family are dit-s-2, dit-b-2, "));
}

TEST(RegistryTest, ParametersHaveThePublicCheckpointsNames) {
  const auto names_of = [](const ModelConfig& config) {
    std::set<std::string> names;
    const Program program =
        RecordInference(*CreateModel(config), {.precision = Precision::F32(), .sequence = 2});
    for (const ParameterBox& box : program.Parameters()) names.insert(box.name);
    return names;
  };
  ModelConfig llama = TinyLlama(), gpt = TinyGpt3();
  ModelConfig moe = TinyMoe();
  for (ModelConfig* config : {&llama, &gpt, &moe}) AsDecoder(*config).layers = 1;
  MoeConfig& experts_of = *AsDecoder(moe).moe;
  experts_of.experts = 2, experts_of.shared_experts = 1, experts_of.shared_ffn = 4;
  experts_of.expert_bias = true;
  EXPECT_EQ(
      names_of(llama),
      (std::set<std::string>{
          "lm_head.weight", "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
          "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.up_proj.weight", "model.layers.0.post_attention_layernorm.weight",
          "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.o_proj.weight",
          "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight",
          "model.norm.weight"}));
  EXPECT_EQ(
      names_of(gpt),
      (std::set<std::string>{
          "transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_attn.weight",
          "transformer.h.0.attn.c_proj.bias", "transformer.h.0.attn.c_proj.weight",
          "transformer.h.0.ln_1.bias", "transformer.h.0.ln_1.weight", "transformer.h.0.ln_2.bias",
          "transformer.h.0.ln_2.weight", "transformer.h.0.mlp.c_fc.bias",
          "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.bias",
          "transformer.h.0.mlp.c_proj.weight", "transformer.ln_f.bias", "transformer.ln_f.weight",
          "transformer.wpe.weight", "transformer.wte.weight"}));
  std::set<std::string> experts;
  for (const std::string& name : names_of(moe)) {
    constexpr absl::string_view kBlock = "model.layers.0.";
    const std::string inner = name.substr(std::min(name.size(), kBlock.size()));
    if (inner.starts_with("mlp") || inner.starts_with("self_attn")) experts.insert(inner);
  }
  EXPECT_EQ(experts,
            (std::set<std::string>{
                "mlp.experts.0.down_proj.weight", "mlp.experts.0.gate_proj.weight",
                "mlp.experts.0.up_proj.weight", "mlp.experts.1.down_proj.weight",
                "mlp.experts.1.gate_proj.weight", "mlp.experts.1.up_proj.weight",
                "mlp.gate.e_score_correction_bias", "mlp.gate.weight",
                "mlp.shared_experts.down_proj.weight", "mlp.shared_experts.gate_proj.weight",
                "mlp.shared_experts.up_proj.weight", "self_attn.k_norm.weight",
                "self_attn.k_proj.weight", "self_attn.o_proj.weight", "self_attn.q_norm.weight",
                "self_attn.q_proj.weight", "self_attn.v_proj.weight"}));
}

}  // namespace
}  // namespace trainyard::testing
