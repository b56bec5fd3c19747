// Proves that weights in 8 bits are rounded once a step, and those of a frozen base once a run, to
// the bits of rounding them each time, in every layout; how often the ops of a step run; and that
// rounded weights are kept only where the device has the memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "tests/families/family_case.h"
#include "tests/models/tiny.h"
#include "tests/testing/ranks.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/scaled_recipes.h"
#include "train/step/memory_limit.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

constexpr int kWeights = 2 * 4;  // Two layers: qkv, output, gate and up, down.

struct Rerun {
  ParallelismConfig parallelism;
  int64_t data = 1;
  RecomputeConfig recompute = {};
};

// Schedules in which several micro-batches are in flight, chunks of a stage, recomputation, ZeRO.
std::vector<Rerun> RerunLayouts() {
  return {{{}, 1},
          {{}, 1, {.blocks = 2}},
          {{}, 2, {.norms_and_activations = true}},
          {{.tensor = 2}, 1},
          {{.context = 2}, 2},
          {{.tensor = 2, .zero = Zero::kFull}, 2, {.blocks = 1}},
          {{.pipeline = 2, .virtual_pipeline = 2, .zero = Zero::kNone}, 2},
          {{.pipeline = 2, .schedule = FindSchedule("ZERO_BUBBLE")}, 2},
          {{.pipeline = 2, .schedule = FindSchedule("GPIPE")}, 1, {.blocks = 1}}};
}

LayoutCase RerunCase(const ScaledRecipe& recipe, const Rerun& divided) {
  LayoutCase c = ScaledCase(recipe, divided.parallelism, divided.data);
  c.job.recompute = divided.recompute;
  return c;
}

LayoutCase RoundedEachTime(LayoutCase c) {
  c.round_each_time = true;
  return c;
}

class RoundedWeights : public ::testing::TestWithParam<ScaledRecipe> {};

// Bugs it must catch: weights of the step before, in training or in a validation; of another stage
// or chunk; a copy that nobody has written.
TEST_P(RoundedWeights, HaveTheBitsOfRoundingEachTime) {
  for (const Rerun& divided : RerunLayouts()) {
    const LayoutCase c = RerunCase(GetParam(), divided);
    EXPECT_GT(AccumulationSteps(c.job), 1);
    EXPECT_EQ(LargestDifference(Train(c), Train(RoundedEachTime(c))), 0)
        << c.name() << " recompute " << c.job.recompute.blocks;
  }
}

// The base of adapters and a frozen half of a model, beside weights that are trained.
TEST_P(RoundedWeights, OfAFrozenBaseHaveTheBitsOfRoundingEachTime) {
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{}, ParallelismConfig{.tensor = 2}, ParallelismConfig{.pipeline = 2}}) {
    for (const bool adapts : {false, true}) {
      LayoutCase c = RerunCase(GetParam(), {parallelism, 1});
      if (adapts) c.job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2}};
      if (!adapts) c.job.frozen = {"model.layers.0.*"};
      EXPECT_EQ(LargestDifference(Train(c), Train(RoundedEachTime(c))), 0) << c.name() << adapts;
    }
  }
}

// How often the ops ran, by name, in a step of one rank.
std::map<std::string, int> OpsOfAStep(const LayoutCase& c) {
  std::map<std::string, int> counts;
  const auto errors = RunWorlds(1, [&](CollectiveWorld& world) {
    const auto made = RankEngine::Create(
        c.job, c.model, {.round_each_time = c.round_each_time, .precision = c.precision},
        CpuBackend(), world);
    CHECK(made.ok()) << made.status();
    Executable& executable = (*made)->executable();
    executable.WriteStepState({.seed = 7});
    executable.Run(Action::kInit);
    executable.Run(Action::kPrepare);
    MicroBatchData data;
    for (const InputSpec& input : CreateModel(c.model)->inputs()) {
      data[input.name] = MakeInput(input, c.job.batch.micro, (*made)->part().rows, 1);
    }
    const StepBatch batch(size_t(AccumulationSteps(c.job)), data);
    for (int step = 1; step <= 2; ++step) {
      Timeline timeline;
      if (step == 2) executable.set_timeline(&timeline);
      (*made)->runner().Step({.step = step, .learning_rate = 0.01, .loss_scale = 0.01}, batch,
                             [] {});
      executable.set_timeline(nullptr);
      for (const Span& span : timeline.spans(Track::kCompute)) ++counts[std::string(span.name)];
    }
  });
  for (const std::string& error : errors) CHECK(error.empty()) << error;
  return counts;
}

LayoutCase WithMicroBatches(LayoutCase c, int64_t count) {
  c.job.batch.global = c.job.batch.micro * count;
  return c;
}

TEST_P(RoundedWeights, AreRoundedOnceAStep) {
  const bool by_lines = GetParam().name == std::string("rowwise");
  const bool has_history = GetParam().name == std::string("delayed");
  const LayoutCase c = RerunCase(GetParam(), {{}, 1});
  const auto one = OpsOfAStep(WithMicroBatches(c, 1));
  const int activations = one.at("quantize") - 2 * kWeights;
  // Forward and backward sum other dims. Unless scales are of lines, they have the same scales.
  const int once = by_lines ? 2 : 1;
  const auto four = OpsOfAStep(WithMicroBatches(c, 4));
  EXPECT_EQ(four.at("quantize"), 4 * activations + once * kWeights);
  const auto each = OpsOfAStep(RoundedEachTime(WithMicroBatches(c, 4)));
  EXPECT_EQ(each.at("quantize"), 4 * (activations + 2 * kWeights));
  // Histories look at a weight in forward alone.
  const int looks = one.at("amax") - (has_history ? 1 : 2) * kWeights;
  EXPECT_EQ(four.at("amax"), 4 * looks + once * kWeights);
  EXPECT_EQ(each.at("amax"), 4 * one.at("amax"));
}

