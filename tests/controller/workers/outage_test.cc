// Proves what the controller makes of workers that come back with a past: the end of a rank counts
// in its place behind the rank's other reports, records of earlier attempts count up to where their
// successor resumed, and a closed stream is waited for as long as nobody misses a peer.

#include <gmock/gmock.h>

#include "controller/workers/coordinator.h"
#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class OutageTest : public ClusterFixture {
 protected:
  std::vector<uint64_t> StoredSteps(const Snapshot& job) {
    std::vector<uint64_t> steps;
    const std::vector<JobStep> stored = store_->ReadSteps(job->number, 0, 1000).value();
    for (const JobStep& step : stored) steps.push_back(step.step);
    return steps;
  }
  FakeWorker ConnectDetachable(const std::string& id, absl::Duration detach,
                               std::vector<RankStatus> running = {}) {
    detach_ = detach;
    FakeWorker worker = Connect(id, 1, std::move(running));
    detach_ = {};
    return worker;
  }
  static RankStatus Resuming(const Snapshot& job, uint64_t step,
                             std::vector<LoadableCheckpoint> loadable = {}) {
    RankStatus ready = Status(job, 0, RankState::kReady);
    ready.resumed = StartRecord{.step = step, .refused = {}, .loadable = std::move(loadable)};
    return ready;
  }
  bool TellHistory(const FakeWorker& worker, const Snapshot& job, uint64_t epoch, uint64_t step) {
    StepReport report;
    report.job_id = job->id;
    report.read_by_epoch = job->epoch;
    report.record.epoch = epoch;
    report.record.step = step;
    report.record.loss = 2.5;
    bool durable = false;
    coordinator_->OnStep(worker.session, report,
                         [&](const absl::Status& stored) { durable = stored.ok(); });
    Flush();
    return durable;
  }
};

