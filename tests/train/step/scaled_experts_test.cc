// Proves that experts whose operands are rounded with histories of their own equal one rank in
// layouts of every axis, also if the rows of a rank take several rounds; that each expert's
// histories are saved, loaded under any layout and gone on with to the bit; and that a GPU-less run
// in bf16 learns as without rounding.

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "models/arch/registry.h"
#include "models/program/amax_history.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "tests/train/step/scaled_recipes.h"

namespace trainyard::testing {
namespace {

constexpr double kSameNumbers = 1e-10;  // As for f64: the scales are found from the same numbers.

struct DividedExperts {
  ParallelismConfig parallelism;
  int64_t data = 1;
  double expert_rows = 2;
};

std::vector<DividedExperts> ExpertLayouts() {
  return {{{}, 1},
          {{}, 2},
          {{.tensor = 2}, 1},
          {{.context = 2}, 1},
          {{.pipeline = 2}, 2},
          {{.expert = 2}, 2},
          {{.expert = 2}, 2, 0.3},
          {{.expert = 2, .zero = Zero::kFull}, 4},
          {{.tensor = 2, .expert = 2}, 2, 0.3},
          {{.context = 2, .expert = 2, .zero = Zero::kNone}, 2},
          {{.pipeline = 2, .virtual_pipeline = 2, .expert = 2}, 2},
          {{.tensor = 2, .zero = Zero::kFull}, 2}};
}

class ScaledExperts : public ::testing::TestWithParam<std::tuple<std::string, DividedExperts>> {};

// Experts alone are rounded: the scales of layers' weight gradients are of a micro-batch, and those
// of data ranks are balanced as one.
const Precision& RowsOfExperts() {
  static const Precision precision = [] {
    Precision of_experts = RowScaling();
    of_experts.layer = Precision::F64().layer;
    return of_experts;
  }();
  return precision;
}

// Bugs it must catch: a scale of another token's row; a weight gradient of rounded numbers, whose
// scales would depend on the tokens that an expert has at once; rows of a weight in backward.
TEST_P(ScaledExperts, RoundedByRowsEqualOneRank) {
  const auto& [family, divided] = GetParam();
  LayoutCase c = MakeLayoutCase(family, divided.parallelism, divided.data);
  c.precision = &RowsOfExperts();
  c.expert_rows = divided.expert_rows;
  c = HeldUp(c);
  EXPECT_LT(LargestDifference(Train(c), TrainOnOneRank(c)), kSameNumbers) << c.name();
}

// Bugs it must catch: a greatest value of one rank, one round or one micro-batch alone; a history
// of another expert.
TEST_P(ScaledExperts, EqualOneRank) {
  const auto& [family, divided] = GetParam();
  LayoutCase c = MakeLayoutCase(family, divided.parallelism, divided.data);
  c.precision = &DelayedScaling();
  c.expert_rows = divided.expert_rows;
  c = HeldUp(c);
  const TrainedSteps steps = Train(c), alone = TrainOnOneRank(c);
  EXPECT_LT(LargestDifference(steps, alone), kSameNumbers) << c.name();
  int histories = 0;
  for (const auto& [name, history] : alone.weights) {
    if (!IsNameOfHistory(name)) continue;
    for (size_t i = 0; i < history.size(); ++i) {
      EXPECT_NEAR(steps.weights.at(name)[i], history[i], kSameNumbers * history[i]) << name;
    }
    histories += name.find(".experts.") != name.npos ? 1 : 0;
  }
  const ModelFacts facts = FactsOf(c.model);
  EXPECT_GE(histories, int(facts.experts->experts) * 6) << "a layer at least";
}

INSTANTIATE_TEST_SUITE_P(
    Families, ScaledExperts,
    ::testing::Combine(::testing::Values("qwen3_moe", "mixtral", "deepseek_v3"),
                       ::testing::ValuesIn(ExpertLayouts())),
    [](const auto& info) { return absl::StrCat(std::get<0>(info.param), "_", info.index); });

// In bf16, as a job of a user: on expert ranks, with ZeRO.
JobConfig ExpertJob(const std::string& directory) {
  JobConfig job = TinyJob(directory);
  auto& [family, fields] = *job.model.architecture;
  family = "qwen3_moe", fields.erase("ffn");
  fields["moe.experts"] = 4, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 16;
  job.precision = PrecisionName::kFP8Delayed;
  job.parallelism.expert = 2;
  job.parallelism.zero = Zero::kFull;
  job.optimizer.options["learning_rate"] = 1e-3;
  job.steps = 4;
  return job;
}

std::vector<double> LossesOf(const std::vector<RankRun>& runs) {
  std::vector<double> losses;
  for (const RankRun& run : runs) EXPECT_TRUE(run.status.ok()) << run.status;
  for (const StepRecord& record : runs[0].records) losses.push_back(record.loss);
  return losses;
}

std::set<std::string> HistoriesOfExperts(const std::string& directory) {
  std::set<std::string> names;
  const Checkpoint checkpoint = Newest(directory);
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    const bool of_experts = tensor.name.find(".experts.") != std::string::npos;
    if (of_experts && IsNameOfHistory(tensor.name)) names.insert(tensor.name);
  }
  return names;
}

TEST(ScaledExpertJobs, LearnByRowsAsWithoutRounding) {
  JobConfig bf16 = ExpertJob(FreshDirectory("experts_wide"));
  bf16.precision = PrecisionName::kBF16;
  JobConfig by_rows = ExpertJob(FreshDirectory("experts_by_rows"));
  by_rows.precision = PrecisionName::kFP8Rowwise;
  const std::vector<double> want = LossesOf(RunJob(bf16, {.ranks = 4}));
  const std::vector<double> losses = LossesOf(RunJob(by_rows, {.ranks = 4}));
  ASSERT_EQ(losses.size(), 4u);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(losses[i], want[i], 0.03 * want[i]) << i;
  EXPECT_NE(losses, want);
}

TEST(ScaledExpertJobs, GoOnToTheBitAndUnderAnotherLayout) {
  const JobConfig job = ExpertJob(FreshDirectory("experts_whole"));
  const std::vector<double> losses = LossesOf(RunJob(job, {.ranks = 4}));
  ASSERT_EQ(losses.size(), 4u);
  JobConfig bf16 = ExpertJob(FreshDirectory("experts_bf16"));
  bf16.precision = PrecisionName::kBF16;
  const std::vector<double> want = LossesOf(RunJob(bf16, {.ranks = 4}));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(losses[i], want[i], 0.03 * want[i]) << i;
  EXPECT_NE(losses, want);

  JobConfig stopped = job;
  stopped.checkpoint->directory = FreshDirectory("experts_stopped");
  const auto until_two = [](int, int64_t step) { return step > 1; };
  RunJob(stopped, {.ranks = 4, .stop = until_two});
  JobConfig moved = job;
  moved.checkpoint->directory = FreshDirectory("experts_moved");
  RunJob(moved, {.ranks = 4, .stop = until_two});
  EXPECT_EQ(LossesOf(RunJob(stopped, {.ranks = 4, .epoch = 2, .resume = true})).size(), 2u);
  EXPECT_EQ(NewestDigest(stopped.checkpoint->directory), NewestDigest(job.checkpoint->directory));

  const std::set<std::string> histories = HistoriesOfExperts(job.checkpoint->directory);
  EXPECT_EQ(histories.size(), 2u * 4 * 6);  // Layers, experts, operands.
  EXPECT_THAT(histories, ::testing::Contains(
                             "model.layers.1.mlp.experts.3.down_proj.weight.amax.output_gradient"));
  moved.parallelism = {.tensor = 2, .zero = Zero::kNone};
  const auto runs = RunJob(moved, {.ranks = 2, .epoch = 2, .resume = true});
  const std::vector<double> rest = LossesOf(runs);
  ASSERT_EQ(rest.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(rest[i], losses[2 + i], 0.01 * losses[2 + i]) << i;
  EXPECT_EQ(HistoriesOfExperts(moved.checkpoint->directory), histories);
}

}  // namespace
}  // namespace trainyard::testing
