// Proves that a job shrinks in the order that the header says, only as far as it must, and stays
// legal. The recipes of recipes/published are the jobs.
#include "train/config/scale.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/published_table.h"
#include "train/config/parse.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/config/validate_layout.h"

namespace trainyard::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobConfig Recipe(const std::string& name) {
  const auto job = ParseAndValidateJob(ReadPublished(name + ".yaml"));
  CHECK(job.ok()) << name << ": " << job.status();
  return *job;
}

// "batch.global 128 -> 32", in order.
std::vector<std::string> Scaled(const JobConfig& job, const ScaleLimits& limits) {
  std::vector<std::string> changes;
  for (const ScaledField& field : ScaleTo(job, ResolveModel(job.model).value(), limits).changes) {
    EXPECT_NE(field.why, "") << field.path;
    changes.push_back(absl::StrCat(field.path, " ", field.from, " -> ", field.to));
  }
  return changes;
}

TEST(ScaleTest, NothingChangesWhereEverythingFits) {
  const JobConfig job = Recipe("nemo20-llama3-8b-fp8-8");
  EXPECT_THAT(Scaled(job, {.devices = 8}), IsEmpty());
  EXPECT_THAT(Scaled(job, {.devices = 1000}), IsEmpty());
}

TEST(ScaleTest, ReplicasGoFirst) {
  EXPECT_THAT(Scaled(Recipe("nemo20-llama3-8b-fp8-8"), {.devices = 5}),
              ElementsAre("devices 8 -> 4", "batch.global 128 -> 64"));
  // Of 64 ranks of the expert axis, 3 data ranks leave none.
  EXPECT_THAT(
      Scaled(Recipe("automodel-deepseek-v3-671b-bf16-256"), {.devices = 15}),
      ElementsAre("devices 256 -> 12", "parallelism.expert 64 -> 1", "batch.global 512 -> 24"));
  EXPECT_THAT(
      Scaled(Recipe("automodel-deepseek-v3-671b-bf16-256"), {.devices = 48}),
      ElementsAre("devices 256 -> 48", "parallelism.expert 64 -> 4", "batch.global 512 -> 96"));
}

// As the publisher's proxy of 405b with 4 of the 8 stages, which has 62 layers.
TEST(ScaleTest, StagesGoWithTheirLayers) {
  const JobConfig job = Recipe("dgxc-llama31-llama3.1-405b-fp8-512");
  EXPECT_THAT(Scaled(job, {.devices = 127}),
              ElementsAre("devices 512 -> 64", "parallelism.pipeline 8 -> 4",
                          "batch.global 256 -> 64", "model.overrides.layers 126 -> 62"));
  EXPECT_THAT(Scaled(job, {.devices = 16}),
              ElementsAre("devices 512 -> 16", "parallelism.pipeline 8 -> 1",
                          "parallelism.virtual_pipeline 8 -> 1", "batch.global 256 -> 64",
                          "model.overrides.layers 126 -> 14"));
}

TEST(ScaleTest, ThenContextThenTensor) {
  const JobConfig job = Recipe("dgxc-llama31-llama3.1-405b-fp8-512");
  EXPECT_THAT(Scaled(job, {.devices = 8}),
              ElementsAre("devices 512 -> 8", "parallelism.pipeline 8 -> 1",
                          "parallelism.context 2 -> 1", "parallelism.virtual_pipeline 8 -> 1",
                          "batch.global 256 -> 64", "model.overrides.layers 126 -> 14"));
  EXPECT_THAT(
      Scaled(job, {.devices = 3}),
      ElementsAre("devices 512 -> 2", "parallelism.tensor 8 -> 2", "parallelism.pipeline 8 -> 1",
                  "parallelism.context 2 -> 1", "parallelism.virtual_pipeline 8 -> 1",
                  "batch.global 256 -> 64", "model.overrides.layers 126 -> 14"));
}

// The controller places a tensor group on one machine, or never.
TEST(ScaleTest, ATensorGroupFitsOnOneMachine) {
  const JobConfig job = Recipe("dgxc-llama31-llama3.1-405b-fp8-512");
  const ScaleLimits limits = {.devices = 8, .devices_of_machine = 6};
  EXPECT_THAT(Scaled(job, limits),
              ElementsAre("devices 512 -> 8", "parallelism.tensor 8 -> 4",
                          "parallelism.pipeline 8 -> 1", "parallelism.virtual_pipeline 8 -> 1",
                          "batch.global 256 -> 64", "model.overrides.layers 126 -> 14"));
  const ScaledJob scaling = ScaleTo(job, ResolveModel(job.model).value(), limits);
  EXPECT_EQ(scaling.changes[1].why,
            "its ranks share a machine, and the largest machine has 6 devices");
  // With room on a machine, the whole cluster is the limit.
  EXPECT_EQ(Scaled(job, {.devices = 8, .devices_of_machine = 8}), Scaled(job, {.devices = 8}));
}

