// Proves what a job shows of its last step: nothing that belongs to another step, and rates over
// the same seconds.

#include <gmock/gmock.h>

#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

class ProgressTest : public ClusterFixture {
 protected:
  // A job of one rank that the worker runs, from this step on.
  Snapshot Begin(const std::string& id, uint64_t resumed_step) {
    Tick();
    const Snapshot job = Get(id);
    EXPECT_TRUE(Ready(worker_, job, resumed_step));
    return job;
  }
  void Report(const Snapshot& job, const JobStep& record, absl::Duration after = absl::Seconds(1)) {
    StepReport report{.job_id = job->id, .rank = 0, .worker_id = "w", .record = record};
    report.record.epoch = job->epoch;
    clock_.Advance(after);  // Progress is published a few times a second at most.
    coordinator_->OnStep(worker_.session, report, {});
    Flush();
  }

  FakeWorker worker_ = Connect("w", 1);
};

// Bug it must catch: until its first step, which may take minutes, an attempt shows the loss of the
// dead one at an earlier step; or a restart of the controller brings this loss back.
TEST_F(ProgressTest, AnAttemptThatHasGoneBackHasNoLossUntilItsFirstStep) {
  const std::string id = Submit(1, "runs");
  Snapshot job = Begin(id, 0);
  EXPECT_FALSE(Get(id)->progress.numbers.has_value()) << "no step has been finished";
  for (uint64_t step = 1; step <= 5; ++step) {
    clock_.Advance(absl::Seconds(1));
    Step(worker_, job, 0, step);
  }
  EXPECT_EQ(Get(id)->progress.loss(), 3.5);
  EXPECT_EQ(Metric("loss"), 3.5);
  EXPECT_EQ(Metric("tokens_seen"), 5 * 4);
  Say(worker_, Status(job, 0, RankState::kExited, ExitCause::kSignal, 9));
  EXPECT_EQ(Get(id)->progress.step, 5);
  EXPECT_EQ(Get(id)->progress.loss(), 3.5) << "that of the step which is shown";
  job = Begin(id, 2);
  ASSERT_EQ(job->epoch, 2);
  const auto has_gone_back = [&] {
    const Progress progress = Get(id)->progress;
    EXPECT_EQ(progress.step, 2);
    EXPECT_FALSE(progress.numbers.has_value());
    EXPECT_EQ(progress.tokens_per_second, 0);
    for (const char* gauge :
         {"loss", "grad_norm", "learning_rate", "mfu_ratio", "tokens_per_second_per_device"}) {
      EXPECT_FALSE(HasSeries(gauge, id)) << gauge;
    }
  };
  has_gone_back();
  EXPECT_EQ(Metric("tokens_seen"), 2 * 4);
  EXPECT_EQ(Metric("steps_total"), 5) << "counters stay";
  RestartController();
  has_gone_back();
  worker_ = Connect("w", 1, {Status(job, 0, RankState::kReady)});
  Step(worker_, job, 0, 3);
  EXPECT_EQ(Get(id)->progress.step, 3);
  EXPECT_EQ(Get(id)->progress.loss(), 3.5);
  EXPECT_TRUE(HasSeries("loss", id));
}