// Bug it must catch: what the first micro-batch has left is computed again with the activations.
TEST_P(RoundedWeights, AreNotComputedAgain) {
  const auto once_a_step = [&](int64_t blocks) {
    const LayoutCase c = RerunCase(GetParam(), {{}, 1, {.blocks = blocks}});
    const auto plan = PlanRank(c.job, c.model, 0, DeviceKind::kCpu, {.precision = c.precision});
    CHECK(plan.ok()) << plan.status();
    return std::count_if(
        plan->program.instances.begin(), plan->program.instances.end(),
        [](const Instance& instance) { return instance.when == When::kFirstMicroBatch; });
  };
  EXPECT_GE(once_a_step(0), 2 * kWeights);
  EXPECT_EQ(once_a_step(2), once_a_step(0));
}

TEST_P(RoundedWeights, OfAFrozenBaseAreRoundedOnceARun) {
  const bool has_history = GetParam().name == std::string("delayed");
  LayoutCase c = RerunCase(GetParam(), {{}, 1});
  c.job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2}};
  for (const int micro_batches : {1, 4}) {
    const int kept = OpsOfAStep(WithMicroBatches(c, micro_batches)).at("quantize");
    const int each = OpsOfAStep(RoundedEachTime(WithMicroBatches(c, micro_batches))).at("quantize");
    const int of_base = 2 * kWeights - 1;  // The gradient of the first layer's input is not needed.
    if (!has_history) {
      EXPECT_EQ(kept, each - micro_batches * of_base) << micro_batches;
    } else if (micro_batches > 1) {
      EXPECT_EQ(kept, each - micro_batches * of_base + kWeights) << micro_batches;
    } else {
      EXPECT_EQ(kept, each) << micro_batches;
    }
  }
}

// Bug it must catch: ranks of one job that differ in their memory wait for each other for ever.
TEST_P(RoundedWeights, DoNotDecideWhenRanksFindGreatestValues) {
  LayoutCase c = RerunCase(GetParam(), {{.tensor = 2}, 1});
  for (const bool frozen : {false, true}) {
    if (frozen) c.job.frozen = {"model.layers.0.*"};
    for (const int micro_batches : {1, 4}) {
      const LayoutCase of_step = WithMicroBatches(c, micro_batches);
      const auto looks = [&](std::optional<int64_t> memory_bytes) {
        const auto plan = PlanRank(of_step.job, of_step.model, 0, DeviceKind::kCpu,
                                   {.memory_bytes = memory_bytes, .precision = of_step.precision});
        CHECK(plan.ok()) << plan.status();
        std::map<std::pair<List, When>, int> found;
        for (const Instance& instance : plan->program.instances) {
          if (instance.op->name() == "amax") ++found[{instance.list, instance.when}];
        }
        return std::pair(found, plan->memory.rounded_bytes > 0);
      };
      const auto [kept, keeps] = looks(std::nullopt);
      const auto [without, keeps_without] = looks(1);
      EXPECT_EQ(without, kept) << frozen << ' ' << micro_batches;
      EXPECT_FALSE(keeps_without);
      const bool has_history = GetParam().name == std::string("delayed");
      EXPECT_EQ(keeps, micro_batches > 1 || (frozen && !has_history)) << "something is compared";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, RoundedWeights, ::testing::ValuesIn(ScaledRecipes()),
                         [](const auto& info) { return info.param.name; });

TEST(RoundedWeightsMemory, IsPlannedAndTakenOnlyWhereItIs) {
  LayoutCase c = RerunCase(ScaledRecipes()[0], {{}, 1});
  const auto plan = [&](std::optional<int64_t> memory_bytes) {
    auto made = PlanRank(c.job, c.model, 0, DeviceKind::kCpu,
                         {.memory_bytes = memory_bytes, .precision = c.precision});
    CHECK(made.ok()) << made.status();
    return made->memory;
  };
  const MemoryPlan kept = plan(std::nullopt);
  // Each layer has 16 x (48 + 16 + 32 + 16) weights, by rows and by columns.
  EXPECT_EQ(kept.rounded_bytes, size_t(2 * 16 * (48 + 16 + 32 + 16) * 2));
  const auto bytes = [&](size_t wanted) {
    int64_t device = int64_t(wanted);
    while (DeviceMemory{.bytes = size_t(device)}.for_plan() < wanted) ++device;
    return device;
  };
  EXPECT_EQ(plan(bytes(kept.total_bytes())).total_bytes(), kept.total_bytes());
  const MemoryPlan without = plan(bytes(kept.total_bytes()) - 1);
  EXPECT_EQ(without.rounded_bytes, 0u);
  EXPECT_LT(without.total_bytes(), kept.total_bytes());
  c.job.parallelism.zero = Zero::kFull;
  EXPECT_EQ(plan(std::nullopt).rounded_bytes, 0u) << "weights come and go";
  c.job.parallelism.zero = Zero::kOptimizer;
  c.job.batch.global = c.job.batch.micro;
  EXPECT_EQ(plan(std::nullopt).rounded_bytes, 0u) << "nothing would use them again";
}

}  // namespace
}  // namespace trainyard::testing
