// Proves that several values cross the cuts of a pipeline, each with a `varying` of its own: a
// model with a condition for each sample computes under every layout what one rank does, in f64,
// and what is sent is what the formula says. What no later block needs does not cross.

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "models/arch/registry.h"
#include "models/program/op.h"
#include "tests/models/conditioned.h"
#include "tests/models/tiny.h"
#include "tests/testing/ranks.h"
#include "tests/train/step/layouts.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

constexpr double kTolerance = 1e-10;

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<Model> Make(const ModelConfig& config) {
  return MakeConditioned(AsDecoder(config));
}

LayoutCase ConditionedCase(const ParallelismConfig& parallelism, int64_t data) {
  LayoutCase c = MakeLayoutCase("llama", parallelism, data);
  c.make_model = Make;
  return c;
}

// Every seventh layout of llama's sizes; of half of them a rank computes two samples at once.
std::vector<LayoutCase> Cases() {
  std::vector<LayoutCase> cases;
  const std::vector<LayoutCase> all = AllLayouts("llama", 8);
  for (size_t i = 0; i < all.size(); i += 7) {
    LayoutCase c = all[i];
    c.make_model = Make;
    AsDecoder(c.model).tied = false;  // Of which the model knows nothing.
    if (cases.size() % 2 == 1) c.job.batch.micro *= 2, c.job.batch.global *= 2;
    if (cases.size() % 3 == 2) c.job.recompute = {.blocks = 1, .norms_and_activations = true};
    cases.push_back(c);
  }
  return cases;
}

class Crossings : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(Crossings, StepsEqualThoseOfOneRankAndSendWhatTheFormulaSays) {
  const LayoutCase layout = HeldUp(GetParam());
  EXPECT_LT(LargestDifference(Train(layout), TrainOnOneRank(layout)), kTolerance);
}

std::string NameOf(const ::testing::TestParamInfo<LayoutCase>& info) {
  return std::to_string(info.index) + "_" + info.param.name();
}
INSTANTIATE_TEST_SUITE_P(Conditioned, Crossings, ::testing::ValuesIn(Cases()), NameOf);

// A model of four layers with a block on each of its parts, before it is divided into stages.
Program Parts() {
  LayoutCase c = ConditionedCase({.tensor = 2, .pipeline = 3, .virtual_pipeline = 2}, 1);
  AsDecoder(c.model).layers = 4;
  Program parts;
  RecordTraining(*Make(c.model), {.record = {.precision = Precision::F64(),
                                             .sequence = c.job.batch.sequence,
                                             .mesh = {.tensor = 2, .pipeline = 3},
                                             .cuts = {0, 1, 2, 3, 4},
                                             .stages = {0, 1, 2, 0, 1, 2}},
                                  .after_pass = [&](const std::string& pass, const Program& p) {
                                    if (pass == "backward") parts = p;
                                  }});
  return parts;
}

std::vector<std::string> NamesOf(const std::vector<Crossing>& crossings) {
  std::vector<std::string> names;
  for (const Crossing& crossing : crossings) names.push_back(crossing.name);
  return names;
}

TEST(CrossingsTest, WhatNoLaterBlockNeedsDoesNotCross) {
  const Program program = Parts();
  ASSERT_EQ(program.chunks.size(), 6u);
  EXPECT_THAT(program.chunks[0].received, IsEmpty());
  for (size_t part = 0; part < 5; ++part) {
    // Layer 2 hands the condition on to layer 3, the last that reads it.
    const std::vector<std::string> names = NamesOf(program.chunks[part].sent);
    EXPECT_EQ(names, NamesOf(program.chunks[part + 1].received));
    if (part < 4) {
      EXPECT_THAT(names, ElementsAre("x", "condition")) << part;
    } else {
      EXPECT_THAT(names, ElementsAre("x"));
    }
  }
  EXPECT_THAT(program.chunks[5].sent, IsEmpty());
}

TEST(CrossingsTest, EachValueKeepsItsShapeAndTheAxesOfItsGradient) {
  const Program program = Parts();
  for (size_t part = 1; part < 5; ++part) {
    const Crossing& x = program.chunks[part].received[0];
    const Crossing& condition = program.chunks[part].received[1];
    EXPECT_EQ(program.info(x.value).varying, AxisSet(Axis::kTensor));
    EXPECT_EQ(program.info(condition.value).varying, AxisSet());
    EXPECT_EQ(program.info(condition.value).shape[0], program.micro_batch);
    EXPECT_EQ(program.info(condition.value).name, "received condition");
    EXPECT_EQ(program.info(condition.gradient).shape, program.info(condition.value).shape);
  }
  // Handed on as it came, in both directions.
  const Chunk& passes = program.chunks[3];
  EXPECT_EQ(passes.received[1].value, passes.sent[1].value);
  EXPECT_EQ(passes.received[1].gradient, passes.sent[1].gradient);
}

// Validation runs forwards alone, in one slot: what is handed on as it came leaves before the next
// comes to its place.
TEST(CrossingsTest, ValidationOfSeveralMicroBatchesEqualsThatOfOneRank) {
  LayoutCase c = ConditionedCase({.pipeline = 5}, 1);
  LayoutCase one = c;
  one.job.parallelism = {};
  one.job.devices = 1;
  EXPECT_NEAR(ValidationLoss(c), ValidationLoss(one), kTolerance);
}

}  // namespace
}  // namespace trainyard::testing
