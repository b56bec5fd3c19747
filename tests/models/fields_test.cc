// Proves that the table of each family carries a configuration into a manifest and back.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/arch/config_json.h"
#include "models/arch/registry.h"
#include "tests/models/another_value.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

size_t IndexOf(const ModelConfig& config, absl::string_view name) {
  const std::vector<Field> fields = FieldsOf(config);
  const auto it = std::find_if(fields.begin(), fields.end(),
                               [&](const Field& field) { return field.rule.name == name; });
  return size_t(it - fields.begin());
}

// A field that its table did not have would be lost from manifests without a word.
TEST(FieldsTest, EveryFieldOfEveryPresetSurvivesJson) {
  for (const std::string& name : PresetNames()) {
    ModelConfig config = FindPreset(name)->config;
    for (const Field& field : FieldsOf(config)) {
      SCOPED_TRACE(absl::StrCat(name, " ", field.rule.name));
      ModelConfig other = config;
      SetField(other, field.rule.name, Another(field));
      EXPECT_FALSE(other == config);
      const auto read = ModelFromJson(ToJson(other));
      ASSERT_TRUE(read.ok()) << read.status();
      // A group that is not used is left out.
      EXPECT_EQ(*read == other, !FieldsOf(other)[IndexOf(other, field.rule.name)].rule.unset);
    }
  }
}

// Manifests of releases that did not have the field are read, and older releases read those of
// models that do not use it.
TEST(FieldsTest, AFieldThatIsNotUsedIsLeftOut) {
  ModelConfig config = FindPreset("llama3-8b")->config;
  EXPECT_FALSE(ToJson(config).contains("attention_soft_cap"));
  EXPECT_FALSE(ToJson(config).contains("vocab_multiple"));
  EXPECT_EQ(*ModelFromJson(ToJson(config)), config);
  AsDecoder(config).attention_soft_cap = 50;
  EXPECT_EQ(ToJson(config).at("attention_soft_cap"), 50);
  EXPECT_EQ(*ModelFromJson(ToJson(config)), config);
}

// The same within a group that is there.
TEST(FieldsTest, AFieldWithTheValueOfEarlierReleasesIsLeftOut) {
  ModelConfig config = FindPreset("qwen3-30b-a3b")->config;
  EXPECT_FALSE(ToJson(config).at("moe").contains("aux_loss_scope"));
  EXPECT_EQ(ToJson(config, Implied::kWritten).at("moe").at("aux_loss_scope"), "BATCH");
  EXPECT_EQ(*ModelFromJson(ToJson(config)), config);
  AsDecoder(config).moe->aux_loss_scope = BalanceScope::kSequence;
  EXPECT_EQ(ToJson(config).at("moe").at("aux_loss_scope"), "SEQUENCE");
  EXPECT_EQ(*ModelFromJson(ToJson(config)), config);
  auto without = ToJson(config);
  without["moe"].erase("top_k");
  EXPECT_FALSE(ModelFromJson(without).ok()) << "a field that is never left out";
}

TEST(FieldsTest, JsonOfAnotherTypeIsRefusedByItsField) {
  for (const char* preset : {"qwen3-30b-a3b", "nemotron3-nano-30b"}) {
    const ModelConfig config = FindPreset(preset)->config;
    const auto json = ToJson(config);
    for (const Field& field : FieldsOf(config)) {
      if (field.rule.unset) continue;
      auto wrong = json;
      const std::string pointer =
          absl::StrCat("/", absl::StrReplaceAll(field.rule.name, {{".", "/"}}));
      wrong[nlohmann::ordered_json::json_pointer(pointer)] = nullptr;
      EXPECT_THAT(std::string(ModelFromJson(wrong).status().message()),
                  HasSubstr(absl::StrCat("model.", field.rule.name, ": wanted ")));
    }
  }
}

// Bug it must catch: text is generated from a model that a later version made, without what its new
// field means.
TEST(FieldsTest, JsonWithAFieldOfALaterVersionIsRefusedByItsField) {
  for (const char* pointer : {"/next", "/moe/next", "/next/field"}) {
    auto later = ToJson(FindPreset("qwen3-30b-a3b")->config);
    later[nlohmann::ordered_json::json_pointer(pointer)] = 1;
    const absl::Status status = ModelFromJson(later).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("model.", absl::StrReplaceAll(pointer + 1, {{"/", "."}}))));
  }
}

}  // namespace
}  // namespace trainyard::testing
