// Proves the catalogue against what the models' publishers print, and that every kind of wrong
// architecture is answered with its field and the nearest legal value.
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
        Published{"gpt-oss-20b", 20.91e9, 0.005e9}, Published{"gpt-oss-120b", 116.83e9, 0.005e9},
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
      {"qwen3-30b-a3b", {.rope_base = 1e6, .max_seq = 40960, .norm_eps = 1e-6}},
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
  EXPECT_EQ(names.size(), 26u + 1u);
}

TEST(RegistryTest, AnUnknownPresetIsAnsweredWithTheNearest) {
  const absl::Status status = FindPreset("lama3-8b").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean llama3-8b?"));
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

// --- Overrides and inline architectures.

DecoderConfig Overridden(const std::string& preset, const GivenFields& fields) {
  Violations violations;
  const ModelConfig config = Override(FindPreset(preset)->config, {"", fields}, violations, "");
  EXPECT_TRUE(violations.empty());
  return AsDecoder(config);
}

TEST(OverrideTest, HiddenOrHeadsResetHeadDimUnlessItIsGiven) {
  EXPECT_EQ(Overridden("llama3-8b", {{"hidden", 256}, {"heads", 8}}).head_dim, 32);
  EXPECT_EQ(Overridden("llama3-8b", {{"hidden", 256}, {"heads", 8}, {"head_dim", 64}}).head_dim,
            64);
  EXPECT_EQ(Overridden("llama3-8b", {{"layers", 4}}).head_dim, 128);
}

// Bug it must catch: a head_dim that was rounded without a word.
TEST(OverrideTest, HeadsThatDoNotDivideHiddenAreAViolationUnlessHeadDimIsGiven) {
  const auto violation = [](const GivenFields& fields) {
    Violations violations;
    const ModelConfig config =
        Override(FindPreset("llama3-8b")->config, {"", fields}, violations, "m");
    Validate(config, violations, "m");
    return violations.empty() ? "" : std::string(violations.ToStatus().message());
  };
  const auto sizes = [](int64_t hidden, int64_t heads) {
    return GivenFields{{"hidden", hidden}, {"heads", heads}, {"kv_heads", 2}};
  };
  EXPECT_EQ(violation(sizes(66, 4)),
            "m.hidden: wanted a multiple of 2 x heads = 8, or a head_dim, found 66; nearest 64");
  EXPECT_THAT(violation({{"heads", 3}}),
              ::testing::HasSubstr("m.heads: wanted a divisor of hidden = 4096 with an even "
                                   "quotient of at most 256, or a head_dim, found 3; nearest 16"));
  EXPECT_EQ(violation({{"heads", 24}}),
            "m.heads: wanted a divisor of hidden = 4096 with an even quotient of at most 256, or a "
            "head_dim, found 24; nearest 32");
  GivenFields with_head_dim = sizes(66, 4);
  with_head_dim["head_dim"] = 16;
  EXPECT_EQ(violation(with_head_dim), "");
  EXPECT_EQ(violation(sizes(64, 4)), "");
  EXPECT_EQ(violation({{"heads", 32}}), "");
  Violations violations;
  FromFields({"llama", {{"layers", 2}, {"hidden", 66}, {"ffn", 128}, {"heads", 4}, {"vocab", 256}}},
             violations, "m");
  ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
  EXPECT_EQ(violations.list()[0].field, "m.hidden");
}

TEST(OverrideTest, HeadsTakeKeyValueHeadsAlongWhereTheyWereEqual) {
  EXPECT_EQ(Overridden("gpt2-124m", {{"heads", 6}}).kv_heads, 6);
  EXPECT_EQ(Overridden("llama3-8b", {{"heads", 16}}).kv_heads, 8);
}

TEST(OverrideTest, ABaseDropsTheScalingThatWasFittedToAnother) {
  EXPECT_EQ(Overridden("llama3.1-8b", {{"layers", 1}}).rope_scaling.factor, 8);
  EXPECT_EQ(Overridden("llama3.1-8b", {{"rope_base", 1e6}}).rope_scaling.factor, 0);
  const GivenFields both = {{"rope_base", 1e6}, {"rope_scaling.factor", 4.0}};
  EXPECT_EQ(Overridden("llama3.1-8b", both).rope_scaling.factor, 4);
}

TEST(OverrideTest, AnotherFamilyIsAViolation) {
  Violations violations;
  Override(FindPreset("llama3-8b")->config, {"gpt3", {}}, violations, "model.overrides");
  ASSERT_EQ(violations.list().size(), 1u);
  EXPECT_EQ(violations.list()[0].field, "model.overrides.family");
}

TEST(FromFieldsTest, TakesTheFamilysDefaultsAndNamesWhatIsMissing) {
  Violations violations;
  const ModelConfig config = FromFields(
      {"llama", {{"layers", 2}, {"hidden", 64}, {"ffn", 128}, {"heads", 4}, {"vocab", 256}}},
      violations, "model.architecture");
  EXPECT_TRUE(violations.empty());
  EXPECT_EQ(AsDecoder(config).kv_heads, 4);
  EXPECT_EQ(AsDecoder(config).head_dim, 16);
  EXPECT_EQ(AsDecoder(config).rope_base, 500'000);
  Validate(config, violations, "model.architecture");
  EXPECT_TRUE(violations.empty());

  FromFields({"llama", {{"layers", 2}}}, violations, "model.architecture");
  std::set<std::string> fields;
  for (const FieldViolation& v : violations.list()) fields.insert(v.field);
  EXPECT_EQ(fields,
            (std::set<std::string>{"model.architecture.hidden", "model.architecture.ffn",
                                   "model.architecture.heads", "model.architecture.vocab"}));
}

struct Wrong {
  const char* field;
  const char* says;
  void (*change)(DecoderConfig& config);
};

TEST(ValidateTest, NamesTheFieldAndTheNearestLegalValue) {
  for (const Wrong& wrong :
       {Wrong{"layers", "found 0; nearest 1", [](DecoderConfig& c) { c.layers = 0; }},
        Wrong{"layers", "nearest 1024", [](DecoderConfig& c) { c.layers = 5000; }},
        Wrong{"hidden", "nearest 65536", [](DecoderConfig& c) { c.hidden = 1 << 20; }},
        Wrong{"ffn", "wanted 1 to 262144", [](DecoderConfig& c) { c.ffn = -3; }},
        Wrong{"vocab", "wanted 1 to 2097152", [](DecoderConfig& c) { c.vocab = 0; }},
        Wrong{"max_seq", "wanted 1 to 1048576", [](DecoderConfig& c) { c.max_seq = 1 << 30; }},
        Wrong{"kv_heads", "wanted a divisor of heads = 32, found 5; nearest 4",
              [](DecoderConfig& c) { c.kv_heads = 5; }},
        Wrong{"head_dim", "found 3; nearest 2", [](DecoderConfig& c) { c.head_dim = 3; }},
        Wrong{"head_dim", "nearest 256", [](DecoderConfig& c) { c.head_dim = 512; }},
        Wrong{"norm_eps", "found nan", [](DecoderConfig& c) { c.norm_eps = NAN; }},
        Wrong{"rope_base", "found 0", [](DecoderConfig& c) { c.rope_base = 0; }},
        Wrong{"attention_soft_cap", "wanted 0 (none) <= x <= 1e6 (usual: 30, 50), found -1",
              [](DecoderConfig& c) { c.attention_soft_cap = -1; }}}) {
    SCOPED_TRACE(wrong.says);
    ModelConfig config = FindPreset("llama3-8b")->config;
    wrong.change(AsDecoder(config));
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, std::string("model.") + wrong.field);
    EXPECT_THAT(violations.list()[0].description, HasSubstr(wrong.says));
  }
}

TEST(ValidateTest, NamesTheFamilyThatIsNear) {
  Violations violations;
  Validate(ModelConfig("lama", DecoderConfig()), violations, "model");
  ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
  EXPECT_EQ(violations.list()[0].field, "model.family");
  EXPECT_THAT(violations.list()[0].description, HasSubstr("found \"lama\"; nearest llama"));
}

TEST(OverrideTest, SharedExpertsHaveTheWidthOfOneUnlessItIsGiven) {
  const GivenFields two = {{"moe.expert_ffn", 100}, {"moe.shared_experts", 2}};
  EXPECT_EQ(Overridden("qwen3-30b-a3b", two).moe->shared_ffn, 200);
  const GivenFields given = {{"moe.shared_experts", 2}, {"moe.shared_ffn", 64}};
  EXPECT_EQ(Overridden("qwen3-30b-a3b", given).moe->shared_ffn, 64);
  EXPECT_EQ(Overridden("qwen3-30b-a3b", given).moe->experts, 128);
}

TEST(FromFieldsTest, AFamilyWithExpertsWantsTheirSizesAndNoWidthOfAnMlp) {
  Violations violations;
  FromFields({"qwen3_moe", {{"layers", 2}, {"hidden", 64}, {"heads", 4}, {"vocab", 256}}},
             violations, "model.architecture");
  std::set<std::string> fields;
  for (const FieldViolation& v : violations.list()) fields.insert(v.field);
  EXPECT_EQ(fields,
            (std::set<std::string>{"model.architecture.moe.experts", "model.architecture.moe.top_k",
                                   "model.architecture.moe.expert_ffn"}));
}

// As proto/trainyard/v1/job.proto says.
TEST(FromFieldsTest, AnAbsentAuxLossIsThePresetsOrTheUsualOne) {
  Violations violations;
  const ModelConfig inlined = FromFields({"qwen3_moe", {{"moe.experts", 8}}}, violations, "");
  EXPECT_EQ(AsDecoder(inlined).moe->aux_loss, 1e-3);
  EXPECT_EQ(Overridden("qwen3-30b-a3b", {{"moe.experts", 8}}).moe->aux_loss,
            AsDecoder(FindPreset("qwen3-30b-a3b")->config).moe->aux_loss);
  EXPECT_EQ(Overridden("qwen3-30b-a3b", {{"moe.aux_loss", 0.0}}).moe->aux_loss, 0);
}

TEST(ValidateTest, NamesTheFieldOfExpertsAndTheNearestLegalValue) {
  for (const Wrong& wrong :
       {Wrong{"experts", "wanted 1 to 4096, found 0; nearest 1",
              [](DecoderConfig& c) { c.moe->experts = 0; }},
        Wrong{"top_k", "wanted 1 to 128, found 129; nearest 128",
              [](DecoderConfig& c) { c.moe->top_k = 129; }},
        Wrong{"expert_ffn", "found 0; nearest 1", [](DecoderConfig& c) { c.moe->expert_ffn = 0; }},
        Wrong{"groups", "wanted a divisor of experts = 128, found 5; nearest 4",
              [](DecoderConfig& c) { c.moe->groups = 5; }},
        Wrong{"topk_groups", "wanted 1 to 4, found 5; nearest 4",
              [](DecoderConfig& c) { c.moe->groups = 4, c.moe->topk_groups = 5; }},
        Wrong{"top_k", "wanted at most the 4 experts of 2 of 64 groups, found 8; nearest 4",
              [](DecoderConfig& c) { c.moe->groups = 64, c.moe->topk_groups = 2; }},
        Wrong{"shared_experts", "wanted 0 to 4096, found -1; nearest 0",
              [](DecoderConfig& c) { c.moe->shared_experts = -1; }},
        Wrong{"shared_ffn", "wanted 0 without shared experts, found 8; nearest 0",
              [](DecoderConfig& c) { c.moe->shared_ffn = 8; }},
        Wrong{"shared_ffn", "found 0; nearest 1",
              [](DecoderConfig& c) { c.moe->shared_experts = 1; }},
        Wrong{"bias_update_rate", "found -1",
              [](DecoderConfig& c) { c.moe->bias_update_rate = -1; }},
        Wrong{"aux_loss", "found nan", [](DecoderConfig& c) { c.moe->aux_loss = NAN; }},
        Wrong{"routed_scaling", "found 0", [](DecoderConfig& c) { c.moe->routed_scaling = 0; }}}) {
    SCOPED_TRACE(wrong.says);
    ModelConfig config = FindPreset("qwen3-30b-a3b")->config;
    wrong.change(AsDecoder(config));
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, std::string("model.moe.") + wrong.field);
    EXPECT_THAT(violations.list()[0].description, HasSubstr(wrong.says));
  }
}

