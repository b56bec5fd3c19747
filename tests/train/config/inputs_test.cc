// Proves that data which lack what a model declares are refused by field.

#include "train/config/inputs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "tests/train/config/check.h"
#include "train/config/declared_values.h"
#include "train/config/validate.h"
#include "train/data/arrays.h"
#include "train/data/blend.h"
#include "train/data/indexed.h"
#include "train/data/synthetic.h"
#include "train/data/text.h"

namespace trainyard {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
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
      const auto found = Found(declared, source);
      ASSERT_EQ(found.size(), FactsOf(config).vocab > 0 ? 0u : 1u) << family.name;
      if (found.empty()) continue;
      for (const InputSpec& input : declared) {  // One line names them all.
        EXPECT_THAT(found[0].Description(), HasSubstr(ToString(input)));
      }
    }
  }
}

TEST(Inputs, AModelWithoutTokensHasNoDocuments) {
  const IndexedData packed{.prefix = "a", .reset_attention_mask = true};
  const auto found = Found({{.name = "label", .unit = InputSpec::Unit::kSample}}, packed);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].field, "data.indexed.reset_attention_mask");
  EXPECT_EQ(found[0].Description(), "wanted false for a model that reads no tokens, found true");
  EXPECT_EQ(found[1].field, "data.indexed");
  EXPECT_THAT(Found({{.name = "tokens"}}, packed), IsEmpty());
}

TEST(Inputs, WhatIsNotDeliveredAsDeclaredIsRefusedByTheFieldOfTheSource) {
  const InputSpec latents{.name = "latents", .kind = InputSpec::Kind::kReal, .shape = {4}};
  const auto found = Found({{.name = "tokens"}, latents}, TextData{});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].field, "data.text");
  EXPECT_EQ(found[0].Description(),
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

// The file says how large a patch is.
TEST(Inputs, ArraysDeliverWhatADiffusionModelDeclares) {
  constexpr auto kReal = InputSpec::Kind::kReal;
  constexpr auto kSample = InputSpec::Unit::kSample;
  const std::vector<InputSpec> diffusion = {{.name = "patches", .kind = kReal, .shape = {4, 2, 2}},
                                            {.name = "target", .kind = kReal, .shape = {2, 2, 4}},
                                            {.name = "time", .unit = kSample, .limit = 1000},
                                            {.name = "label", .unit = kSample, .limit = 11}};
  EXPECT_THAT(Found(diffusion, ArraysData{}), IsEmpty());
  for (const DataConfig& text : {DataConfig(SyntheticData{}), DataConfig(TextData{})}) {
    EXPECT_EQ(Found(diffusion, text).size(), 1u);
  }
  const auto tokens = Found({{.name = "tokens", .limit = 256}}, ArraysData{});
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens[0].field, "data.arrays");
  EXPECT_EQ(tokens[0].Description(),
            "wanted data with tokens (integer, by token), which the model reads, found patches "
            "(real, by token), target (real, by token), time (integer, by sample), label (integer, "
            "by sample)");
  const InputSpec matrix{.name = "patches", .kind = kReal, .shape = {4, 4}};
  const InputSpec integers{.name = "patches", .shape = {16}};
  const InputSpec times{.name = "time"};
  for (const InputSpec& other : {matrix, integers, times}) {
    EXPECT_EQ(Found({other}, ArraysData{}).size(), 1u) << ToString(other);
  }
}

// The fields with a violation, in order, of a job with these arrays. A language model reads none,
// which is one more violation of the same source.
std::vector<std::string> FieldsFound(const std::string& arrays, const std::string& rest = "") {
  const absl::Status status =
      ParseAndValidateJob(
          absl::StrCat("{name: a, model: {preset: gpt2-124m}, steps: 10, ",
                       "batch: {global: 8, micro: 1, sequence: 64}, data: {arrays: {", arrays, "}}",
                       ", optimizer: {adamw: {learning_rate: 1e-3}}", rest, "}"))
          .status();
  std::set<std::string> fields;
  for (const FieldViolation& found : Violations::FromStatus(status)) fields.insert(found.field);
  return {fields.begin(), fields.end()};
}

