// Proves that data which lack what a model declares are refused by field.

#include "train/config/inputs.h"

#include <gmock/gmock.h>

#include "models/arch/registry.h"
#include "train/config/validate.h"

namespace trainyard {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
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

std::vector<FieldViolation> Check(const JobConfig& job) {
  Violations violations;
  Validate(job, violations);
  return violations.list();
}

// All samples of the model have as many tokens, and it reads no text.
TEST(Inputs, OfAModelOfSamplesAreRefusedBesideItsSequence) {
  JobConfig job;
  job.name = "dit";
  job.model.preset = "dit-s-2";
  job.batch = {.global = 4, .micro = 2, .sequence = 64};
  job.data = TextData{"corpus.txt", 0.02};
  job.optimizer.adamw.learning_rate = 1e-3;
  job.steps = 1;
  const auto found = Check(job);
  EXPECT_EQ(found.size(), 5u);
  for (const auto& [field, description] : found) {
    if (field == "batch.sequence") {
      EXPECT_EQ(description,
                "wanted 256, the tokens of each of the model's samples, found 64; nearest 256");
    } else {
      EXPECT_EQ(field, "data.text");
      EXPECT_THAT(description, HasSubstr("which the model reads"));
    }
  }
  job.batch.sequence = 256;
  job.devices = job.parallelism.tensor = 4;  // Of six heads.
  job.data = {};
  EXPECT_THAT(Check(job), Contains(Field(&FieldViolation::field, "parallelism.tensor")));
}

}  // namespace
}  // namespace trainyard
