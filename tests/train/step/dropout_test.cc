// Proves training with dropout: every layout drops what one rank drops, with and without
// recomputation; an interrupted job ends with the bits of an uninterrupted one; and nothing is
// dropped in validation.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "models/arch/registry.h"
#include "models/program/op.h"
#include "tests/models/tiny.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

constexpr double kTolerance = 1e-10;

// --- Layouts.

LayoutCase WithDropout(const std::string& model, const ParallelismConfig& parallelism,
                       int64_t data = 1) {
  LayoutCase c = MakeLayoutCase(model, parallelism, data);
  AsDecoder(c.model).attention_dropout = 0.3;
  AsDecoder(c.model).hidden_dropout = 0.2;
  return c;
}

std::vector<LayoutCase> Cases() {
  constexpr auto kGather = ContextExchange::kAllGather;
  std::vector<LayoutCase> cases;
  for (const char* model : {"gpt3", "llama", "gpt_oss", "deepseek_v3", "gemma3"}) {
    cases.push_back(WithDropout(model, {}, 2));
    cases.push_back(WithDropout(model, {.zero = Zero::kFull}, 2));
    cases.push_back(WithDropout(model, {.tensor = 2}));
    cases.push_back(WithDropout(model, {.tensor = 4}));
    cases.push_back(WithDropout(model, {.context = 2}, 2));
    cases.push_back(WithDropout(model, {.tensor = 2, .context = 2}));
    cases.back().job.recompute = {.norms_and_activations = true};
    cases.push_back(WithDropout(model, {.context = 3, .context_exchange = kGather}));
    cases.push_back(WithDropout(model, {.pipeline = 2, .virtual_pipeline = 2}));
    cases.push_back(WithDropout(model, {.pipeline = 2, .zero = Zero::kFull}, 2));
    cases.back().job.recompute = {.blocks = 2, .norms_and_activations = true};
  }
  return cases;
}

class DropoutLayouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(DropoutLayouts, StepsEqualThoseOfOneRank) {
  const LayoutCase layout = HeldUp(GetParam());
  const TrainedSteps one = TrainOnOneRank(layout);
  EXPECT_LT(LargestDifference(Train(layout), one), kTolerance);
  for (double DecoderConfig::*const dropout :
       {&DecoderConfig::attention_dropout, &DecoderConfig::hidden_dropout}) {
    LayoutCase less = layout;
    AsDecoder(less.model).*dropout = 0;
    EXPECT_GT(LargestDifference(TrainOnOneRank(less), one), 1e-6) << "dropout makes no difference";
  }
}
INSTANTIATE_TEST_SUITE_P(Some, DropoutLayouts, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name(); });

// Embedding, and the outputs and weights of attention and MLPs in every layer.
TEST(Dropout, HasAStreamOfItsOwnAtEveryPlace) {
  const LayoutCase c = WithDropout("llama", {});
  const Program program =
      RecordTraining(*CreateModel(c.model),
                     {.record = {.precision = Precision::F64(), .sequence = c.job.batch.sequence}});
  std::set<std::string> streams;
  int places = 0;
  for (const Instance& instance : program.instances) {
    if (instance.list != List::kForward || instance.op->name() != "dropout") continue;
    streams.insert(instance.op->attributes());
    ++places;
  }
  EXPECT_EQ(places, 1 + 2 * AsDecoder(c.model).layers);
  EXPECT_EQ(streams.size(), size_t(places));
}

// AdaptedLayouts has the layouts.
TEST(Dropout, OfAdaptersMakesADifferenceAtEachAdapter) {
  LayoutCase c = MakeLayoutCase("llama", {}, 1);
  c.job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2, .dropout = 0.3}};
  LayoutCase none = c;
  none.job.adapter->lora->dropout = 0;
  EXPECT_GT(LargestDifference(TrainOnOneRank(none), TrainOnOneRank(c)), 1e-6);
  std::set<std::string> streams;
  const RankPlan plan = *PlanRank(c.job, c.model, 0, DeviceKind::kCpu);
  for (const Instance& instance : plan.program.instances) {
    if (instance.op->name() == "dropout" && instance.list == List::kForward) {
      streams.insert(instance.op->attributes());
    }
  }
  // Query with key and value, output, gate with up, down.
  EXPECT_EQ(int64_t(streams.size()), 4 * AsDecoder(c.model).layers);
}

