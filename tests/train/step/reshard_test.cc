// Proves that a checkpoint does not know the layout that wrote it: saved under one and loaded under
// another, parameters and optimizer state are the same to the bit.

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "tests/train/step/scaled_recipes.h"
#include "train/checkpoint/paths.h"
#include "train/step/rank_engine.h"
#include "train/step/snapshot.h"

namespace trainyard::testing {
namespace {

// What is trained.
struct Trained {
  const char* family;
  const Optimizer& optimizer = AdamWOptimizer();
  const Precision* precision = nullptr;  // Null: f64.
  bool compact = false;
};

std::vector<ParallelismConfig> Layouts(const Trained& trained) {
  if (FactsOf(FindFamily(trained.family)->defaults).experts) {
    return {{.zero = Zero::kNone},
            {.tensor = 2},
            {.expert = 2, .zero = Zero::kNone},
            {.tensor = 2, .expert = 2},
            {.expert_split = ExpertSplit::kExpert, .zero = Zero::kFull},
            {.pipeline = 2, .expert = 2, .expert_split = ExpertSplit::kExpert},
            {.context = 2, .expert = 2, .expert_split = ExpertSplit::kExpertTensorContext}};
  }
  return {{.zero = Zero::kNone},
          {.zero = Zero::kFull},
          {.tensor = 2},
          {.pipeline = 2, .virtual_pipeline = 2, .context = 2},
          {.pipeline = 2, .virtual_pipeline = 2, .schedule = FindSchedule("V_HALF")},
          {.tensor = 4, .zero = Zero::kNone},
          {.tensor = 2, .pipeline = 2},
          {.tensor = 2, .pipeline = 2, .zero = Zero::kFull}};
}

std::string EmptyDirectory(const std::string& name) {
  const std::string path = FreshDirectory(name);
  CHECK(LocalStorage().MakeDirectory(path).ok()) << path;
  return path;
}

RunState State(const ModelConfig& model) {
  return {.job_id = "j-1",
          .epoch = 1,
          .step = 1,
          .data_position = 0,
          .seed = 7,
          .model = model,
          .layout = {},
          .sequence = 0,
          .build = ""};
}

// Runs `f` as every rank of the layout, with an engine and the group of all ranks.
void AsRanks(const LayoutCase& c, const std::function<void(RankEngine&, Collective&)>& f) {
  const auto errors = RunWorlds(int(c.job.devices), [&](CollectiveWorld& world) {
    const auto everyone = world.Everyone();
    const auto engine =
        RankEngine::Create(c.job, c.model, {.precision = c.precision}, CpuBackend(), world);
    CHECK(everyone.ok() && engine.ok()) << engine.status();
    (*engine)->executable().WriteStepState({.seed = 7});
    (*engine)->executable().Run(Action::kInit);
    (*engine)->executable().Run(Action::kPrepare);
    f(**engine, **everyone);
  });
  for (const std::string& error : errors) CHECK(error.empty()) << error;
}

// One model for all layouts: what divides for four tensor ranks does for fewer.
LayoutCase CaseOf(const Trained& trained, const ParallelismConfig& parallelism) {
  LayoutCase c = MakeLayoutCase(trained.family, {.tensor = 4, .context = 2}, 2);
  c.job.optimizer.options = OptimizerOptions(trained.optimizer);
  if (FactsOf(c.model).experts) c = WithRouter(c, 2);  // With the bias of the choice.
  c.job.parallelism = parallelism;
  c.precision = trained.precision;
  if (trained.compact) {
    c.job.precision = PrecisionName::kBF16;
    c.job.optimizer.options["state"] = double(OptimizerState::kCompact);
  }
  c.job.devices = 2 * parallelism.tensor * parallelism.pipeline * parallelism.context;
  c.job.batch.global = 2 * 4;
  return c;
}

// A step, so that the moments are no zeroes, and a checkpoint of it.
std::string Save(const Trained& trained, const ParallelismConfig& parallelism,
                 const std::string& directory) {
  const LayoutCase c = CaseOf(trained, parallelism);
  AsRanks(c, [&](RankEngine& engine, Collective& everyone) {
    MicroBatchData data;
    for (const InputSpec& input : CreateModel(c.model)->inputs()) {
      data[input.name] = MakeInput(input, c.job.batch.micro, engine.part().rows, /*seed=*/1);
    }
    const size_t micro_batches = size_t(AccumulationSteps(c.job));
    engine.runner().Step({.step = 1, .learning_rate = 0.01, .loss_scale = 0.01, .seed = 7},
                         StepBatch(micro_batches, data), [] {});
    const auto saved =
        SaveSnapshot({directory, State(c.model)}, engine.executable(), everyone, LocalStorage());
    CHECK(saved.ok()) << saved.status();
  });
  return NewestDigest(directory);
}

std::string LoadAndSaveAgain(const Trained& trained, const ParallelismConfig& parallelism,
                             const std::string& from, const std::string& to) {
  const LayoutCase c = CaseOf(trained, parallelism);
  AsRanks(c, [&](RankEngine& engine, Collective& everyone) {
    const absl::Status loaded =
        LoadSnapshot(Newest(from), LoadWhat::kEverything, engine.executable());
    CHECK(loaded.ok()) << loaded;
    engine.executable().Run(Action::kPrepare);
    const auto saved =
        SaveSnapshot({to, State(c.model)}, engine.executable(), everyone, LocalStorage());
    CHECK(saved.ok()) << saved.status();
  });
  return NewestDigest(to);
}

class Reshard : public ::testing::TestWithParam<Trained> {};

TEST_P(Reshard, KeepsEveryBitFromAnyLayoutToAnyOther) {
  for (const ParallelismConfig& before : Layouts(GetParam())) {
    const std::string from = EmptyDirectory("reshard_from");
    const std::string digest = Save(GetParam(), before, from);
    for (const ParallelismConfig& after : Layouts(GetParam())) {
      SCOPED_TRACE(CaseOf(GetParam(), before).name() + " to " + CaseOf(GetParam(), after).name());
      EXPECT_EQ(LoadAndSaveAgain(GetParam(), after, from, EmptyDirectory("reshard_to")), digest);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Reshard,
                         ::testing::Values(Trained{"llama"}, Trained{"gpt3"}, Trained{"qwen3_moe"},
                                           Trained{"gpt_oss"}, Trained{"dit"},
                                           Trained{"qwen3_moe", LionOptimizer()},
                                           Trained{"llama", MuonOptimizer()},
                                           Trained{"qwen3_moe", MuonOptimizer()},
                                           Trained{"llama", AdamWOptimizer(), &DelayedScaling()},
                                           Trained{.family = "llama", .compact = true}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.family, "_", info.param.optimizer.name,
                                               info.param.precision ? "_delayed" : "",
                                               info.param.compact ? "_compact" : "");
                         });

}  // namespace
}  // namespace trainyard::testing
