// Proves that the precisions in 8 bits train, on ranks that divide the weights and share the state,
// and go on after an attempt ended to the bit; from which parameters such a job may start, and with
// which histories; what `fp8` leaves in bf16; and that a job of any family under any layout either
// is refused with a field, or records.

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "models/arch/registry.h"
#include "models/program/amax_history.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/config/fp8.h"
#include "train/config/precision.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

using enum PrecisionName;

constexpr PrecisionName kEightBits[] = {kFP8Delayed, kFP8Current, kFP8Blockwise, kFP8Rowwise};

// Two tensor ranks have whole blocks of 128.
JobConfig WideJob(PrecisionName precision, const std::string& directory) {
  JobConfig job = TinyJob(directory);
  for (const auto& [field, value] : {std::pair("hidden", 256), std::pair("ffn", 256),
                                     std::pair("heads", 2), std::pair("head_dim", 128)}) {
    job.model.architecture->fields[field] = value;
  }
  job.precision = precision;
  job.optimizer.options["learning_rate"] = 1e-3;
  job.steps = 4;
  return job;
}

std::vector<double> Losses(const std::vector<RankRun>& runs) {
  std::vector<double> losses;
  for (const RankRun& run : runs) EXPECT_TRUE(run.status.ok()) << run.status;
  for (const StepRecord& record : runs[0].records) losses.push_back(record.loss);
  return losses;
}

// The greatest values of a history, of the steps that it has seen.
std::vector<float> Seen(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* const stored = checkpoint.Find(name, TensorKind::kParameter);
  CHECK(stored != nullptr) << name;
  std::vector<float> history(size_t(stored->shape.elements()));
  const TargetBox box{
      name, stored->kind, stored->dtype, stored->shape, WholeBox(stored->shape), history.data()};
  const absl::Status status = checkpoint.Load(std::vector<TargetBox>{box});
  CHECK(status.ok()) << status;
  std::erase(history, 0.0f);
  return history;
}

std::set<std::string> Histories(const Checkpoint& checkpoint) {
  std::set<std::string> names;
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    if (IsNameOfHistory(tensor.name)) names.insert(tensor.name);
  }
  return names;
}

constexpr char kDown[] = "model.layers.1.mlp.down_proj.weight.amax.input";

class Fp8Jobs : public ::testing::TestWithParam<PrecisionName> {};

TEST_P(Fp8Jobs, TensorRanksWithZeroFullTrainAndGoOnToTheBit) {
  JobConfig job = WideJob(GetParam(), FreshDirectory("fp8_job"));
  job.parallelism.tensor = 2;
  job.parallelism.zero = Zero::kFull;
  const std::vector<double> losses = Losses(RunJob(job, {.ranks = 4}));
  ASSERT_EQ(losses.size(), 4u);
  JobConfig bf16 = WideJob(kBF16, FreshDirectory("fp8_bf16"));
  const std::vector<double> want = Losses(RunJob(bf16));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(losses[i], want[i], 0.03 * want[i]) << i;
  EXPECT_NE(losses, want);

  JobConfig stopped = job;
  stopped.checkpoint->directory = FreshDirectory("fp8_stopped");
  RunJob(stopped, {.ranks = 4, .stop = [](int, int64_t step) { return step > 1; }});
  EXPECT_EQ(Losses(RunJob(stopped, {.ranks = 4, .epoch = 2, .resume = true})).size(), 2u);
  EXPECT_EQ(NewestDigest(stopped.checkpoint->directory), NewestDigest(job.checkpoint->directory));
}