// Its own fields, and of those that decoders have only what it uses.
TEST(ValidateTest, GptOssNamesItsFieldsAndTheNearestLegalValue) {
  struct Case {
    const char* field;
    const char* says;
    void (*change)(GptOssConfig&);
  };
  for (const Case& wrong :
       {Case{"window", "wanted 0 to 1048576, found -1; nearest 0",
             [](GptOssConfig& c) { c.window = -1; }},
        Case{"swiglu_limit", "wanted 0 (none) <= x <= 1e6 (usual: 7), found -7",
             [](GptOssConfig& c) { c.swiglu_limit = -7; }},
        Case{"yarn_factor", "wanted 0 (none), or 1 <= x <= 1e6 (usual: 32), found 0.5",
             [](GptOssConfig& c) { c.yarn_factor = 0.5; }},
        Case{"yarn_beta_fast", "wanted more than yarn_beta_slow = 1, found 1",
             [](GptOssConfig& c) { c.yarn_beta_fast = 1; }},
        Case{"yarn_beta_slow", "found 0", [](GptOssConfig& c) { c.yarn_beta_slow = 0; }},
        Case{"yarn_original_max_seq", "found 0; nearest 1",
             [](GptOssConfig& c) { c.yarn_original_max_seq = 0; }},
        Case{"rope_base", "wanted more than 1 where yarn_factor stretches, found 1",
             [](GptOssConfig& c) { c.rope_base = 1; }}}) {
    SCOPED_TRACE(wrong.says);
    ModelConfig config = FindPreset("gpt-oss-20b")->config;
    wrong.change(config.As<GptOssConfig>());
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, absl::StrCat("model.", wrong.field));
    EXPECT_THAT(violations.list()[0].description, HasSubstr(wrong.says));
  }
  std::set<std::string> names;
  for (const Field& field : FieldsOf(FindFamily("gpt_oss")->defaults))
    names.insert(field.rule.name);
  EXPECT_EQ(names, (std::set<std::string>{"layers",
                                          "hidden",
                                          "heads",
                                          "kv_heads",
                                          "head_dim",
                                          "vocab",
                                          "max_seq",
                                          "norm_eps",
                                          "rope_base",
                                          "tied",
                                          "attention_soft_cap",
                                          "moe.experts",
                                          "moe.top_k",
                                          "moe.expert_ffn",
                                          "moe.expert_bias",
                                          "moe.bias_update_rate",
                                          "moe.aux_loss",
                                          "moe.fake_balanced",
                                          "window",
                                          "swiglu_limit",
                                          "yarn_factor",
                                          "yarn_beta_fast",
                                          "yarn_beta_slow",
                                          "yarn_original_max_seq"}));
}

