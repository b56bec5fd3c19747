// Proves that what a rank process runs, the trainer with its communication threads over Gloo,
// trains as one rank does while communication takes as long as it may and goes on into the next
// step. Under the thread sanitizer (scripts/sanitize.sh) it proves more: no two threads use the
// same memory without one having waited for the other, whether or not a wrong number comes of it.

#include <gmock/gmock.h>

#include <cmath>

#include "models/arch/decoder_config.h"
#include "tests/kernels/collective/worlds.h"
#include "tests/testing/printed_seed.h"
#include "tests/train/step/held_up.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

constexpr int kRanks = 4;
constexpr double kTolerance = 1e-10;

struct Case {
  std::string name;
  ParallelismConfig parallelism;
  bool tied = false;
  bool experts = false;
  std::vector<std::string> trainable = {};
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

JobConfig JobOf(const Case& c) {
  JobConfig job = TinyJob(FreshDirectory("gloo_" + c.name));
  GivenModel& model = *job.model.architecture;
  if (c.tied) model.fields["tied"] = true;
  if (c.experts) {
    model.family = "qwen3_moe";
    model.fields.erase("ffn");
    model.fields["moe.experts"] = int64_t{8};
    model.fields["moe.top_k"] = int64_t{2};
    model.fields["moe.expert_ffn"] = int64_t{8};
    model.fields["moe.aux_loss"] = 0.0;  // Which would depend on the ranks of a micro-batch.
  }
  job.parallelism = c.parallelism;
  job.trainable = c.trainable;
  job.steps = 6;
  job.validation = ValidationConfig{.every_steps = 3, .batches = 1};
  return job;
}

struct Trained {
  std::vector<double> losses, validation_losses, norms;
};

Trained Train(const JobConfig& job, const RunOptions& options) {
  Trained trained;
  const std::vector<RankRun> runs = RunJob(job, options);
  for (const RankRun& run : runs) {
    EXPECT_TRUE(run.status.ok() && run.thrown.empty()) << run.status << run.thrown;
  }
  for (const StepRecord& record : runs[0].records) {
    trained.losses.push_back(record.loss);
    trained.norms.push_back(record.grad_norm);
    if (record.validation_loss) trained.validation_losses.push_back(*record.validation_loss);
  }
  return trained;
}

std::vector<Case> Cases() {
  const auto stages = [](const char* schedule, int64_t chunks) {
    return ParallelismConfig{
        .pipeline = 2, .virtual_pipeline = chunks, .schedule = FindSchedule(schedule)};
  };
  return {
      {"tied_stages", stages("ONE_F_ONE_B", 1), /*tied=*/true},
      {"tied_interleaved", stages("INTERLEAVED_ONE_F_ONE_B", 2), /*tied=*/true},
      {"tied_zero_bubble", stages("ZERO_BUBBLE", 1), /*tied=*/true},
      {"v_zb", stages("V_ZB", 2)},
      {"head_alone", {}, false, false, {"lm_head.weight"}},
      {"norms_alone", {.pipeline = 2}, false, false, {"*norm*"}},
      {"tied_full", {.pipeline = 2, .zero = Zero::kFull}, /*tied=*/true},
      {"full", {.zero = Zero::kFull}},
      {"none", {.tensor = 2, .zero = Zero::kNone}},
      {"ring", {.context = 2}},
      {"experts", {.expert = 2}, false, /*experts=*/true},
      {"experts_full", {.tensor = 2, .expert = 2, .zero = Zero::kFull}, false, /*experts=*/true},
  };
}

class GlooLayouts : public ::testing::TestWithParam<Case> {};

TEST_P(GlooLayouts, TrainAsOneRank) {
  const JobConfig job = JobOf(GetParam());
  JobConfig alone = job;
  alone.parallelism = {};
  alone.checkpoint->directory = FreshDirectory("gloo_one");
  const Trained one = Train(alone, {});

  const GlooThreads gloo(kRanks);
  const auto hold_up = [](CollectiveWorld& world) -> std::unique_ptr<CollectiveWorld> {
    return std::make_unique<HeldUpWorld>(world, PrintedSeed());
  };
  const Trained got = Train(job, {.ranks = kRanks, .worlds = gloo.worlds(), .around = hold_up});
  ASSERT_EQ(got.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], one.losses[i], kTolerance) << "step " << i + 1;
    EXPECT_NEAR(got.norms[i], one.norms[i], kTolerance) << "step " << i + 1;
  }
  ASSERT_EQ(got.validation_losses.size(), 2u);
  EXPECT_THAT(got.validation_losses,
              ::testing::Pointwise(::testing::DoubleNear(kTolerance), one.validation_losses));
  EXPECT_LT(
      LargestDifference(Newest(job.checkpoint->directory), Newest(alone.checkpoint->directory)),
      kTolerance);
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Some, GlooLayouts, ::testing::ValuesIn(Cases()), NameOf);

}  // namespace
}  // namespace trainyard::testing