TEST(Inputs, FieldsOfArraysAreChecked) {
  EXPECT_THAT(FieldsFound("latents: x.npy, labels: /data/y.npy, label_dropout: 1"),
              ElementsAre("data.arrays"));
  EXPECT_THAT(FieldsFound("latents: a/../x, label_dropout: 1.5, validation_fraction: 0.5"),
              ElementsAre("data.arrays", "data.arrays.label_dropout", "data.arrays.labels",
                          "data.arrays.latents", "data.arrays.validation_fraction"));
  EXPECT_THAT(FieldsFound("latents: x, labels: ~y, label_dropout: -0.1, prediction_type: SAMPLE"),
              ElementsAre("data.arrays", "data.arrays.label_dropout", "data.arrays.labels",
                          "data.arrays.prediction_type"));
  EXPECT_THAT(FieldsFound("latents: x, labels: y", ", validation: {every_steps: 5}"),
              ElementsAre("data.arrays", "validation"));
}

// What is wrong with a job that has these data, by field.
std::map<std::string, std::string> BlendFound(const BlendData& blend) {
  JobConfig job;
  job.name = "blend";
  job.model.preset = "gpt2-124m";
  job.batch = {.global = 8, .micro = 1, .sequence = 64};
  job.data = blend;
  job.optimizer.options["learning_rate"] = 1e-3;
  job.steps = 10;
  Violations violations;
  Validate(job, violations);
  std::map<std::string, std::string> found;
  for (const FieldViolation& one : violations.list()) found[one.field] = one.Description();
  return found;
}

TEST(Inputs, BlendsAreCheckedDatasetByDataset) {
  BlendData good = {.datasets = std::vector<BlendedDataset>(256, {1e9, "a", ""}),
                    .validation_fraction = 0.1};
  good.datasets[1] = {1e-9, "b/c", ""};
  EXPECT_THAT(BlendFound(good), IsEmpty());
  JobConfig job;
  job.data = good;
  ASSERT_EQ(PathsOf(job).size(), 256u);
  EXPECT_EQ(PathsOf(job)[1].field, "data.blend.datasets[1].prefix");
  EXPECT_EQ(PathsOf(job)[1].path, "b/c");

  using One = BlendedDataset;
  const std::string first = "data.blend.datasets[0]", second = "data.blend.datasets[1]";
  const struct {
    std::vector<One> datasets;
    std::string field, says;
  } bad[] = {{{}, "data.blend.datasets", "wanted 1 to 256 datasets, found 0"},
             {std::vector<One>(257, {1, "a", ""}), "data.blend.datasets", "found 257"},
             {{{1, "a", ""}, {0, "b", ""}}, second + ".weight", "found 0; nearest 1e-9"},
             {{{1, "a", ""}, {-1, "b", ""}}, second + ".weight", "found -1"},
             {{{1, "a", ""}, {std::nan(""), "b", ""}}, second + ".weight", "found nan"},
             {{{2e9, "a", ""}}, first + ".weight", "wanted 1e-9 <= x <= 1e9"},
             {{{2e9, "a", ""}}, first + ".weight", "found 2e+09; nearest 1e9"},
             {{{1, "a", "b"}}, first, "or the path of a text, found both"},
             {{{1, "", ""}}, first, "found none"},
             {{{1, "a", ""}, {1, "", "b"}}, second, "all with a prefix or all with a path"},
             {{{1, "../a", ""}}, first + ".prefix", "without \"..\""},
             {{{1, "", "~/a"}}, first + ".path", "not expanded"}};
  for (const auto& [datasets, field, says] : bad) {
    const auto found = BlendFound({.datasets = datasets});
    ASSERT_EQ(found.size(), 1u) << field;
    EXPECT_EQ(found.begin()->first, field);
    EXPECT_THAT(found.begin()->second, HasSubstr(says));
  }
  good.validation_fraction = 0.5;
  EXPECT_THAT(BlendFound(good).at("data.blend.validation_fraction"), HasSubstr("nearest 0.49"));
}

