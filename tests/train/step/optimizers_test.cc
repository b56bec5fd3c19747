// Proves that each optimizer besides the first, with which all other tests train, trains under
// every layout as on one rank, resumes to the bit, and saves the state that it declares.

#include <gmock/gmock.h>

#include <set>

#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

std::vector<const Optimizer*> Others() {
  const auto all = Optimizers();
  return {all.begin() + 1, all.end()};
}

class OptimizerLayouts : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(OptimizerLayouts, StepsEqualThoseOfOneRank) {
  const LayoutCase layout = HeldUp(GetParam());
  EXPECT_LT(LargestDifference(Train(layout), TrainOnOneRank(layout)), 1e-10);
}

// Lion trains no family with biases of keys: their gradient is 0 but for rounding, which Lion makes
// as large as any other.
std::vector<LayoutCase> OptimizerCases() {
  std::vector<LayoutCase> cases;
  for (const Optimizer* const optimizer : Others()) {
    for (const char* family : {"llama", "qwen3_moe", "gpt3"}) {
      OptimizerOptions options(*optimizer);
      if (optimizer == &MuonOptimizer()) {
        options["epsilon"] = 1e-3;  // AdamW amplifies rounding where gradients are near zero.
      } else if (family == std::string("gpt3")) {
        continue;
      }
      for (LayoutCase& c : SomeLayouts(family)) {
        c.job.optimizer.options = options;
        c.learning_rate = 1e-3;
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Others, OptimizerLayouts, ::testing::ValuesIn(OptimizerCases()),
                         [](const auto& info) {
                           return info.param.job.optimizer.options.optimizer().name +
                                  ("_" + info.param.name());
                         });

class OptimizerJobs : public ::testing::TestWithParam<const Optimizer*> {
 protected:
  JobConfig Job(const std::string& directory) const {
    JobConfig job = TinyJob(FreshDirectory(directory));
    job.optimizer.options = {*GetParam(), {{"learning_rate", 1e-3}}};
    job.steps = 4;
    return job;
  }
};

TEST_P(OptimizerJobs, ResumeWithTheSameBits) {
  const JobConfig whole = Job("optimizer_whole");
  for (const RankRun& run : RunJob(whole, {.ranks = 2})) ASSERT_TRUE(run.status.ok());
  const JobConfig interrupted = Job("optimizer_interrupted");
  const auto first =
      RunJob(interrupted, {.ranks = 2, .stop = [](int, int64_t step) { return step == 2; }});
  ASSERT_EQ(first[0].result.step, 2);
  const auto second = RunJob(interrupted, {.ranks = 2, .epoch = 2, .resume = true});
  ASSERT_TRUE(second[0].status.ok()) << second[0].status;
  EXPECT_EQ(second[0].records.front().step, 3);
  EXPECT_EQ(NewestDigest(interrupted.checkpoint->directory),
            NewestDigest(whole.checkpoint->directory));
}

TEST_P(OptimizerJobs, SaveTheStateThatIsDeclared) {
  const JobConfig job = Job("optimizer_saved");
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  std::set<std::string> kinds, want = {"parameter"};
  const Checkpoint checkpoint = Newest(job.checkpoint->directory);
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) kinds.insert(Name(tensor.kind));
  for (const FlatBuffer state : GetParam()->states) {
    want.insert(state == FlatBuffer::kFirstMoment ? "m" : "v");
  }
  EXPECT_EQ(kinds, want);
}

// All parameters of the job are in one bucket, whose shards end within matrices.
TEST(MuonJobs, MatricesThatCrossShardsAreUpdatedAsOnOneRank) {
  const auto losses = [](int ranks, Zero zero) {
    JobConfig job = TinyJob(FreshDirectory("muon_shards"));
    job.optimizer.options = {MuonOptimizer(), {{"learning_rate", 1e-2}, {"epsilon", 1e-3}}};
    job.parallelism.zero = zero;
    job.steps = 4;
    const std::vector<RankRun> runs = RunJob(job, {.ranks = ranks});
    EXPECT_TRUE(runs[0].status.ok()) << runs[0].status;
    std::vector<double> values;
    for (const StepRecord& record : runs[0].records) values.push_back(record.loss);
    return values;
  };
  const std::vector<double> want = losses(1, Zero::kNone);
  ASSERT_EQ(want.size(), 4u);
  for (const int ranks : {2, 4}) {
    for (const Zero zero : {Zero::kOptimizer, Zero::kFull}) {
      EXPECT_THAT(losses(ranks, zero), ::testing::Pointwise(::testing::DoubleNear(1e-10), want))
          << ranks << " ranks";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Others, OptimizerJobs, ::testing::ValuesIn(Others()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace trainyard::testing
