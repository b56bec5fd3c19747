// Proves that overrides and inline architectures become whole configurations, and that every kind
// of wrong architecture is answered with its field and the nearest legal value.
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/arch/registry.h"
#include "models/families/dit.h"
#include "models/families/gemma3.h"
#include "models/families/nemotron.h"
#include "models/families/nemotron_h.h"
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

TEST(ValidateTest, NamesTheFieldAndTheNearestLegalValue) {
  for (const FamilyCase& family : FamilyCases()) {
    for (const WrongValue& wrong : family.wrong) {
      SCOPED_TRACE(absl::StrCat(family.name, ": ", wrong.says));
      ModelConfig config = FindPreset(family.wrong_preset)->config;
      wrong.change(config);
      Violations violations;
      Validate(config, violations, "model");
      ASSERT_EQ(violations.list().size(), 1u) << violations.ToStatus();
      EXPECT_EQ(violations.list()[0].field, absl::StrCat("model.", wrong.field));
      EXPECT_THAT(violations.list()[0].Description(), HasSubstr(wrong.says));
    }
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

// Of the fields that decoders have, only those that the family uses.
TEST(ValidateTest, GptOssHasNoOtherFields) {
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

}  // namespace
}  // namespace trainyard::testing