TEST(ScaleTest, SaysWhyThereAreSoManyDevices) {
  const JobConfig job = Recipe("dgxc-llama31-llama3.1-405b-fp8-512");
  const auto why = [&](const ScaleLimits& limits) {
    return ScaleTo(job, ResolveModel(job.model).value(), limits).changes[0].why;
  };
  EXPECT_EQ(why({.devices = 8}), "--scale-to 8");
  EXPECT_EQ(why({.devices = 3}), "--scale-to 3, and one copy of the model takes 2");
  EXPECT_EQ(why({.devices = 512, .devices_of_machine = 4}), "one copy of the model takes 64 now");
}

TEST(ScaleTest, LayersGoUntilTheJobFits) {
  const auto with_at_most = [](int64_t layers) {
    return [layers](const JobConfig&, const ModelConfig& model) {
      return FactsOf(model).layers <= layers;
    };
  };
  const JobConfig job = Recipe("nemo20-llama3-8b-fp8-8");
  EXPECT_THAT(Scaled(job, {.devices = 8, .fits = with_at_most(11)}),
              ElementsAre("model.overrides.layers 32 -> 11"));
  EXPECT_THAT(Scaled(job, {.devices = 8, .fits = with_at_most(31)}),
              ElementsAre("model.overrides.layers 32 -> 31"));
  EXPECT_THAT(Scaled(job, {.devices = 8, .fits = with_at_most(0)}),
              ElementsAre("model.overrides.layers 32 -> 1"));
  EXPECT_THAT(Scaled(job, {.devices = 8, .fits = with_at_most(1)}),
              ElementsAre("model.overrides.layers 32 -> 1"));
  // Three dense layers and one with experts.
  EXPECT_THAT(
      Scaled(Recipe("automodel-deepseek-v3-671b-bf16-256"), {.devices = 1, .fits = with_at_most(5)})
          .back(),
      "model.overrides.layers 61 -> 5");
  EXPECT_THAT(
      Scaled(Recipe("automodel-deepseek-v3-671b-bf16-256"), {.devices = 1, .fits = with_at_most(0)})
          .back(),
      "model.overrides.layers 61 -> 4");
  // Each of the 4 x 5 parts of the pipeline has a block, embedding and head included. So has each
  // stage, if parts are given up.
  const JobConfig parts = Recipe("dgxc-llama31-llama3-70b-bf16-64");
  EXPECT_THAT(Scaled(parts, {.devices = 64, .fits = with_at_most(18)}),
              ElementsAre("model.overrides.layers 80 -> 18"));
  EXPECT_THAT(
      Scaled(parts, {.devices = 64, .fits = with_at_most(17)}),
      ElementsAre("parallelism.virtual_pipeline 5 -> 1", "model.overrides.layers 80 -> 17"));
  const ScaledJob hopeless =
      ScaleTo(parts, ResolveModel(parts.model).value(), {.devices = 64, .fits = with_at_most(1)});
  EXPECT_FALSE(hopeless.fits);
  EXPECT_EQ(FactsOf(ResolveModel(hopeless.job.model).value()).layers, 2);
}

TEST(ScaleTest, AJobThatBeginsWithWeightsKeepsItsLayers) {
  JobConfig job = Recipe("dgxc-llama31-llama3-70b-bf16-64");
  job.init_from = "runs/llama/step-10";
  const auto never = [](const JobConfig&, const ModelConfig&) { return false; };
  const ScaledJob scaling =
      ScaleTo(job, ResolveModel(job.model).value(), {.devices = 8, .fits = never});
  EXPECT_FALSE(scaling.fits);
  EXPECT_EQ(scaling.job.parallelism.pipeline, 1);
  EXPECT_EQ(FactsOf(ResolveModel(scaling.job.model).value()).layers, 80);
  job.init_from_subset = true;
  EXPECT_EQ(Scaled(job, {.devices = 8}).back(), "model.overrides.layers 80 -> 18");
}

// The layers of a pattern are its letters.
TEST(ScaleTest, APatternLosesItsLastLetters) {
  const auto at_most_7 = [](const JobConfig&, const ModelConfig& model) {
    return FactsOf(model).layers <= 7;
  };
  EXPECT_EQ(Scaled(Recipe("automodel-nemotron3-nano-30b-bf16-8"), {.devices = 8, .fits = at_most_7})
                .back(),
            "model.overrides.hybrid_pattern "
            "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME -> MEMEM*E");
}

