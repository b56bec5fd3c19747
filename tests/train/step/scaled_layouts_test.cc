// Proves that a recipe with products in 8 bits needs a row and nothing else: a tiny model trains
// under each, with scales of each shape and with a history, and every layout of up to four ranks
// equals one rank. That the state of a history is saved, loaded under any layout and gone on with
// to the bit.

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "tests/models/tiny.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "tests/train/step/scaled_recipes.h"
#include "train/step/rank_engine.h"
#include "train/step/snapshot.h"

namespace trainyard::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::Key;

// As for f64: the scales are found from the same numbers.
constexpr double kTolerance = 1e-10;

// One rank computes the micro-batches of all data ranks one after the other. So those whose scales
// follow from the micro-batch have the same ones.
TrainedSteps TrainOneAfterTheOther(LayoutCase c) {
  c.job.parallelism = {};
  c.job.devices = 1;
  return Train(c);
}

struct Divided {
  ParallelismConfig parallelism;
  int64_t data = 1;
};

std::vector<Divided> Layouts() {
  return {{{}, 1},
          {{}, 2},
          {{.tensor = 2}, 1},
          {{.tensor = 4}, 1},
          {{.context = 2}, 1},
          {{.pipeline = 2}, 1},
          {{.zero = Zero::kFull}, 2},
          {{.tensor = 2, .context = 2}, 1},
          {{.tensor = 2, .zero = Zero::kFull}, 2},
          {{.pipeline = 2, .virtual_pipeline = 2, .zero = Zero::kNone}, 2},
          {{.pipeline = 2, .schedule = FindSchedule("ZERO_BUBBLE")}, 2}};
}

class ScaledLayouts : public ::testing::TestWithParam<std::tuple<ScaledRecipe, Divided>> {};

TEST_P(ScaledLayouts, EqualOneRank) {
  const auto& [recipe, divided] = GetParam();
  const LayoutCase c = ScaledCase(recipe, divided.parallelism, divided.data);
  const TrainedSteps steps = Train(c);
  const double difference = LargestDifference(steps, TrainOneAfterTheOther(c));
  RecordProperty("difference", ::testing::PrintToString(difference));
  EXPECT_LT(difference, kTolerance) << c.name();
}

std::string NameOf(const ::testing::TestParamInfo<ScaledLayouts::ParamType>& info) {
  const auto& [recipe, divided] = info.param;
  return absl::StrCat(recipe.name, "_",
                      ScaledCase(recipe, divided.parallelism, divided.data).name());
}
INSTANTIATE_TEST_SUITE_P(Recipes, ScaledLayouts,
                         ::testing::Combine(::testing::ValuesIn(ScaledRecipes()),
                                            ::testing::ValuesIn(Layouts())),
                         NameOf);

class ScaledRecipeTest : public ::testing::TestWithParam<ScaledRecipe> {};

TEST_P(ScaledRecipeTest, RoundsEveryProductOfLayersAndNothingElse) {
  const LayoutCase c = ScaledCase(GetParam(), {}, 1);
  LayoutCase exact = c;
  exact.precision = nullptr;
  const TrainedSteps rounded = Train(c), wanted = Train(exact);
  EXPECT_NEAR(rounded.losses[1], wanted.losses[1], 0.02 * wanted.losses[1]);
  EXPECT_NEAR(rounded.norms[1], wanted.norms[1], 0.1 * wanted.norms[1]);
  // Of the second step: in the first one, a history has seen nothing, and small gradients vanish.
  for (const auto& [name, gradient] : wanted.gradients[1]) {
    SCOPED_TRACE(name);
    double apart = 0, size = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      apart += std::pow(rounded.gradients[1].at(name)[i] - gradient[i], 2);
      size += gradient[i] * gradient[i];
    }
    EXPECT_GT(apart, 1e-8 * size);
    EXPECT_LT(apart, 0.1 * size);
  }
}

TEST_P(ScaledRecipeTest, GivesTheSameBitsWhenActivationsAreComputedAgain) {
  LayoutCase c = ScaledCase(GetParam(), {.tensor = 2}, 1);
  const TrainedSteps kept = Train(c);
  c.job.recompute = {.blocks = 2, .norms_and_activations = true};
  EXPECT_EQ(LargestDifference(Train(c), kept), 0);
}

INSTANTIATE_TEST_SUITE_P(Recipes, ScaledRecipeTest, ::testing::ValuesIn(ScaledRecipes()),
                         [](const auto& info) { return info.param.name; });

TEST(DelayedScaling, HistoriesHaveTheGreatestValuesOfTheLastSteps) {
  const TrainedSteps steps = Train(ScaledCase(ScaledRecipes()[1], {.tensor = 2}, 2));
  int histories = 0;
  for (const auto& [name, history] : steps.weights) {
    if (name.find(".amax.") == std::string::npos) continue;
    SCOPED_TRACE(name);
    ++histories;
    EXPECT_EQ(history.size(), 3u);
    EXPECT_THAT(history, Each(Gt(0)));
    EXPECT_EQ(history.back(), steps.gradients.back().at(name)[0]);
  }
  EXPECT_EQ(histories, 2 * 4 * 3);  // Layers, products, and tensors of each.
  // The greatest weight of the last step was updated since then.
  EXPECT_THAT(steps.weights, Contains(Key("model.layers.0.mlp.down_proj.weight.amax.weight")));
}

