// Proves the training loop on ranks that hold different parts of the model, two pipeline stages of
// two tensor ranks each, and of two data ranks each as a V: validation is that of one rank, an
// update that one rank finds not finite is tried again by all, and a run that is interrupted ends
// with the same bits. Catches decisions that one stage takes alone, and state that only the first
// rank's part of a checkpoint has.

#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/train/step/run_job.h"

namespace trainyard {
namespace {

using testing::FreshDirectory;
using testing::NewestDigest;
using testing::RankRun;
using testing::RunJob;
using testing::RunOptions;
using testing::TinyJob;

constexpr int kRanks = 4;
constexpr int64_t kSteps = 5;

JobConfig Divided(const std::string& name) {
  JobConfig job = TinyJob(FreshDirectory(name));
  job.parallelism = {.tensor = 2, .pipeline = 2};
  job.batch = {.global = 8, .micro = 2, .sequence = 12};
  job.steps = kSteps;
  job.validation = ValidationConfig{.every_steps = 2, .batches = 2};
  return job;
}

// By step, of every record that has one.
std::map<int64_t, double> ValidationLosses(const RankRun& run) {
  std::map<int64_t, double> losses;
  for (const StepRecord& r : run.records) {
    if (r.validation_loss) losses[r.step] = *r.validation_loss;
  }
  return losses;
}

struct Ended {
  std::string digest;
  std::map<int64_t, double> validation;
};

// Expects a whole run that all ranks tell alike.
Ended RunToTheEnd(const JobConfig& job, const RunOptions& options) {
  const auto runs = RunJob(job, options);
  for (const RankRun& run : runs) {
    EXPECT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.result.outcome, Outcome::kCompleted);
    EXPECT_EQ(ValidationLosses(run), ValidationLosses(runs[0]));
    for (const StepRecord& r : run.records) EXPECT_FALSE(r.skipped);
  }
  return {NewestDigest(job.checkpoint->directory), ValidationLosses(runs[0])};
}

Ended Undisturbed() { return RunToTheEnd(Divided("divided_undisturbed"), {.ranks = kRanks}); }

// Two ranks each for the data. The model's ends are on one stage, the two parts between on another.
JobConfig AsAV(const std::string& name) {
  JobConfig job = Divided(name);
  job.parallelism = {.pipeline = 2, .virtual_pipeline = 2, .schedule = FindSchedule("V_HALF")};
  return job;
}

TEST(DividedTrainer, ValidatesAsOneRankDoes) {
  JobConfig one = Divided("divided_one");
  one.parallelism = {};
  const Ended want = RunToTheEnd(one, {.ranks = 1});
  for (const JobConfig& job : {Divided("divided_validates"), AsAV("divided_validates_v")}) {
    const Ended got = RunToTheEnd(job, {.ranks = kRanks});
    ASSERT_EQ(got.validation.size(), 3u);
    for (const auto& [step, loss] : want.validation) {
      EXPECT_NEAR(got.validation.at(step), loss, 1e-10) << step;
    }
  }
}

TEST(DividedTrainer, WhatOneRankFindsNotFiniteAllTryAgain) {
  const Ended want = Undisturbed();
  for (int culprit = 0; culprit < kRanks; ++culprit) {
    SCOPED_TRACE(culprit);
    std::atomic<int> attempts = 0;
    const Ended got =
        RunToTheEnd(Divided("divided_nan"),
                    {.ranks = kRanks,
                     .before_attempt = [&](int rank, int64_t step, int attempt, StepState& state) {
                       if (step != 3) return;
                       ++attempts;
                       if (rank == culprit && attempt == 0) {
                         state.loss_scale = std::numeric_limits<double>::quiet_NaN();
                       }
                     }});
    EXPECT_EQ(got.digest, want.digest);
    EXPECT_EQ(got.validation, want.validation);
    // The loss is the last stage's: what another multiplies by it nobody reads.
    EXPECT_EQ(attempts, culprit >= 2 ? 2 * kRanks : kRanks);
  }
}

TEST(DividedTrainer, ResumesFromEveryStepToTheSameBits) {
  for (const auto& make : {Divided, AsAV}) {
    const Ended want = RunToTheEnd(make("divided_undisturbed"), {.ranks = kRanks});
    for (int64_t k = 1; k < kSteps; ++k) {
      const JobConfig job = make("divided_interrupted");
      SCOPED_TRACE(absl::StrCat(job.parallelism.schedule_kind()->name, ", step ", k));
      const auto first = RunJob(job, {.ranks = kRanks, .stop = [&](int rank, int64_t step) {
                                        return rank == 3 && step == k;
                                      }});
      for (const RankRun& run : first) {
        EXPECT_EQ(run.result.outcome, Outcome::kStopped);
        EXPECT_EQ(run.result.step, k);
      }
      const Ended got = RunToTheEnd(job, {.ranks = kRanks, .epoch = 2, .resume = true});
      EXPECT_EQ(got.digest, want.digest);
      for (const auto& [step, loss] : got.validation) EXPECT_EQ(want.validation.at(step), loss);
    }
  }
}

}  // namespace
}  // namespace trainyard