TEST(Inputs, ABlendWithoutHeldOutDataHasNoValidation) {
  const auto status =
      ParseAndValidateJob(
          "{name: a, model: {preset: gpt2-124m}, steps: 10, validation: {every_steps: 5},"
          " batch: {global: 8, micro: 1, sequence: 64}, optimizer: {adamw: {learning_rate: 1e-3}},"
          " data: {blend: {datasets: [{weight: 1, prefix: a, seed: 3}]}}}")
          .status();
  std::set<std::string> fields;
  for (const FieldViolation& found : Violations::FromStatus(status)) fields.insert(found.field);
  EXPECT_THAT(fields, ElementsAre("data.blend.datasets[0].seed", "validation"));
}

// All samples of the model have as many tokens, and it reads no text.
TEST(Inputs, OfAModelOfSamplesAreRefusedBesideItsSequence) {
  JobConfig job;
  job.name = "dit";
  job.model.preset = "dit-s-2";
  job.batch = {.global = 4, .micro = 2, .sequence = 64};
  job.data = TextData{"corpus.txt", 0.02};
  job.optimizer.options["learning_rate"] = 1e-3;
  job.steps = 1;
  const auto found = Check(job);
  EXPECT_EQ(found.size(), 2u);
  for (const FieldViolation& one : found) {
    if (one.field == "batch.sequence") {
      EXPECT_EQ(one.Description(),
                "wanted 256, the tokens of each of the model's samples, found 64; nearest 256");
    } else {
      EXPECT_EQ(one.field, "data.text");
      EXPECT_THAT(one.Description(), HasSubstr("which the model reads"));
    }
  }
  // Bug it must catch: two nearest values that contradict each other.
  job.batch.sequence = 0;
  const auto zero = Check(job);
  ASSERT_EQ(zero.size(), 2u);
  EXPECT_EQ(zero[0].field, "data.text");
  EXPECT_THAT(zero[1].Description(), HasSubstr("wanted 256, the tokens of each"));
  // Bug it must catch: sizes that follow from a missing one, as if the user had given them.
  JobConfig sizeless = job;
  sizeless.model = {};
  sizeless.model.architecture = GivenModel{.family = "dit", .fields = {}};
  for (const FieldViolation& one : Check(sizeless)) {
    EXPECT_NE(one.field, "model.architecture.ffn");
    EXPECT_NE(one.field, "model.architecture.head_dim");
  }
  job.batch.sequence = 256;
  job.devices = job.parallelism.tensor = 4;  // Of six heads.
  job.data = {};
  EXPECT_THAT(Check(job), Contains(Field(&FieldViolation::field, "parallelism.tensor")));

  // The sequence cannot follow the context ranks.
  job.parallelism.tensor = 1;
  job.devices = job.parallelism.context = 3;
  const auto context = Check(job);
  ASSERT_GE(context.size(), 1u);
  for (const FieldViolation& one : context) EXPECT_NE(one.field, "batch.sequence");
  EXPECT_THAT(context, Contains(Field(&FieldViolation::field, "parallelism.context")));
}

TEST(Inputs, HeadsOfADitDivideItsWidth) {
  const absl::Status status =
      ParseAndValidateJob(
          "{name: a, model: {preset: dit-s-2, overrides: {heads: 10}}, steps: 10, "
          "batch: {global: 8, micro: 1, sequence: 256}, data: {arrays: {latents: x, labels: y}}, "
          "optimizer: {adamw: {learning_rate: 1e-3}}}")
          .status();
  const auto found = Violations::FromStatus(status);
  ASSERT_EQ(found.size(), 1u) << status;
  EXPECT_EQ(found[0].field, "model.overrides.heads");
  EXPECT_THAT(found[0].Description(),
              HasSubstr("a divisor of hidden = 384, or a head_dim, found 10"));
}

}  // namespace
}  // namespace trainyard