// Bug it must catch: after a kill and a resume, the job and its gauge show the validation loss of a
// step that was lost. Or that of a step which counts is forgotten, also by a controller that
// starts.
TEST_F(ProgressTest, TheValidationLossIsThatOfTheNewestValidatedStepThatCounts) {
  const std::string id = Submit(1, "runs");
  Snapshot job = Begin(id, 0);
  const auto train = [&](uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) {
      JobStep record;
      record.step = step, record.tokens = 1, record.seconds = 1;
      if (step % 2 == 0) record.validation_loss = double(step) + double(job->epoch) / 8;
      Report(job, record, absl::Milliseconds(1));
    }
  };
  const auto expect = [&](std::optional<double> loss) {
    Advance(absl::Seconds(1));
    EXPECT_EQ(Get(id)->progress.validation_loss, loss);
    EXPECT_EQ(Metric("validation_loss"), loss.value_or(0));
    EXPECT_EQ(HasSeries("validation_loss", id), loss.has_value());
  };
  const auto resume = [&](uint64_t step) {
    Say(worker_, Status(job, 0, RankState::kExited, ExitCause::kSignal, 9));
    job = Begin(id, step);
  };
  train(1, 9);
  expect(8.125);
  resume(5);
  EXPECT_FALSE(Get(id)->progress.validation_loss.has_value()) << "nor is an older one shown as new";
  expect(4.125);
  train(6, 6);
  expect(6.25);
  RestartController();
  EXPECT_EQ(Get(id)->progress.validation_loss, 6.25) << "and not 8.125, which is lost";
  worker_ = Connect("w", 1, {Status(job, 0, RankState::kReady)});
  resume(3);
  expect(2.125);
  resume(1);
  expect(std::nullopt);
  train(2, 2);
  expect(2.5);
}

// Bug it must catch: a step that the directory's history brings later is not taken for the newest.
TEST_F(ProgressTest, AValidationThatIsReportedLaterCounts) {
  const std::string id = Submit(1, "runs");
  const Snapshot first = Begin(id, 0);
  Step(worker_, first, 0, 1);
  Say(worker_, Status(first, 0, RankState::kExited, ExitCause::kSignal, 9));
  const Snapshot second = Begin(id, 4);
  EXPECT_FALSE(Get(id)->progress.validation_loss.has_value());
  StepReport read{.job_id = id, .rank = 0, .worker_id = "w", .record = {}};
  read.read_by_epoch = second->epoch;
  read.record.epoch = first->epoch;
  read.record.step = 3;
  read.record.validation_loss = 7;
  coordinator_->OnStep(worker_.session, read, {});
  Advance(absl::Seconds(1));
  EXPECT_EQ(Get(id)->progress.validation_loss, 7);
}

// Bug it must catch: an attempt that dies before its first step, and a later one that begins at an
// older checkpoint, leave the tokens where they were.
TEST_F(ProgressTest, TokensFallBackWithEachResume) {
  const std::string id = Submit(1, "runs");
  Snapshot job = Begin(id, 0);
  for (uint64_t step = 1; step <= 5; ++step) Step(worker_, job, 0, step);
  for (const uint64_t resumed : {4, 2}) {
    Say(worker_, Status(job, 0, RankState::kExited, ExitCause::kSignal, 9));
    job = Begin(id, resumed);
    EXPECT_EQ(Get(id)->progress.step, resumed);
    EXPECT_EQ(Metric("tokens_seen"), double(resumed) * 4);
  }
}

// Bug it must catch: tokens/s is a mean that includes waiting, and MFU beside it is the last step's
// alone, so that the one does not follow from the other.
TEST_F(ProgressTest, TokensPerSecondAreOverTheSameSecondsAsMfu) {
  const std::string id = Submit(1);
  const Snapshot job = Begin(id, 0);
  JobStep record;
  record.step = 1, record.tokens = 100, record.seconds = 0.5, record.mfu = 0.25;
  record.phases.data = 1, record.phases.checkpoint = 2, record.phases.validation = 4;
  Report(job, record);
  EXPECT_EQ(Get(id)->progress.tokens_per_second, 200);
  EXPECT_EQ(Get(id)->progress.mfu(), 0.25);
  EXPECT_EQ(Get(id)->progress.seconds_per_step, 7.5) << "the time left includes all waiting";
  record.step = 2, record.seconds = 0.25, record.mfu = 0.5;
  Report(job, record);
  EXPECT_EQ(Get(id)->progress.tokens_per_second, 400) << "twice, as MFU";
  EXPECT_EQ(Get(id)->progress.mfu(), 0.5);
  RestartController();
  EXPECT_EQ(Get(id)->progress.tokens_per_second, 400);
  EXPECT_EQ(Get(id)->progress.mfu(), 0.5);
}

}  // namespace
}  // namespace trainyard::controller
