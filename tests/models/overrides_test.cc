// Proves that overrides and inline architectures become whole configurations, and that every kind
// of wrong architecture is answered with its field and the nearest legal value.
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

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

// Bug it must catch: `rope_base` takes the scaling away, too, without a word.
TEST(OverrideTest, ABaseLeavesTheScaling) {
  EXPECT_EQ(Overridden("llama3.1-8b", {{"rope_base", 5e5}}).rope_scaling.factor, 8);
  EXPECT_EQ(Overridden("llama3.1-8b", {{"rope_base", 1e6}}).rope_scaling.factor, 8);
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
        Wrong{"attention_soft_cap",
              "wanted 0 (none) <= x <= 1e6 (usual: 30, 50), found -1; nearest 0",
              [](DecoderConfig& c) { c.attention_soft_cap = -1; }}}) {
    SCOPED_TRACE(wrong.says);
    ModelConfig config = FindPreset("llama3-8b")->config;
    wrong.change(AsDecoder(config));
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, std::string("model.") + wrong.field);
    EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
  }
}

TEST(ValidateTest, NamesTheFamilyThatIsNear) {
  Violations violations;
  Validate(ModelConfig("lama", DecoderConfig()), violations, "model");
  ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
  EXPECT_EQ(violations.list()[0].field, "model.family");
  EXPECT_THAT(violations.list()[0].Description(), HasSubstr("found \"lama\"; nearest llama"));
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

// As proto/trainyard/v1/job_spec.proto says.
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
        Wrong{"shared_ffn", "wanted 0 (without shared experts), found 8; nearest 0",
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
    EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
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
    EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
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
                                          "padding_token",
                                          "vocab_multiple",
                                          "max_seq",
                                          "norm_eps",
                                          "rope_base",
                                          "tied",
                                          "attention_soft_cap",
                                          "attention_dropout",
                                          "hidden_dropout",
                                          "moe.experts",
                                          "moe.top_k",
                                          "moe.expert_ffn",
                                          "moe.expert_bias",
                                          "moe.bias_update_rate",
                                          "moe.aux_loss",
                                          "moe.aux_loss_scope",
                                          "moe.fake_balanced",
                                          "window",
                                          "swiglu_limit",
                                          "yarn_factor",
                                          "yarn_beta_fast",
                                          "yarn_beta_slow",
                                          "yarn_original_max_seq"}));
}

TEST(OverrideTest, HeadsOfGemma3MakeItsScaleAndABaseDropsItsFactor) {
  const auto overridden = [](const GivenFields& fields) {
    Violations violations;
    return Override(FindPreset("gemma3-27b")->config, {"", fields}, violations, "")
        .As<Gemma3Config>();
  };
  EXPECT_EQ(overridden({{"layers", 4}}).query_pre_attn_scalar, 168);
  EXPECT_EQ(overridden({{"head_dim", 64}}).query_pre_attn_scalar, 64);
  EXPECT_EQ(overridden({{"head_dim", 64}, {"query_pre_attn_scalar", 32}}).query_pre_attn_scalar,
            32);
  EXPECT_EQ(overridden({{"layers", 4}}).rope_factor, 8);
  EXPECT_EQ(overridden({{"rope_base", 1e5}}).rope_factor, 8);
  EXPECT_EQ(overridden({{"rope_base", 1e5}, {"rope_factor", 4.0}}).rope_factor, 4);
}

TEST(ValidateTest, Gemma3NamesItsFieldsAndTheNearestLegalValue) {
  struct Case {
    const char* field;
    const char* says;
    void (*change)(Gemma3Config&);
  };
  for (const Case& wrong :
       {Case{"global_every", "wanted 1 to 1024, found 0; nearest 1",
             [](Gemma3Config& c) { c.global_every = 0; }},
        Case{"window", "wanted 1 to 1048576, found 0; nearest 1",
             [](Gemma3Config& c) { c.window = 0; }},
        Case{"local_rope_base", "found 0.5", [](Gemma3Config& c) { c.local_rope_base = 0.5; }},
        Case{"rope_factor", "wanted 0 (none) <= x <= 1e6 (usual: 8), found -8",
             [](Gemma3Config& c) { c.rope_factor = -8; }},
        Case{"query_pre_attn_scalar", "found 0; nearest 1",
             [](Gemma3Config& c) { c.query_pre_attn_scalar = 0; }}}) {
    SCOPED_TRACE(wrong.field);
    ModelConfig config = FindPreset("gemma3-1b")->config;
    wrong.change(config.As<Gemma3Config>());
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, absl::StrCat("model.", wrong.field));
    EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
  }
}