TEST(ValidateTest, DitNamesItsFieldsAndTheNearestLegalValue) {
  struct Case {
    const char* field;
    const char* says;
    void (*change)(DitConfig&);
  };
  for (const Case& wrong :
       {Case{"hidden", "wanted a multiple of 4 from 4 to 65536, found 386; nearest 384",
             [](DitConfig& c) { c.hidden = 386; }},
        Case{"patch_size", "wanted a divisor of sample_size = 32, found 3; nearest 4",
             [](DitConfig& c) { c.patch_size = 3; }},
        Case{"in_channels", "found 0; nearest 1", [](DitConfig& c) { c.in_channels = 0; }},
        Case{"num_classes", "found -1; nearest 1", [](DitConfig& c) { c.num_classes = -1; }},
        Case{"head_dim", "found 3", [](DitConfig& c) { c.head_dim = 3; }},
        Case{"norm_eps", "found 0", [](DitConfig& c) { c.norm_eps = 0; }}}) {
    SCOPED_TRACE(wrong.field);
    ModelConfig config = FindPreset("dit-s-2")->config;
    wrong.change(config.As<DitConfig>());
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, absl::StrCat("model.", wrong.field));
    EXPECT_THAT(violations.list()[0].description, HasSubstr(wrong.says));
  }
}