// The job recomputes all layers of a stage, and its schedule needs several stages.
JobConfig Stricter(JobConfig job) {
  job.recompute.blocks = LayersOfAStage(job.parallelism, FactsOf(*ResolveModel(job.model)).layers);
  if (job.parallelism.pipeline == 1) return job;
  if (job.parallelism.virtual_pipeline > 1) {
    job.parallelism.schedule = DefaultSchedule(2);
  } else {
    job.parallelism.schedule = FindSchedule("V_ZB");
    job.parallelism.virtual_pipeline = 2;
  }
  return job;
}

TEST(ScaleTest, RecomputesAtMostTheLayersOfAStage) {
  const auto three = [](const JobConfig&, const ModelConfig& model) {
    return FactsOf(model).layers <= 3;
  };
  JobConfig job = Recipe("nemo20-llama3-8b-fp8-8");
  job.recompute.blocks = 2;
  EXPECT_THAT(Scaled(job, {.devices = 8, .fits = three}),
              ElementsAre("model.overrides.layers 32 -> 3"));
  job.recompute.blocks = 32;
  EXPECT_THAT(Scaled(job, {.devices = 8, .fits = three}),
              ElementsAre("recompute.blocks 32 -> 3", "model.overrides.layers 32 -> 3"));
}

TEST(ScaleTest, OneStageHasAPlainSchedule) {
  JobConfig job = Recipe("nemo20-llama2-70b-fp8-64");
  ASSERT_EQ(job.parallelism.pipeline, 4);
  for (const char* schedule : {"V_HALF", "V_ZB", "INTERLEAVED_ONE_F_ONE_B"}) {
    job.parallelism.schedule = FindSchedule(schedule);
    job.parallelism.virtual_pipeline = 2;
    const std::vector<std::string> changes = Scaled(job, {.devices = 4});
    EXPECT_THAT(changes,
                Contains(absl::StrCat("parallelism.schedule ", schedule, " -> ONE_F_ONE_B")));
    EXPECT_THAT(changes, Contains("parallelism.virtual_pipeline 2 -> 1"));
    // Two stages are enough.
    for (const std::string& change : Scaled(job, {.devices = 8})) {
      EXPECT_FALSE(absl::StartsWith(change, "parallelism.schedule")) << change;
    }
  }
  job.parallelism.schedule = FindSchedule("GPIPE");
  job.parallelism.virtual_pipeline = 1;
  for (const std::string& change : Scaled(job, {.devices = 4})) {
    EXPECT_FALSE(absl::StartsWith(change, "parallelism.schedule")) << change;
  }
}

// It is reported when the job is submitted.
TEST(ScaleTest, WhatIsWrongOtherwiseDoesNotTakeLayers) {
  JobConfig job = Recipe("nemo20-llama3-8b-fp8-8");
  job.profile = ProfileConfig{.directory = "profile", .ranks = {5}};
  const auto never = [](const JobConfig&, const ModelConfig&) { return false; };
  EXPECT_THAT(Scaled(job, {.devices = 4, .fits = never}),
              ElementsAre("devices 8 -> 4", "batch.global 128 -> 64"));
}

// Whatever a recipe scales to is a legal job.
TEST(ScaleTest, EveryRecipeScalesToALegalJob) {
  const auto five = [](const JobConfig&, const ModelConfig& model) {
    return FactsOf(model).layers <= 5;
  };
  for (const PublishedRun& run : PublishedRuns()) {
    const JobConfig recipe = Recipe(run.name()), stricter = Stricter(recipe);
    const ModelConfig model = ResolveModel(recipe.model).value();
    for (const int64_t devices : {1, 2, 3, 4, 6, 8, 16, 40}) {
      for (const bool strict : {false, true}) {
        const JobConfig& given = strict ? stricter : recipe;
        const ScaledJob scaling =
            ScaleTo(given, model, {.devices = devices, .fits = strict ? five : ScaleLimits().fits});
        const JobConfig& job = scaling.job;
        SCOPED_TRACE(absl::StrCat(run.name(), " on ", devices, strict ? ", stricter" : ""));
        Violations violations;
        Validate(job, violations);
        EXPECT_TRUE(violations.empty()) << violations.ToStatus();
        EXPECT_LE(job.devices, devices);
        EXPECT_GT(2 * job.devices, std::min(devices, given.devices));
        EXPECT_EQ(AccumulationSteps(job), AccumulationSteps(given));
        if (!strict) continue;
        const int64_t parts = job.parallelism.pipeline * job.parallelism.virtual_pipeline;
        const int64_t layers = FactsOf(*ResolveModel(job.model)).layers;
        EXPECT_LE(layers, std::max<int64_t>(5, parts));
        EXPECT_EQ(scaling.fits, layers <= 5);
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