TEST(ValidateTest, DeepseekV3NamesItsFieldsAndTheNearestLegalValue) {
  struct Case {
    const char* field;
    const char* says;
    void (*change)(DeepseekV3Config&);
  };
  for (const Case& wrong :
       {Case{"q_lora_rank", "wanted 0 to 65536, found -1; nearest 0",
             [](DeepseekV3Config& c) { c.q_lora_rank = -1; }},
        Case{"kv_lora_rank", "wanted 1 to 65536, found -3; nearest 1",
             [](DeepseekV3Config& c) { c.kv_lora_rank = -3; }},
        Case{"qk_rope_head_dim", "wanted an even number from 2 to 256, found 63; nearest 62",
             [](DeepseekV3Config& c) { c.qk_rope_head_dim = 63; }},
        Case{"qk_nope_head_dim",
             "wanted heads of at most 256 columns together, found 264; nearest 192",
             [](DeepseekV3Config& c) { c.qk_nope_head_dim = 200; }},
        Case{"v_head_dim", "found 257; nearest 256",
             [](DeepseekV3Config& c) { c.v_head_dim = 257; }},
        Case{"dense_layers", "wanted less than layers = 61, found 61; nearest 60",
             [](DeepseekV3Config& c) { c.dense_layers = 61; }},
        Case{"ffn", "wanted 1 to 262144, found 0; nearest 1",
             [](DeepseekV3Config& c) { c.ffn = 0; }},
        Case{"yarn_factor", "found 0.5", [](DeepseekV3Config& c) { c.yarn_factor = 0.5; }},
        Case{"yarn_beta_fast", "wanted at least yarn_beta_slow = 1, found 0.5",
             [](DeepseekV3Config& c) { c.yarn_beta_fast = 0.5; }},
        Case{"yarn_beta_slow", "found 0", [](DeepseekV3Config& c) { c.yarn_beta_slow = 0; }},
        Case{"yarn_mscale", "found -1", [](DeepseekV3Config& c) { c.yarn_mscale = -1; }},
        Case{"moe.topk_groups", "found 9; nearest 8",
             [](DeepseekV3Config& c) { c.moe->topk_groups = 9; }}}) {
    SCOPED_TRACE(wrong.field);
    ModelConfig config = FindPreset("deepseek-v3-671b")->config;
    wrong.change(config.As<DeepseekV3Config>());
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, absl::StrCat("model.", wrong.field));
    EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
  }
}

TEST(ValidateTest, NemotronHNamesItsFieldsAndTheNearestLegalValue) {
  struct Case {
    const char* field;
    const char* says;
    void (*change)(NemotronHConfig&);
  };
  for (const Case& wrong :
       {Case{"hybrid_pattern",
             "wanted letters M (Mamba-2), E (experts), * (attention) and - (MLP), found 'm' as "
             "letter 3; nearest MEM*",
             [](NemotronHConfig& c) { c.hybrid_pattern = "MEm*"; }},
        Case{"hybrid_pattern", "found 'X' as letter 1; nearest M",
             [](NemotronHConfig& c) { c.hybrid_pattern = "XM"; }},
        Case{"hybrid_pattern", "found '?' as letter 2; nearest M",
             [](NemotronHConfig& c) { c.hybrid_pattern = "M\xff"; }},
        Case{"hybrid_pattern", "wanted 1 to 1024 letters, found 0",
             [](NemotronHConfig& c) { c.hybrid_pattern = ""; }},
        Case{"hybrid_pattern", "wanted 1 to 1024 letters, found 1025",
             [](NemotronHConfig& c) { c.hybrid_pattern = std::string(1025, '*'); }},
        Case{"layers", "wanted 52, the letters of hybrid_pattern, found 51; nearest 52",
             [](NemotronHConfig& c) { c.layers = 51; }},
        Case{"ffn", "wanted 1 to 262144, found 0; nearest 1",
             [](NemotronHConfig& c) { c.hybrid_pattern[0] = '-', c.ffn = 0; }},
        Case{"mamba_heads", "wanted 1 to 1024, found 0; nearest 1",
             [](NemotronHConfig& c) { c.mamba_heads = 0; }},
        Case{"mamba_head_dim", "found 257; nearest 256",
             [](NemotronHConfig& c) { c.mamba_head_dim = 257; }},
        Case{"mamba_groups", "wanted a divisor of mamba_heads = 64, found 7; nearest 8",
             [](NemotronHConfig& c) { c.mamba_groups = 7; }},
        Case{"mamba_state", "found 0; nearest 1", [](NemotronHConfig& c) { c.mamba_state = 0; }},
        Case{"mamba_taps", "wanted 2 to 8, found 9; nearest 8",
             [](NemotronHConfig& c) { c.mamba_taps = 9; }},
        Case{"mamba_min_step", "found -0.1", [](NemotronHConfig& c) { c.mamba_min_step = -0.1; }},
        Case{"moe_latent", "found -1; nearest 0", [](NemotronHConfig& c) { c.moe->latent = -1; }},
        Case{"moe.experts", "wanted 1 to 4096, found 0; nearest 1",
             [](NemotronHConfig& c) { c.moe->experts = 0; }},
        Case{"moe.groups", "wanted 1 to 128, found 129; nearest 128",
             [](NemotronHConfig& c) { c.moe->groups = 129; }},
        Case{"moe.groups", "wanted a divisor of experts = 128, found 96; nearest 128",
             [](NemotronHConfig& c) { c.moe->groups = 96; }}}) {
    SCOPED_TRACE(wrong.says);
    ModelConfig config = FindPreset("nemotron3-nano-30b")->config;
    wrong.change(config.As<NemotronHConfig>());
    Violations violations;
    Validate(config, violations, "model");
    ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
    EXPECT_EQ(violations.list()[0].field, absl::StrCat("model.", wrong.field));
    EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
  }
}

