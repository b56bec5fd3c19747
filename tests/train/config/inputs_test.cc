// Proves that data which lack what a model declares are refused by field.

#include "train/config/inputs.h"

#include <gmock/gmock.h>

#include "models/arch/registry.h"

namespace trainyard {
namespace {

using ::testing::IsEmpty;

std::vector<FieldViolation> Found(const std::vector<InputSpec>& declared,
                                  const DataConfig& source) {
  Violations violations;
  CheckInputs(declared, source, violations);
  return violations.list();
}

TEST(Inputs, EverySourceOfTextDeliversWhatLanguageModelsDeclareAndNothingElse) {
  for (const Family& family : Families()) {
    const ModelConfig& config = family.presets.front().config;
    const auto declared = CreateModel(config)->inputs();
    for (const DataConfig& source :
         {DataConfig(SyntheticData{}), DataConfig(TextData{}), DataConfig(IndexedData{})}) {
      const size_t missing = FactsOf(config).vocab > 0 ? 0 : declared.size();
      EXPECT_EQ(Found(declared, source).size(), missing) << family.name;
    }
  }
}

TEST(Inputs, WhatIsNotDeliveredAsDeclaredIsRefusedByTheFieldOfTheSource) {
  const InputSpec latents{.name = "latents", .kind = InputSpec::Kind::kReal, .shape = {4}};
  const auto found = Found({{.name = "tokens"}, latents}, TextData{});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].field, "data.text");
  EXPECT_EQ(found[0].description,
            "wanted data with latents (real [4], by token), which the model reads, found tokens "
            "(integer, by token), targets (integer, by token)");
  const InputSpec by_sample{.name = "targets", .unit = InputSpec::Unit::kSample};
  const InputSpec real{.name = "targets", .kind = InputSpec::Kind::kReal};
  const InputSpec wide{.name = "targets", .shape = {2}};
  for (const InputSpec& other : {by_sample, real, wide}) {
    EXPECT_EQ(Found({other}, SyntheticData{}).size(), 1u) << ToString(other);
  }
  // That there is no source is another violation.
  EXPECT_THAT(Found({latents}, DataConfig{}), IsEmpty());
}

}  // namespace
}  // namespace trainyard
