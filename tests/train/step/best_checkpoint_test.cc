// Proves what a job with checkpoint.keep_best leaves in its directory: the newest checkpoints and
// the best state that it has measured, also after a kill and after steps that were lost.

#include <gmock/gmock.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>

#include "tests/train/step/run_job.h"
#include "train/checkpoint/best.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/paths.h"
#include "train/trainer/reported_checkpoints.h"
#include "train/trainer/validation.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kBest = 6;  // No multiple of every_steps, and none of the newest.

// From step kBest on the job unlearns what it has learnt.
void Unlearn(int /*rank*/, int64_t step, int /*attempt*/, StepState& state) {
  if (step > kBest) state.learning_rate *= -1;
}

JobConfig Job(const std::string& name) {
  JobConfig job = TinyJob(FreshDirectory(name));
  job.steps = 12;
  job.validation = ValidationConfig{.every_steps = 1, .batches = 2};
  job.checkpoint->every_steps = 4;
  job.checkpoint->keep = 2;
  job.checkpoint->keep_best = 1;
  return job;
}

std::map<int64_t, double> Losses(const RankRun& run) {
  std::map<int64_t, double> losses;
  for (const StepRecord& r : run.records) {
    if (r.validation_loss) losses[int64_t(r.step)] = *r.validation_loss;
  }
  return losses;
}