TEST(OverrideTest, FewerLayersOfNemotronHAreTheFirst) {
  const auto overridden = [](const GivenFields& fields) {
    Violations none;
    return Override(FindPreset("nemotron3-nano-30b")->config, {"", fields}, none, "")
        .As<NemotronHConfig>();
  };
  EXPECT_EQ(overridden({{"layers", 7}}).hybrid_pattern, "MEMEM*E");
  EXPECT_EQ(overridden({{"hidden", 64}}).hybrid_pattern.size(), 52u);
  EXPECT_EQ(overridden({{"hybrid_pattern", std::string("M-*")}}).layers, 3);
  const NemotronHConfig more = overridden({{"layers", 53}});
  EXPECT_EQ(more.hybrid_pattern.size(), 52u);
  EXPECT_EQ(more.layers, 53);  // Which Validate refuses.
}

// Sizes that no letter of the pattern uses may be missing.
TEST(FromFieldsTest, APatternSaysHowManyLayersThereAreAndWhatTheyNeed) {
  const auto from = [](const GivenFields& more, Violations& violations) {
    GivenFields fields = {{"hidden", 64}, {"heads", 4}, {"vocab", 256}};
    fields.insert(more.begin(), more.end());
    const ModelConfig config = FromFields({"nemotron_h", fields}, violations, "");
    if (violations.empty()) Validate(config, violations, "");
    return config.family().empty() ? NemotronHConfig() : config.As<NemotronHConfig>();
  };
  Violations none, pattern, sizes;
  const GivenFields dense = {{"hybrid_pattern", std::string("*-*-*")}, {"ffn", 96}};
  const NemotronHConfig of_dense = from(dense, none);
  EXPECT_EQ(of_dense.layers, 5);
  EXPECT_FALSE(FactsOf(ModelConfig("nemotron_h", of_dense)).experts.has_value());
  EXPECT_TRUE(none.empty()) << none.ToStatus();
  from({}, pattern);
  ASSERT_EQ(pattern.list().size(), 1u) << pattern.ToStatus();
  EXPECT_EQ(pattern.list()[0].field, "hybrid_pattern");
  from({{"hybrid_pattern", std::string("M*E-")}}, sizes);
  std::set<std::string> missing;
  for (const FieldViolation& violation : sizes.list()) missing.insert(violation.field);
  EXPECT_EQ(missing,
            (std::set<std::string>{"ffn", "mamba_groups", "mamba_head_dim", "mamba_heads",
                                   "mamba_state", "moe.expert_ffn", "moe.experts", "moe.top_k"}));
}

TEST(ValidateTest, NemotronRotatesAnEvenNumberOfDims) {
  const auto violation = [](double fraction, int64_t head_dim) {
    ModelConfig config = FindPreset("nemotron4-15b")->config;
    config.As<NemotronConfig>().rotary_fraction = fraction;
    AsDecoder(config).head_dim = head_dim;
    Violations violations;
    Validate(config, violations, "model");
    return violations.empty() ? "" : std::string(violations.ToStatus().message());
  };
  EXPECT_EQ(violation(0.5, 128), "");
  EXPECT_EQ(violation(1, 128), "");
  EXPECT_EQ(violation(0.1, 20), "");
  EXPECT_EQ(violation(1.0 / 3, 6), "");
  EXPECT_EQ(violation(0.35, 20),
            "model.rotary_fraction: wanted an even number of head_dim = 20 dims, found 0.35; "
            "nearest 0.4");
  EXPECT_EQ(violation(0.01, 8),
            "model.rotary_fraction: wanted an even number of head_dim = 8 dims, found 0.01; "
            "nearest 0.25");
  EXPECT_EQ(violation(0.7, 10),
            "model.rotary_fraction: wanted an even number of head_dim = 10 dims, found 0.7; "
            "nearest 0.8");
  EXPECT_EQ(violation(1.5, 10),
            "model.rotary_fraction: wanted 0 < x <= 1 (usual: 0.5), found 1.5; nearest 1");
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
    EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
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