// As other sizes do, but for those that are given.
TEST(OverrideTest, AWidthOfDitMakesItsMlpAndItsHeads) {
  Violations violations;
  const ModelConfig config =
      Override(FindPreset("dit-xl-2")->config,
               {.family = "", .fields = {{"hidden", int64_t{256}}, {"heads", int64_t{8}}}},
               violations, "model.overrides");
  EXPECT_TRUE(violations.empty());
  EXPECT_EQ(config.As<DitConfig>().ffn, 1024);
  EXPECT_EQ(config.As<DitConfig>().head_dim, 32);
  const ModelConfig given = Override(
      FindPreset("dit-xl-2")->config,
      {.family = "",
       .fields = {{"hidden", int64_t{256}}, {"ffn", int64_t{8}}, {"head_dim", int64_t{4}}}},
      violations, "model.overrides");
  EXPECT_EQ(given.As<DitConfig>().ffn, 8);
  EXPECT_EQ(given.As<DitConfig>().head_dim, 4);
}

TEST(ValidateTest, AFamilyWithoutRotaryPositionsRefusesTheirBase) {
  ModelConfig config = TinyGpt3();
  AsDecoder(config).rope_base = 10'000;
  Violations violations;
  Validate(config, violations, "");
  ASSERT_EQ(violations.list().size(), 1u);
  EXPECT_EQ(violations.list()[0].field, "rope_base");
}

}  // namespace
}  // namespace trainyard::testing