// Catches a registration that ends the job before its reports are heard: all of them were then
// dropped, and acknowledged.
TEST_F(OutageTest, AJobThatEndedWhileTheControllerWasAwayKeepsItsHistory) {
  FakeWorker a = Connect("a", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  const Snapshot job = ReadyAll(id, a);
  EXPECT_TRUE(Step(a, job, 0, 1));
  RestartController();
  const RankStatus exited = Status(job, 0, RankState::kExited, ExitCause::kCompleted);
  a = Connect("a", 1, {exited});
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  for (const uint64_t step : {2, 3, 4}) EXPECT_TRUE(Step(a, job, 0, step));
  EXPECT_TRUE(Save(a, job, 4));
  EXPECT_TRUE(Say(a, exited));
  EXPECT_EQ(Get(id)->state, JobState::kSucceeded);
  EXPECT_THAT(StoredSteps(job), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Get(id)->checkpoints, SizeIs(1));
  EXPECT_EQ(Metric("reports_refused_total"), 0);
}

TEST_F(OutageTest, EarlierAttemptsCountUpToWhereTheirSuccessorResumed) {
  FakeWorker a = Connect("a", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  const Snapshot old = ReadyAll(id, a);
  EXPECT_TRUE(Step(a, old, 0, 1));
  Advance(absl::Seconds(7));  // The lease of a is over; its reports wait there.
  FakeWorker b = Connect("b", 1);
  Tick();
  const Snapshot next = Get(id);
  EXPECT_EQ(next->epoch, 2);
  EXPECT_TRUE(Say(b, Resuming(next, 4)));
  EXPECT_EQ(Get(id)->progress.step, 4);
  EXPECT_TRUE(Step(b, next, 0, 5));
  a = Connect("a", 1);
  for (const uint64_t step : {2, 3, 4, 5, 6}) EXPECT_TRUE(Step(a, old, 0, step));
  EXPECT_THAT(StoredSteps(old), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(store_->ReadSteps(old->number, 4, 1)->front().epoch, 2) << "run again by the successor";
  EXPECT_EQ(Metric("reports_refused_total", "step"), 2);
}

// A host that never comes back: what it did is read from the directory by its successor.
TEST_F(OutageTest, TheDirectorysHistoryFillsWhatNobodyTold) {
  FakeWorker a = Connect("a", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  const Snapshot old = ReadyAll(id, a);
  EXPECT_TRUE(Step(a, old, 0, 1));
  Advance(absl::Seconds(7));
  RestartController();
  FakeWorker b = Connect("b", 1);
  Tick();
  const Snapshot next = Get(id);
  const auto starts = b.link->Take<StartOrder>();
  ASSERT_THAT(starts, SizeIs(1));
  EXPECT_EQ(starts[0].history_after, 1);
  EXPECT_FALSE(starts[0].claimed);
  EXPECT_TRUE(Say(b, Resuming(next, 4, {{1, 4, "runs/epoch-1/step-4", 10}})));
  EXPECT_EQ(Get(id)->furthest_checkpoint, 4);
  ASSERT_THAT(Get(id)->checkpoints, SizeIs(1));
  EXPECT_EQ(Get(id)->checkpoints[0].path, "runs/epoch-1/step-4");
  EXPECT_TRUE(Step(b, next, 0, 5));
  RestartController();
  b = Connect("b", 1, {Resuming(next, 4)});
  for (const uint64_t step : {2, 3, 4}) EXPECT_TRUE(TellHistory(b, next, 1, step));
  EXPECT_TRUE(TellHistory(b, next, 1, 6)) << "acknowledged, and refused";
  EXPECT_THAT(StoredSteps(old), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(Get(id)->progress.step, 5);
}

// An order to start that comes after its attempt is over: the rank would wait for its peers, on a
// device that another rank is to have.
TEST_F(OutageTest, ARankThatStartsTooLateIsStopped) {
  FakeWorker a = Connect("a", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  const Snapshot job = Get(id);
  Advance(absl::Seconds(7));  // The lease of a is over, and its order is still on its way.
  a = Connect("a", 1);
  EXPECT_TRUE(Say(a, Status(job, 0, RankState::kStarting)));
  const auto stops = a.link->Take<StopOrder>();
  ASSERT_THAT(stops, SizeIs(1));
  EXPECT_EQ(stops[0].epoch, job->epoch);
  EXPECT_EQ(stops[0].mode, StopMode::kKill);
  Tick();
  EXPECT_FALSE(Get(id)->epoch > job->epoch) << "its device is not free";
  EXPECT_TRUE(Say(a, Status(job, 0, RankState::kExited, ExitCause::kSignal)));
  Tick();
  EXPECT_EQ(Get(id)->epoch, job->epoch + 1);
}

// A rank that was ordered while its worker was away, of an attempt that was over when the worker
// came back. Bug it must catch: the job waits for the end of a rank that never began, for ever.
TEST_F(OutageTest, ARankThatNeverGotItsOrderIsNotWaitedFor) {
  for (const bool cancelled : {false, true}) {
    FakeWorker a = ConnectDetachable("a", {}), b = ConnectDetachable("b", absl::Minutes(10));
    const std::string id = Submit(2, "runs");
    Tick();
    const Snapshot job = Get(id);
    ASSERT_EQ(job->state, JobState::kStarting);
    const uint32_t of_a = job->ranks[0].worker_id == "a" ? 0 : 1, of_b = 1 - of_a;
    coordinator_->Disconnect(b.session);
    if (cancelled) {
      coordinator_->Cancel(id, {""}, [](absl::StatusOr<Snapshot>) {});
      Flush();
    }
    Say(a, Status(job, of_a, RankState::kExited, ExitCause::kSignal));
    EXPECT_FALSE(IsGone(Get(id)->ranks[of_b].phase)) << "b may run it";
    b = ConnectDetachable("b", absl::Minutes(10));
    Tick();
    if (cancelled) {
      EXPECT_EQ(Get(id)->state, JobState::kCancelled);
    } else {
      EXPECT_EQ(Get(id)->state, JobState::kStarting);
      EXPECT_EQ(Get(id)->epoch, job->epoch + 1);
      coordinator_->Cancel(id, {""}, [](absl::StatusOr<Snapshot>) {});
      for (const auto& [worker, rank] : {std::pair(&a, of_a), std::pair(&b, of_b)}) {
        Say(*worker, Status(Get(id), rank, RankState::kExited, ExitCause::kStopped));
      }
      ASSERT_TRUE(IsTerminal(Get(id)->state));
    }
  }
}

// Attempt 2 begins at step 2, runs and saves steps 3 and 4, and is lost before it told anything.
// Bug it must catch: steps 3 and 4 stay attempt 1's, whose steps were run again.
TEST_F(OutageTest, AnAttemptOfWhichNobodyToldHasItsStepsInTheHistory) {
  for (const bool restart : {false, true}) {
    FakeWorker a = Connect("a", 1);
    const std::string id = Submit(1, absl::StrCat("runs", restart));
    Tick();
    const Snapshot first = ReadyAll(id, a);
    for (const uint64_t step : {1, 2, 3}) EXPECT_TRUE(Step(a, first, 0, step));
    for (const uint64_t epoch : {2, 3}) {
      Advance(absl::Seconds(7));  // The lease of a is over.
      a = Connect("a", 1);
      Tick();
      ASSERT_EQ(Get(id)->epoch, epoch);
    }
    const Snapshot third = Get(id);
    const auto starts = a.link->Take<StartOrder>();
    ASSERT_THAT(starts, SizeIs(1));
    EXPECT_EQ(starts[0].history_after, 3);
    RankStatus ready = Resuming(third, 4);
    ready.resumed->earlier_starts = {{2, 2}};
    EXPECT_TRUE(Say(a, ready));
    EXPECT_TRUE(Step(a, third, 0, 5));
    if (restart) {
      RestartController();
      a = Connect("a", 1, {ready});
      EXPECT_TRUE(Say(a, ready));
    }
    for (const uint64_t step : {3, 4}) EXPECT_TRUE(TellHistory(a, third, 2, step));
    EXPECT_THAT(StoredSteps(first), ElementsAre(1, 2, 3, 4, 5));
    std::vector<uint64_t> epochs;
    const auto stored = store_->ReadSteps(first->number, 0, 9);
    for (const JobStep& step : *stored) epochs.push_back(*step.epoch);
    EXPECT_THAT(epochs, ElementsAre(1, 1, 2, 2, 3)) << restart;
    EXPECT_TRUE(Say(a, Status(third, 0, RankState::kExited, ExitCause::kCompleted)));
    coordinator_->Disconnect(a.session);
  }
}

TEST_F(OutageTest, AClosedStreamIsDetachedAndSilenceIsNot) {
  FakeWorker a = ConnectDetachable("a", absl::Minutes(10));
  const std::string id = Submit(1);
  Tick();
  const Snapshot job = ReadyAll(id, a);
  coordinator_->Disconnect(a.session);
  Advance(absl::Minutes(9));
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  a = ConnectDetachable("a", absl::Minutes(10), {Status(job, 0, RankState::kReady)});
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  Advance(absl::Seconds(7));  // Connected, and silent.
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
  EXPECT_EQ(Get(id)->restarts_without_progress, 0);
}

TEST_F(OutageTest, ADetachedWorkerIsLostAfterItsTime) {
  FakeWorker a = ConnectDetachable("a", absl::Minutes(10));
  const std::string id = Submit(1);
  Tick();
  ReadyAll(id, a);
  coordinator_->Disconnect(a.session);
  Advance(absl::Minutes(11));
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
}

TEST_F(OutageTest, APeersComplaintEndsTheWaitForADetachedWorker) {
  FakeWorker a = ConnectDetachable("a", absl::Minutes(10));
  FakeWorker b = ConnectDetachable("b", absl::Minutes(10));
  const std::string id = Submit(2);
  Tick();
  ReadyAll(id, a);
  const Snapshot job = ReadyAll(id, b);
  coordinator_->Disconnect(a.session);
  Say(b, Status(job, 1, RankState::kExited, ExitCause::kPeerLost));
  Advance(absl::Seconds(5));
  EXPECT_EQ(Get(id)->ranks[0].phase, RankPhase::kReady) << "it has a lease to come back in";
  for (int i = 0; i < 4; ++i) {
    coordinator_->OnHeartbeat(b.session);
    Advance(absl::Seconds(1));
  }
  EXPECT_NE(Get(id)->ranks[0].phase, RankPhase::kReady);
}

// The complaint may come before the stream is seen to be closed; and it is one job's alone.
TEST_F(OutageTest, AComplaintBeforeTheStreamClosesCountsAndOtherJobsWaitOn) {
  detach_ = absl::Minutes(10);
  FakeWorker a = Connect("a", 2);
  const std::string alone = Submit(1);
  Tick();
  ReadyAll(alone, a);
  FakeWorker b = Connect("b", 1);
  const std::string gang = Submit(2);
  Tick();
  ReadyAll(gang, a);
  const Snapshot job = ReadyAll(gang, b);
  ASSERT_NE(job->ranks[0].worker_id, job->ranks[1].worker_id);
  const uint32_t rank_of_b = job->ranks[0].worker_id == "b" ? 0 : 1;
  Say(b, Status(job, rank_of_b, RankState::kExited, ExitCause::kPeerLost));
  coordinator_->Disconnect(a.session);
  for (int i = 0; i < 9; ++i) {
    coordinator_->OnHeartbeat(b.session);
    Advance(absl::Seconds(1));
  }
  EXPECT_EQ(Get(gang)->ranks[1 - rank_of_b].phase, RankPhase::kLost);
  EXPECT_EQ(Get(alone)->state, JobState::kRunning);
}

TEST_F(OutageTest, ADrainingWorkerIsNotWaitedFor) {
  FakeWorker a = ConnectDetachable("a", absl::Minutes(10));
  const std::string id = Submit(1);
  Tick();
  ReadyAll(id, a);
  coordinator_->OnDraining(a.session);
  coordinator_->Disconnect(a.session);
  Advance(absl::Seconds(7));
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
}

// Two daemons with a copy of one state directory took the stream from each other 36 times a second.
TEST_F(OutageTest, ASecondProcessWithAWorkersIdIsRefusedWhileTheFirstHasItsLease) {
  FakeWorker a = Connect("a", 1);
  Registration copy;
  copy.worker_id = "a";
  copy.instance_id = "another process";
  copy.hostname = "elsewhere";
  const auto link = std::make_shared<FakeLink>();
  const auto refused = coordinator_->Connect(copy, link);
  EXPECT_TRUE(absl::IsAlreadyExists(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("remove the file worker_id"));
  EXPECT_TRUE(a.link->closed().ok());
  coordinator_->Disconnect(a.session);
  EXPECT_TRUE(coordinator_->Connect(copy, link).ok()) << "the first has gone";
}

// An unmounted share: tried again elsewhere, with a pause, however often; never FAILED.
TEST_F(OutageTest, AHostWithoutTheDirectoryIsAvoidedAndTheJobGoesOn) {
  FakeWorker a = Connect("a", 1), b = Connect("b", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  std::string first_host;
  for (int attempt = 1; attempt <= 10; ++attempt) {
    const Snapshot job = Get(id);
    ASSERT_EQ(job->state, JobState::kStarting) << attempt;
    ASSERT_EQ(job->epoch, uint64_t(attempt));
    FakeWorker& worker = job->ranks[0].worker_id == "a" ? a : b;
    if (attempt == 2) {
      EXPECT_NE(job->ranks[0].worker_id, first_host) << "the host that failed";
    }
    if (attempt == 1) first_host = job->ranks[0].worker_id;
    Say(worker, Status(job, 0, RankState::kExited, ExitCause::kStorage));
    EXPECT_EQ(Get(id)->state, JobState::kRecovering);
    EXPECT_THAT(Get(id)->state_reason, HasSubstr("did not find its storage"));
    const double wait = std::min(60.0, 0.5 * double(1 << (attempt - 1)));
    for (double passed = 0; passed < wait - 0.5; passed += 0.5) {
      Advance(absl::Milliseconds(500));
      coordinator_->OnHeartbeat(a.session);
      coordinator_->OnHeartbeat(b.session);
      ASSERT_EQ(Get(id)->state, JobState::kRecovering) << "before its pause is over";
    }
    Advance(absl::Seconds(2));
  }
  EXPECT_EQ(Get(id)->restarts_without_progress, 0);
}

}  // namespace
}  // namespace trainyard::controller