// --- Jobs.

JobConfig JobOf(const std::string& directory, double dropout) {
  JobConfig job = TinyJob(directory);
  job.steps = 4;
  if (dropout > 0) {
    job.model.architecture->fields["attention_dropout"] = dropout;
    job.model.architecture->fields["hidden_dropout"] = dropout;
  }
  return job;
}

TEST(DropoutJobs, AnInterruptedOneEndsWithTheSameBits) {
  const std::string whole = FreshDirectory("dropout_whole");
  ASSERT_TRUE(RunJob(JobOf(whole, 0.1))[0].status.ok());
  const std::string parts = FreshDirectory("dropout_parts");
  RunJob(JobOf(parts, 0.1), {.stop = [](int, int64_t step) { return step == 2; }});
  const auto second = RunJob(JobOf(parts, 0.1), {.epoch = 2, .resume = true});
  ASSERT_TRUE(second[0].status.ok()) << second[0].status;
  EXPECT_EQ(second[0].records.front().step, 3);
  EXPECT_EQ(NewestDigest(parts), NewestDigest(whole));

  JobConfig again = JobOf(FreshDirectory("dropout_again"), 0.1);
  again.recompute = {.blocks = 2, .norms_and_activations = true};
  ASSERT_TRUE(RunJob(again)[0].status.ok());
  EXPECT_EQ(NewestDigest(again.checkpoint->directory), NewestDigest(whole)) << "recomputed";

  const std::string none = FreshDirectory("dropout_none");
  ASSERT_TRUE(RunJob(JobOf(none, 0))[0].status.ok());
  EXPECT_NE(NewestDigest(none), NewestDigest(whole));
}

// Catches samples that a job numbers within a rank or a micro-batch.
TEST(DropoutJobs, AreTheSameForEveryGangAndMicroBatch) {
  JobConfig job = JobOf("", 0.2);
  job.checkpoint.reset();
  const RankRun alone = RunJob(job)[0];
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  const struct {
    int ranks;
    int64_t micro;
    ParallelismConfig parallelism;
  } gangs[] = {{1, 4, {}}, {2, 1, {}}, {2, 2, {.tensor = 2}}, {4, 1, {.context = 2}}};
  for (const auto& [ranks, micro, parallelism] : gangs) {
    JobConfig divided = job;
    divided.batch.micro = micro;
    divided.parallelism = parallelism;
    for (const RankRun& run : RunJob(divided, {.ranks = ranks})) {
      ASSERT_TRUE(run.status.ok()) << run.status;
      for (size_t step = 0; step < alone.records.size(); ++step) {
        const double want = alone.records[step].loss;
        EXPECT_NEAR(run.records[step].loss, want, kTolerance * want) << ranks << " x " << micro;
      }
    }
  }
}

// The rate is so small that both jobs keep their first weights.
TEST(DropoutJobs, ValidateWithoutDropout) {
  std::vector<StepRecord> last;
  for (const double dropout : {0.0, 0.5}) {
    JobConfig job = JobOf("", dropout);
    job.checkpoint.reset();
    job.optimizer.options["learning_rate"] = 1e-30;
    job.validation = ValidationConfig{.every_steps = 4, .batches = 2};
    const auto runs = RunJob(job, {.ranks = 2});
    ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
    last.push_back(runs[0].records.back());
  }
  ASSERT_TRUE(last[0].validation_loss && last[1].validation_loss);
  EXPECT_NEAR(*last[0].validation_loss, *last[1].validation_loss, 1e-12);
  EXPECT_GT(std::abs(last[0].loss - last[1].loss), 1e-6);
}

}  // namespace
}  // namespace trainyard::testing
