// Proves what the controller knows of a run that goes on under another job: who owns it now, and
// how many tokens it has seen.

#include <gmock/gmock.h>

#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

class ContinuedJobsTest : public ClusterFixture {
 protected:
  absl::StatusOr<Snapshot> TryContinue(const std::string& job,
                                       const std::string& directory = "runs", uint32_t batch = 4) {
    Spec spec = *MakeSpec(1, directory);
    spec.facts.continues = job;
    spec.facts.global_batch = batch;
    return TrySubmit(std::make_shared<const Spec>(spec));
  }
  std::string Continue(const std::string& job, uint32_t batch = 4) {
    const auto made = TryContinue(job, "runs", batch);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? (*made)->id : "";
  }
  // The job begins after step `from`, and finishes the steps up to `to`.
  Snapshot Run(const std::string& id, uint64_t from, uint64_t to) {
    Tick();
    const Snapshot job = Get(id);
    EXPECT_TRUE(Ready(worker_, job, from));
    for (uint64_t step = from + 1; step <= to; ++step) Step(worker_, job, 0, step);
    return job;
  }
  // The job fails at once: before it began, if it has not run.
  void Fail(const std::string& id) {
    Tick();
    Say(worker_, Status(Get(id), 0, RankState::kExited, ExitCause::kBadInput));
    EXPECT_EQ(Get(id)->state, JobState::kFailed);
  }
  void Restart(std::vector<RankStatus> running = {}) {
    RestartController();
    worker_ = Connect("w", 1, std::move(running));
  }

  FakeWorker worker_ = Connect("w", 1);
};

// Bug it must catch: the old job names the newest job that was to continue it, although that one
// was refused, and another owns the run.
TEST_F(ContinuedJobsTest, AJobNamesTheOneThatHasTakenOverItsRun) {
  const std::string old = Submit(1, "runs");
  Run(old, 0, 3);
  Fail(old);
  Fail(Continue(old));
  EXPECT_EQ(Get(old)->continued_by, "") << "it was refused before it began";
  const std::string owner = Continue(old);
  EXPECT_EQ(Get(old)->continued_by, "") << "it waits";
  Restart();
  const uint64_t revision = Get(old)->revision;
  Run(owner, 2, 4);
  EXPECT_EQ(Get(old)->continued_by, owner);
  EXPECT_GT(Get(old)->revision, revision);
  Restart({Status(Get(owner), 0, RankState::kReady)});
  EXPECT_EQ(Get(old)->continued_by, owner);
  Fail(owner);
  const std::string next = Continue(owner);
  Run(next, 4, 5);
  EXPECT_EQ(Get(owner)->continued_by, next);
  EXPECT_EQ(Get(old)->continued_by, owner);
}

// Bug it must catch: the controller takes a job whose start must fail, and another is then not
// placed on its devices.
TEST_F(ContinuedJobsTest, ASubmitIsRefusedWithTheNameOfTheJobThatHasTheRun) {
  const std::string old = Submit(1, "runs");
  Run(old, 0, 3);
  Fail(old);
  const std::string second = Continue(old);
  Run(second, 2, 4);
  Fail(second);
  const std::string third = Continue(second);
  Run(third, 4, 5);
  Fail(third);
  for (const std::string& without : {old, second}) {
    const absl::StatusOr<Snapshot> refused = TryContinue(without, "./runs");
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("continues.job: wanted " + third +
                          ", the job that has the run now, "
                          "found " +
                          without + "; to go on with it: trainyard submit --continue " + third));
  }
  EXPECT_TRUE(TryContinue(old, "a/copy/from/before").ok());
  EXPECT_TRUE(TryContinue(third).ok());
}

// Bug it must catch: a failure of the first attempt before it begins, and a second attempt that
// takes the run over without telling anybody.
TEST_F(ContinuedJobsTest, AJobMayTakeOverTheRunInALaterAttempt) {
  const std::string old = Submit(1, "runs");
  Run(old, 0, 3);
  Fail(old);
  const std::string owner = Continue(old);
  Tick();
  Say(worker_, Status(Get(owner), 0, RankState::kExited, ExitCause::kSignal, 9));
  EXPECT_EQ(Get(old)->continued_by, "");
  EXPECT_EQ(Run(owner, 3, 4)->epoch, Get(old)->epoch + 2);
  EXPECT_EQ(Get(old)->continued_by, owner);
}

// Bug it must catch: the tokens of a run are its steps times the batch of its last job.
TEST_F(ContinuedJobsTest, TokensSeenAreThoseOfEachStepsOwnBatch) {
  const std::string first = Submit(1, "runs");  // Of batches of 4 sequences of one token.
  Run(first, 0, 3);
  EXPECT_EQ(Metric("tokens_seen", first), 3 * 4);
  Fail(first);
  const std::string second = Continue(first, 8);
  Snapshot job = Run(second, 2, 4);
  EXPECT_EQ(Metric("tokens_seen", second), 2 * 4 + 2 * 8);
  Restart({Status(job, 0, RankState::kReady)});
  Step(worker_, job, 0, 5);
  EXPECT_EQ(Metric("tokens_seen", second), 2 * 4 + 3 * 8);
  Fail(second);
  const std::string third = Continue(second, 16);
  Run(third, 5, 6);
  EXPECT_EQ(Metric("tokens_seen", third), 2 * 4 + 3 * 8 + 16);
}

TEST_F(ContinuedJobsTest, TokensSeenAreLeftOutWhereTheEarlierRunIsNotKnown) {
  const std::string id = Continue("trained-alone", 8);
  Run(id, 2, 4);
  EXPECT_EQ(Metric("tokens_total", id), 2 * 100);
  EXPECT_FALSE(HasSeries("tokens_seen", id));
}

}  // namespace
}  // namespace trainyard::controller