int64_t StepOfLowest(const std::map<int64_t, double>& losses) {
  return std::min_element(losses.begin(), losses.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::vector<int64_t> Steps(const std::string& directory) {
  std::vector<int64_t> steps;
  const std::vector<ListedCheckpoint> listed = ListCheckpoints(directory).value();
  for (const ListedCheckpoint& c : listed) steps.push_back(c.step);
  return steps;
}

RunState BestState(const std::string& directory) {
  const auto found = FindCheckpoint(directory + "/best");
  CHECK(found.ok()) << found.status();
  return found->checkpoint->state();
}

TEST(KeepBest, KeepsTheBestStateThatWasMeasuredBesideTheNewest) {
  for (const int ranks : {1, 2}) {
    const JobConfig job = Job(absl::StrCat("keeps_best_", ranks));
    const RankRun run = RunJob(job, {.ranks = ranks, .before_attempt = Unlearn})[0];
    ASSERT_TRUE(run.status.ok()) << run.status;
    const std::map<int64_t, double> losses = Losses(run);
    ASSERT_EQ(StepOfLowest(losses), kBest);
    EXPECT_THAT(Steps(job.checkpoint->directory), ElementsAre(12, 8, kBest));
    const RunState state = BestState(job.checkpoint->directory);
    EXPECT_EQ(state.step, kBest);
    ASSERT_TRUE(state.validation);
    EXPECT_EQ(state.validation->loss, losses.at(kBest));
    EXPECT_EQ(state.validation->measure, ValidationMeasure(job));
    EXPECT_FALSE(run.start.best);
    for (const CheckpointRecord& saved : run.checkpoints) {
      const int64_t best = std::min(int64_t(saved.step), kBest);
      EXPECT_EQ(saved.best, (BestCheckpoint{1, uint64_t(best), losses.at(best)})) << saved.step;
    }
  }
}

// Counts how often the manifest of a checkpoint is opened. The kernel joins equal events, but each
// opening of a checkpoint looks at the file of a rank after the manifest.
class OpeningsOf {
 public:
  explicit OpeningsOf(const std::string& checkpoint) : events_(::inotify_init1(IN_NONBLOCK)) {
    CHECK(::inotify_add_watch(events_, checkpoint.c_str(), IN_OPEN) >= 0) << checkpoint;
  }
  ~OpeningsOf() { ::close(events_); }
  OpeningsOf(const OpeningsOf&) = delete;
  OpeningsOf& operator=(const OpeningsOf&) = delete;

  // Since the last call.
  int Count() {
    int count = 0;
    alignas(inotify_event) char buffer[4096];
    for (ssize_t bytes = 0; (bytes = ::read(events_, buffer, sizeof(buffer))) > 0;) {
      for (ssize_t at = 0; at < bytes;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        count += event->len > 0 && event->name == std::string(kManifestName);
        at += ssize_t(sizeof(inotify_event) + event->len);
      }
    }
    return count;
  }

 private:
  const int events_;
};

// Step 6 is among the best, so it is saved, others are removed, and the best one is reported. Step
// 8 is saved as one of every_steps. Step 7 is only measured. Bug it must catch: each of those who
// ask opens all checkpoints, whose manifests have megabytes in a large job.
TEST(KeepBest, EachStepOpensACheckpointOnce) {
  const JobConfig job = Job("opens_once");
  std::unique_ptr<OpeningsOf> openings;
  std::vector<int> counts;
  const auto count = [&](int rank, int64_t step, int attempt, StepState& state) {
    Unlearn(rank, step, attempt, state);
    if (openings) counts.push_back(openings->Count());
    if (step != kBest) return;
    openings = std::make_unique<OpeningsOf>(CheckpointPath(job.checkpoint->directory, 1, 5));
  };
  const RankRun run = RunJob(job, {.before_attempt = count})[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(counts.size(), 6u);
  EXPECT_EQ(std::vector<int>(counts.begin(), counts.begin() + 3), (std::vector<int>{1, 1, 1}));
  // At the start of an attempt, too.
  openings = std::make_unique<OpeningsOf>(CheckpointPath(job.checkpoint->directory, 1, 8));
  OpenedCheckpoints opened;
  EXPECT_EQ(ReportLoadable(job.checkpoint->directory, opened).size(), 3u);
  EXPECT_TRUE(ReportBest(job.checkpoint->directory, opened));
  EXPECT_EQ(openings->Count(), 1);
}

// The same job without the field: what stored jobs mean does not change.
TEST(KeepBest, JobWithoutTheFieldMakesNoOtherCheckpoints) {
  JobConfig job = Job("keeps_newest");
  job.checkpoint->keep_best = 0;
  const RankRun run = RunJob(job, {.before_attempt = Unlearn})[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.checkpoints.size(), 3u);
  EXPECT_FALSE(run.checkpoints.back().best);
  EXPECT_THAT(Steps(job.checkpoint->directory), ElementsAre(12, 8));
}

// A kill after step 10: the next attempt goes on from step 8 and has never seen the best loss.
TEST(KeepBest, AttemptAfterAKillKnowsTheBest) {
  const JobConfig job = Job("best_after_kill");
  const std::string directory = job.checkpoint->directory;
  const auto die = [](int rank, int64_t step, int attempt, StepState& state) {
    Unlearn(rank, step, attempt, state);
    if (step == 11) throw DeviceError(DeviceError::Kind::kDevice, "killed");
  };
  const RankRun first = RunJob(job, {.before_attempt = die})[0];
  ASSERT_EQ(first.thrown.substr(0, 6), "killed");
  ASSERT_EQ(StepOfLowest(Losses(first)), kBest);
  const RankRun second = RunJob(job, {.epoch = 2, .resume = true, .before_attempt = Unlearn})[0];
  ASSERT_TRUE(second.status.ok()) << second.status;
  EXPECT_EQ(second.start.step, 8);
  const BestCheckpoint best = {1, kBest, Losses(first).at(kBest)};
  EXPECT_EQ(second.start.best, best);
  EXPECT_EQ(second.checkpoints.back().best, best);
  EXPECT_THAT(Steps(directory), ElementsAre(12, 8, kBest));
  EXPECT_EQ(BestState(directory).step, kBest);
  EXPECT_EQ(second.checkpoints.size(), 1u) << "nothing after step 8 was better";
}

// The checkpoints of step 8 and of the best step are damaged: the next attempt goes on from step 5,
// which was the best one before.
TEST(KeepBest, BestOfStepsThatWereLostIsForgotten) {
  JobConfig job = Job("best_lost");
  const std::string directory = job.checkpoint->directory;
  job.checkpoint->keep = 3;
  job.steps = 8;
  const RankRun first = RunJob(job, {.before_attempt = Unlearn})[0];
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(BestState(directory).step, kBest);
  for (const int64_t step : {kBest, int64_t{8}}) {
    std::filesystem::resize_file(CheckpointPath(directory, 1, step) + "/rank-0.bin", 3);
  }
  // Its own steps are worse.
  const auto unlearn = [](int, int64_t step, int, StepState& state) {
    if (step > 5) state.learning_rate *= -1;
  };
  const RankRun second = RunJob(job, {.epoch = 2, .resume = true, .before_attempt = unlearn})[0];
  ASSERT_TRUE(second.status.ok()) << second.status;
  EXPECT_EQ(second.start.step, 5);
  const RunState state = BestState(directory);
  EXPECT_EQ(state.step, 5);
  EXPECT_GT(state.validation->loss, Losses(first).at(kBest));
}

TEST(KeepBest, LossThatIsNoNumberIsNeverTheBest) {
  const JobConfig job = Job("best_nan");
  StepRecord record;
  EXPECT_FALSE(ValidationOf(record, job));
  record.validation_loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(ValidationOf(record, job));
  record.validation_loss = -std::numeric_limits<double>::infinity();
  EXPECT_FALSE(ValidationOf(record, job));
  record.validation_loss = 2;
  EXPECT_EQ(ValidationOf(record, job)->loss, 2);
}

TEST(KeepBest, MeasureChangesWithWhatIsMeasured) {
  const JobConfig job = Job("measure");
  const std::string measure = ValidationMeasure(job);
  const auto with = [&](const auto& change) {
    JobConfig other = job;
    change(other);
    return ValidationMeasure(other);
  };
  EXPECT_EQ(with([](JobConfig& j) { j.steps = 99; }), measure);
  EXPECT_EQ(with([](JobConfig& j) { j.validation->every_steps = 7; }), measure);
  EXPECT_EQ(with([](JobConfig& j) { j.batch.micro = 2; }), measure);
  EXPECT_NE(with([](JobConfig& j) { j.validation->batches = 3; }), measure);
  EXPECT_NE(with([](JobConfig& j) { j.batch.sequence = 8; }), measure);
  EXPECT_NE(with([](JobConfig& j) { j.preference.emplace(); }), measure);
  EXPECT_NE(
      with([](JobConfig& j) { j.continues = ContinuesConfig{.job = "j-0", .allow = {"data"}}; }),
      measure);
}

}  // namespace
}  // namespace trainyard::testing
