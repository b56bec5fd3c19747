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

double NumberOf(const FieldValue& value) {
  if (const auto* const whole = std::get_if<int64_t>(&value)) return double(*whole);
  if (const auto* const flag = std::get_if<bool>(&value)) return *flag;
  return std::get<double>(value);
}

TEST(RegistryTest, PresetsHaveThePublishedParametersAndFields) {
  std::set<std::string> told;
  for (const FamilyCase& family : FamilyCases()) {
    for (const PublishedModel& row : family.published) {
      SCOPED_TRACE(row.preset);
      told.insert(row.preset);
      const ModelConfig config = FindPreset(row.preset)->config;
      EXPECT_EQ(config.family(), family.name);
      const ParameterCount count = CountParameters(config);
      if (row.parameters > 0) {
        EXPECT_NEAR(double(count.total), row.parameters, row.within);
      }
      const double embedding = row.active_without_embedding ? double(AsDecoder(config).vocab) *
                                                                  double(AsDecoder(config).hidden)
                                                            : 0;
      EXPECT_NEAR(double(count.active) - embedding,
                  row.active > 0 ? row.active : double(count.total), row.active_within);
      if (row.exact_active > 0) {
        EXPECT_EQ(count.active, row.exact_active);
      }
      if (row.embedding > 0) {
        EXPECT_NEAR(double(AsDecoder(config).vocab) * double(AsDecoder(config).hidden),
                    row.embedding, row.within);
      }
      std::map<std::string, FieldValue> fields;
      for (const Field& field : FieldsOf(config)) fields[field.rule.name] = field.value;
      for (const auto& [field, want] : row.numbers) {
        ASSERT_TRUE(fields.contains(field)) << field;
        EXPECT_EQ(NumberOf(fields.at(field)), want) << field;
      }
      for (const auto& [field, want] : row.choices) {
        ASSERT_TRUE(fields.contains(field)) << field;
        EXPECT_EQ(std::get<std::string>(fields.at(field)), want) << field;
      }
    }
  }
  const std::vector<std::string> names = PresetNames();
  EXPECT_EQ(told, std::set<std::string>(names.begin(), names.end()));
}

// 124,439,808 in the public checkpoint of 50,257 tokens.
TEST(RegistryTest, Gpt2WithItsOwnVocabularyHasThePublicCheckpointsParameters) {
  ModelConfig config = FindPreset("gpt2-124m")->config;
  AsDecoder(config).vocab = 50257;
  EXPECT_EQ(CountParameters(config).total, 124'439'808);
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