// Bug it must catch: a history that begins anew, or that a rank reads from another's place.
TEST_P(Fp8Jobs, OtherLayoutsAndPipelinesGoOnWithTheSameHistories) {
  JobConfig job = WideJob(GetParam(), FreshDirectory("fp8_layouts"));
  job.parallelism.tensor = 2;
  RunJob(job, {.ranks = 2, .stop = [](int, int64_t step) { return step > 1; }});
  const std::set<std::string> histories = Histories(Newest(job.checkpoint->directory));
  EXPECT_EQ(histories.size(), GetParam() == kFP8Delayed ? 2u * 4 * 3 : 0u);
  JobConfig same = job;
  same.checkpoint->directory = FreshDirectory("fp8_same_layout");
  RunJob(same, {.ranks = 2, .stop = [](int, int64_t step) { return step > 1; }});
  const std::vector<double> kept = Losses(RunJob(same, {.ranks = 2, .epoch = 2, .resume = true}));
  ASSERT_EQ(kept.size(), 2u);
  job.parallelism = {.pipeline = 2, .zero = Zero::kNone};
  job.recompute.blocks = 1;
  const std::vector<double> losses = Losses(RunJob(job, {.ranks = 2, .epoch = 2, .resume = true}));
  ASSERT_EQ(losses.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(losses[i], kept[i], 0.01 * kept[i]) << i;
  const Checkpoint end = Newest(job.checkpoint->directory);
  EXPECT_EQ(Histories(end), histories);
  if (!histories.empty()) {
    EXPECT_EQ(Seen(end, kDown).size(), 4u);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Fp8Jobs, ::testing::ValuesIn(kEightBits),
                         [](const auto& info) { return std::string(Name(info.param)); });

class Fp8Starts : public ::testing::Test {
 protected:
  // A run in this precision of `steps` steps. Returns its directory.
  std::string Trained(PrecisionName precision, int64_t steps, const std::string& from = "") {
    JobConfig job = WideJob(precision, FreshDirectory(std::string("from_") + Name(precision)));
    job.steps = steps;
    job.init_from = from;
    EXPECT_EQ(Losses(RunJob(job)).size(), size_t(steps));
    return job.checkpoint->directory;
  }
};

TEST_F(Fp8Starts, WithTheParametersOfAnyPrecisionAndHistoriesOfItsOwn) {
  const std::string bf16 = Trained(kBF16, 3);
  const std::string delayed = Trained(kFP8Delayed, 2, bf16);
  EXPECT_EQ(Seen(Newest(delayed), kDown).size(), 2u);
  JobConfig again = WideJob(kFP8Delayed, FreshDirectory("again"));
  again.steps = 1;
  again.init_from = delayed;
  EXPECT_EQ(Losses(RunJob(again)).size(), 1u);
  EXPECT_EQ(Seen(Newest(again.checkpoint->directory), kDown).size(), 1u);
  const std::string wide = Trained(kBF16, 1, delayed);
  EXPECT_THAT(Histories(Newest(wide)), ::testing::IsEmpty());
}

// A run goes on in another precision: what the checkpoint lacks begins anew.
TEST_F(Fp8Starts, ARunGoesOnInAnotherPrecision) {
  JobConfig job = WideJob(kBF16, FreshDirectory("goes_on"));
  job.steps = 2;
  EXPECT_EQ(Losses(RunJob(job)).size(), 2u);
  int64_t epoch = 1;
  for (const PrecisionName precision : {kFP8Delayed, kFP8Rowwise, kFP8Delayed}) {
    job.precision = precision;
    job.steps += 2;
    const auto runs = RunJob(job, {.ranks = 1, .epoch = ++epoch, .resume = true});
    EXPECT_EQ(Losses(runs).size(), 2u) << Name(precision);
  }
  EXPECT_EQ(Seen(Newest(job.checkpoint->directory), kDown).size(), 2u);
}

// The products that are in 8 bits, of a job of four layers.
std::set<std::string> Rounded(JobConfig job, int64_t first, int64_t last) {
  job.model.architecture->fields["layers"] = 4;
  job.fp8 = Fp8Config{.first_layers_in_bf16 = first, .last_layers_in_bf16 = last};
  job.parallelism.tensor = 2;
  job.devices = 2;
  Violations violations;
  Validate(job, violations);
  EXPECT_TRUE(violations.empty()) << violations.ToStatus();
  const absl::StatusOr<ModelConfig> model = ResolveModel(job.model);
  const absl::StatusOr<RankPlan> plan = PlanRank(job, *model, 0, DeviceKind::kCpu, {});
  CHECK(plan.ok()) << plan.status();
  std::set<std::string> names;
  for (const ParameterBox& box : plan->program.Parameters()) {
    const size_t end = box.name.find(kOfAmax);
    if (end != box.name.npos) names.insert(box.name.substr(0, end));
  }
  return names;
}

TEST(Fp8, LeavesLayersAtBothEndsInBf16) {
  const JobConfig job = WideJob(kFP8Delayed, "runs");
  EXPECT_EQ(Rounded(job, 0, 0).size(), 4u * 4);
  const std::set<std::string> inner = Rounded(job, 1, 2);
  EXPECT_EQ(inner.size(), 4u);
  for (const std::string& name : inner) EXPECT_TRUE(absl::StartsWith(name, "model.layers.1."));
}

TEST(Fp8, AdaptersStayInBf16BesideABaseInEightBits) {
  JobConfig job = WideJob(kFP8Delayed, "runs");
  job.init_from = "base";
  // The second product of magnitudes with dropout would need a second history of the weight.
  for (const LoraConfig& lora : {LoraConfig{}, LoraConfig{.dora = true, .dropout = 0.1}}) {
    job.adapter = AdapterConfig{.lora = lora};
    const std::set<std::string> names = Rounded(job, 0, 0);
    EXPECT_EQ(names.size(), 4u * 4);
    for (const std::string& name : names) EXPECT_FALSE(IsLowRank(name)) << name;
  }
}

class Fp8Families : public ::testing::TestWithParam<std::string> {};

// Bug it must catch: a layout that ends a rank with a failed check instead of a job with a word.
TEST_P(Fp8Families, EveryLayoutIsRefusedWithAFieldOrRecords) {
  int refused = 0, recorded = 0;
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{}, ParallelismConfig{.tensor = 2}, ParallelismConfig{.tensor = 4},
        ParallelismConfig{.context = 2}, ParallelismConfig{.pipeline = 2}}) {
    for (const PrecisionName precision : kEightBits) {
      LayoutCase c = MakeLayoutCase(GetParam(), parallelism, 1);
      c.job.precision = precision;
      Violations violations;
      ValidateFp8(c.job, &c.model, violations);
      for (const FieldViolation& violation : violations.list()) {
        const bool shared = absl::StrContains(violation.wanted, "at most kv_heads");
        EXPECT_TRUE(shared || precision == kFP8Blockwise) << violation.ToString();
        EXPECT_TRUE(violation.field == "parallelism.tensor" ||
                    violation.field == "batch.sequence" || violation.field == "parallelism.context")
            << violation.ToString();
      }
      ++(violations.empty() ? recorded : refused);
      for (int rank = 0; violations.empty() && rank < int(c.job.devices); ++rank) {
        const auto plan = PlanRank(c.job, c.model, rank, DeviceKind::kCpu, {});
        EXPECT_TRUE(plan.ok()) << plan.status();
      }
    }
  }
  EXPECT_GE(recorded, 4 * 3 - 1);  // Four tensor ranks may share keys.
  EXPECT_GE(refused, 2);           // Tiny models have no whole blocks of 128 for several ranks.
}

INSTANTIATE_TEST_SUITE_P(Families, Fp8Families, ::testing::ValuesIn(FamilyNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