// The names of all ranks' histories.
std::set<std::string> Histories(const LayoutCase& c) {
  std::set<std::string> names;
  for (int rank = 0; rank < int(c.job.devices); ++rank) {
    const absl::StatusOr<RankPlan> plan =
        PlanRank(c.job, c.model, rank, DeviceKind::kCpu, {.precision = &DelayedScaling()});
    CHECK(plan.ok()) << plan.status();
    for (const ParameterBox& box : plan->program.Parameters()) {
      if (box.state == StateRule::AmaxHistory()) names.insert(box.name);
    }
  }
  return names;
}

class ScaledFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(ScaledFamilies, HaveTheSameHistoriesInEveryLayout) {
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{.tensor = 2}, ParallelismConfig{.pipeline = 2}}) {
    const LayoutCase c = MakeLayoutCase(GetParam(), parallelism, 1);
    LayoutCase alone = c;
    alone.job.parallelism = {};
    alone.job.devices = 1;
    EXPECT_THAT(Histories(c), ::testing::ContainerEq(Histories(alone))) << c.name();
  }
}

// Blocks of several numbers do not divide each family's sizes.
TEST_P(ScaledFamilies, EqualOneRank) {
  for (const size_t recipe : {0, 1, 3}) {
    for (const ParallelismConfig& parallelism :
         {ParallelismConfig{.tensor = 2}, ParallelismConfig{.context = 2}}) {
      LayoutCase c = MakeLayoutCase(GetParam(), parallelism, 1);
      c.precision = &ScaledRecipes()[recipe].precision;
      EXPECT_LT(LargestDifference(Train(c), TrainOneAfterTheOther(c)), kTolerance)
          << ScaledRecipes()[recipe].name << ' ' << c.name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ScaledFamilies, ::testing::ValuesIn(FamilyNames()),
                         [](const auto& info) { return info.param; });

RunState State(const ModelConfig& model, int64_t step) {
  return {.job_id = "j-1",
          .epoch = 1,
          .step = step,
          .data_position = 0,
          .seed = 7,
          .model = model,
          .layout = {},
          .sequence = 0,
          .build = ""};
}

// Trains the steps [first, last] and saves the last one. Loads what was saved before the first.
std::string TrainSteps(const LayoutCase& c, const std::string& directory, int first, int last) {
  const auto errors = RunWorlds(int(c.job.devices), [&](CollectiveWorld& world) {
    const auto everyone = world.Everyone();
    const auto made =
        RankEngine::Create(c.job, c.model, {.precision = c.precision}, CpuBackend(), world);
    CHECK(everyone.ok() && made.ok()) << made.status();
    RankEngine& engine = **made;
    engine.executable().WriteStepState({.seed = 7});
    engine.executable().Run(Action::kInit);
    if (first > 1) {
      const absl::Status loaded =
          LoadSnapshot(Newest(directory), LoadWhat::kEverything, engine.executable());
      CHECK(loaded.ok()) << loaded;
    }
    engine.executable().Run(Action::kPrepare);
    for (int step = first; step <= last; ++step) {
      MicroBatchData data;
      for (const InputSpec& input : CreateModel(c.model)->inputs()) {
        data[input.name] = MakeInput(input, c.job.batch.micro, engine.part().rows, uint64_t(step));
      }
      engine.runner().Step({.step = step, .learning_rate = 0.01, .loss_scale = 0.01, .seed = 7},
                           StepBatch(size_t(AccumulationSteps(c.job)), data), [] {});
    }
    const auto saved = SaveSnapshot({directory, State(c.model, last)}, engine.executable(),
                                    **everyone, LocalStorage());
    CHECK(saved.ok()) << saved.status();
  });
  for (const std::string& error : errors) CHECK(error.empty()) << error;
  return NewestDigest(directory);
}

TEST_P(ScaledRecipeTest, GoesOnFromACheckpointToTheBit) {
  for (const Divided& divided : {Divided{{}, 1}, Divided{{.tensor = 2}, 2}}) {
    const LayoutCase c = ScaledCase(GetParam(), divided.parallelism, divided.data);
    const auto directory = [](const char* name) {
      const std::string path = FreshDirectory(name);
      CHECK(LocalStorage().MakeDirectory(path).ok()) << path;
      return path;
    };
    const std::string undisturbed = TrainSteps(c, directory("undisturbed"), 1, 5);
    const std::string interrupted = directory("interrupted");
    TrainSteps(c, interrupted, 1, 3);
    EXPECT_EQ(TrainSteps(c, interrupted, 4, 5), undisturbed) << c.name();
  }
}

}  // namespace
}  // namespace trainyard::testing
