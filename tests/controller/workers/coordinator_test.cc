// Proves how jobs and workers meet: orders, leases, restarts of the controller, and the fence
// against what is superseded. Time is fake, the store is real.

#include "controller/workers/coordinator.h"

#include <gmock/gmock.h>

#include "common/violations.h"
#include "controller/jobs/job_id.h"
#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CoordinatorTest : public ClusterFixture {};

TEST_F(CoordinatorTest, RunsAJobToItsEnd) {
  FakeWorker worker = Connect("w", 2);
  EXPECT_THAT(worker.link->Take<Registered>(), SizeIs(1));
  const std::string id = Submit(2);
  Tick();
  Snapshot job = Get(id);
  EXPECT_EQ(job->state, JobState::kStarting);
  const auto starts = worker.link->Take<StartOrder>();
  ASSERT_THAT(starts, SizeIs(1));
  EXPECT_EQ(starts[0].epoch, 1);
  job = ReadyAll(id, worker);
  EXPECT_EQ(job->state, JobState::kRunning);
  EXPECT_EQ(coordinator_->DeviceHolders().size(), 2u);
  EXPECT_TRUE(Step(worker, job, 0, 1));
  EXPECT_TRUE(Step(worker, job, 1, 1));
  EXPECT_EQ(Get(id)->progress.step, 1);
  Say(worker, Status(job, 0, RankState::kExited, ExitCause::kCompleted));
  Say(worker, Status(job, 1, RankState::kExited, ExitCause::kCompleted));
  EXPECT_EQ(Get(id)->state, JobState::kSucceeded);
  EXPECT_THAT(coordinator_->DeviceHolders(), IsEmpty());
  EXPECT_EQ(Metric("jobs_finished_total"), 1);
}

TEST_F(CoordinatorTest, QueuedJobSaysWhatItWaitsFor) {
  const std::string id = Submit(3);
  FakeWorker worker = Connect("w", 2);
  Tick();
  EXPECT_EQ(Get(id)->state, JobState::kQueued);
  EXPECT_EQ(Get(id)->state_reason, "needs 3 devices, cluster has 2, 2 free");
  FakeWorker more = Connect("x", 1);
  Tick();
  EXPECT_EQ(Get(id)->state, JobState::kStarting);
}

// Bug it must catch: a clock that leaps for a moment makes negative waits, and a day of loss.
TEST_F(CoordinatorTest, AClockThatLeapsCostsAJobNothing) {
  const auto waited = [&] {
    double sum = -1;
    for (const auto& family : registry_->Collect()) {
      if (family.name != "trainyard_queue_wait_seconds") continue;
      for (const auto& metric : family.metric) sum = metric.histogram.sample_sum;
    }
    return sum;
  };
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1);
  clock_.Advance(absl::Seconds(1));
  clock_.JumpWall(-absl::Hours(1));
  Tick();
  EXPECT_EQ(waited(), 1);
  clock_.JumpWall(absl::Hours(25));
  clock_.Advance(absl::Seconds(2));
  const Snapshot job = ReadyAll(id, worker);
  EXPECT_EQ(Metric("badput_seconds_total", "startup"), 2);
  EXPECT_LT(*job->start_time - job->create_time, absl::Minutes(1));
  EXPECT_GE(*job->start_time, job->create_time);
  Say(worker, Status(job, 0, RankState::kExited, ExitCause::kSignal, 9));
  clock_.JumpWall(-absl::Hours(24));
  clock_.Advance(absl::Seconds(2));
  Tick();
  EXPECT_EQ(Metric("badput_seconds_total", "recovery"), 2);
}

// Catches the reason of an attempt's end that stands while the job waits for what is not there.
TEST_F(CoordinatorTest, AJobThatLostItsDevicesSaysWhatItWaitsFor) {
  FakeWorker a = Connect("a", 1), b = Connect("b", 1);
  const std::string id = Submit(2);
  Tick();
  ReadyAll(id, a);
  const Snapshot job = ReadyAll(id, b);
  Say(b, Status(job, 1, RankState::kExited, ExitCause::kSignal, 9));
  EXPECT_THAT(Get(id)->state_reason, HasSubstr("signal 9"));
  Advance(absl::Seconds(7));  // Both are lost.
  FakeWorker c = Connect("c", 1);
  Tick();
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
  EXPECT_EQ(Get(id)->state_reason, "needs 2 devices, cluster has 1, 1 free");
}

TEST_F(CoordinatorTest, DeadRankStopsItsPeersAndTheJobResumesFromItsCheckpoint) {
  FakeWorker a = Connect("a", 1), b = Connect("b", 1);
  const std::string id = Submit(2, "runs");
  Tick();
  ReadyAll(id, a);
  Snapshot job = ReadyAll(id, b);
  EXPECT_TRUE(Save(a, job, 4));
  Say(b, Status(job, 1, RankState::kExited, ExitCause::kSignal, 9));
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
  const auto stops = a.link->Take<StopOrder>();
  ASSERT_THAT(stops, SizeIs(1));
  EXPECT_EQ(stops[0].epoch, 1);
  EXPECT_EQ(stops[0].mode, StopMode::kKill);
  Tick();
  EXPECT_EQ(Get(id)->epoch, 1) << "rank 0 is not gone";
  a.link->Take<StartOrder>();
  Say(a, Status(job, 0, RankState::kExited, ExitCause::kStopped));
  Tick();
  EXPECT_EQ(Get(id)->epoch, 2);
  const auto starts = a.link->Take<StartOrder>();
  ASSERT_THAT(starts, SizeIs(1));
  EXPECT_EQ(starts[0].recorded_step, 4);
}

// Catches a fact of earlier attempts that ranks are not told: they would begin anew where a share
// is not mounted.
TEST_F(CoordinatorTest, AnOrderHasTheRanksOfItsWorkerAndWhatIsKnownOfEarlierAttempts) {
  FakeWorker a = Connect("a", 1), b = Connect("b", 2);
  b.link->Take<StartOrder>();
  const std::string id = Submit(3, "runs");
  Tick();
  const auto first = b.link->Take<StartOrder>();
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_THAT(first[0].ranks, SizeIs(2));
  EXPECT_EQ(first[0].world, 3);
  EXPECT_FALSE(first[0].claimed);
  EXPECT_EQ(first[0].recorded_epoch, 0);
  Snapshot job = Get(id);
  const FakeWorker& of_first = job->ranks[0].worker_id == "b" ? b : a;
  EXPECT_TRUE(Ready(of_first, job, 0));
  ReadyAll(id, a);
  job = ReadyAll(id, b);
  for (const uint64_t step : {1, 2, 3}) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(Step(job->ranks[rank].worker_id == "a" ? a : b, job, rank, step));
    }
  }
  EXPECT_TRUE(Save(of_first, job, 2));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Say(job->ranks[rank].worker_id == "a" ? a : b,
        Status(job, rank, RankState::kExited, ExitCause::kSignal, 9));
  }
  Tick();
  job = Get(id);
  const auto starts = b.link->Take<StartOrder>();
  ASSERT_THAT(starts, SizeIs(1));
  const StartOrder& order = starts[0];
  EXPECT_EQ(order.job_id, id);
  EXPECT_EQ(order.epoch, 2);
  EXPECT_EQ(order.world, 3);
  ASSERT_THAT(order.ranks, SizeIs(2));
  for (const RankPlacement& placed : order.ranks) {
    EXPECT_EQ(placed.worker_id, "b");
    EXPECT_EQ(job->ranks[placed.rank].worker_id, "b");
    EXPECT_EQ(job->ranks[placed.rank].device, placed.device);
  }
  EXPECT_EQ(order.job_config, "{}");
  EXPECT_EQ(order.submitted, "spec");
  EXPECT_TRUE(order.claimed);
  EXPECT_EQ(order.recorded_step, 2);
  EXPECT_EQ(order.recorded_epoch, 1);
  EXPECT_EQ(order.history_after, 3);
}

TEST_F(CoordinatorTest, LostWorkersRanksAreDeadAndItsLateWordsAreIgnored) {
  FakeWorker a = Connect("a", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  const Snapshot old = ReadyAll(id, a);
  Advance(absl::Seconds(7));
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
  EXPECT_EQ(Get(id)->restarts_without_progress, 0);
  FakeWorker b = Connect("b", 1);
  Tick();
  EXPECT_EQ(Get(id)->epoch, 2);
  EXPECT_EQ(Get(id)->ranks[0].worker_id, "b");

  // On the old stream: nothing, not even an acknowledgement.
  EXPECT_FALSE(Step(a, old, 0, 5));
  EXPECT_TRUE(absl::IsAborted(a.link->closed()));
  // On a new one: acknowledged, and dropped; the rank is to be stopped, its device is not free.
  a = Connect("a", 1, {Status(old, 0, RankState::kReady)});
  const auto stops = a.link->Take<StopOrder>();
  ASSERT_THAT(stops, SizeIs(1));
  EXPECT_EQ(stops[0].epoch, 1);
  EXPECT_EQ(coordinator_->DeviceHolders().size(), 2u);
  RankStatus ready = Status(Get(id), 0, RankState::kReady);
  ready.resumed = StartRecord{.step = 4, .refused = {}, .loadable = {}};
  EXPECT_TRUE(Say(b, ready));
  EXPECT_TRUE(Step(a, old, 0, 5));
  EXPECT_TRUE(Save(a, old, 5));
  EXPECT_TRUE(Say(a, Status(old, 0, RankState::kExited, ExitCause::kCompleted)));
  EXPECT_EQ(Metric("reports_refused_total"), 3);
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  EXPECT_THAT(Get(id)->checkpoints, IsEmpty());
  EXPECT_THAT(*store_->ReadSteps(old->number, 0, 10), IsEmpty());
  EXPECT_EQ(coordinator_->DeviceHolders().size(), 1u);
}

// Catches a full disk that costs every job its workers: nobody listens to them, and they seem dead.
TEST_F(CoordinatorTest, WorkerThatIsNotListenedToKeepsItsLease) {
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1);
  Tick();
  ReadyAll(id, worker);
  worker.link->holds = true;
  Advance(absl::Seconds(60));
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  worker.link->holds = false;
  Advance(absl::Seconds(5));
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  Advance(absl::Seconds(2));
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
}

TEST_F(CoordinatorTest, RestartOfTheControllerDisturbsNothing) {
  FakeWorker worker = Connect("w", 2);
  const std::string id = Submit(2);
  Tick();
  const Snapshot job = ReadyAll(id, worker);
  RestartController();
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  Advance(absl::Seconds(5));
  worker = Connect("w", 2, {Status(job, 0, RankState::kReady), Status(job, 1, RankState::kReady)});
  Tick();
  Advance(absl::Seconds(3));
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  EXPECT_EQ(Get(id)->epoch, 1);
  EXPECT_THAT(worker.link->Take<StartOrder>(), IsEmpty());
  EXPECT_THAT(worker.link->Take<StopOrder>(), IsEmpty());
  EXPECT_TRUE(Step(worker, job, 0, 3));
  Say(worker, Status(job, 0, RankState::kExited, ExitCause::kCompleted));
  Say(worker, Status(job, 1, RankState::kExited, ExitCause::kCompleted));
  EXPECT_EQ(Get(id)->state, JobState::kSucceeded);
}

TEST_F(CoordinatorTest, AfterARestartWorkersThatStayAwayAreLost) {
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1);
  Tick();
  ReadyAll(id, worker);
  RestartController();
  Advance(absl::Seconds(11));
  EXPECT_EQ(Get(id)->state, JobState::kRunning);
  Advance(absl::Seconds(2));
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
}

TEST_F(CoordinatorTest, OrderThatWasLostIsSentAgain) {
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1);
  Tick();
  EXPECT_THAT(worker.link->Take<StartOrder>(), SizeIs(1));
  coordinator_->Disconnect(worker.session);
  worker = Connect("w", 1);
  EXPECT_THAT(worker.link->Take<StartOrder>(), SizeIs(1));
  EXPECT_EQ(Get(id)->epoch, 1);
  RestartController();
  worker = Connect("w", 1);
  EXPECT_THAT(worker.link->Take<StartOrder>(), SizeIs(1));
  const Snapshot job = ReadyAll(id, worker);
  coordinator_->Cancel(id, {""}, [](absl::StatusOr<Snapshot>) {});
  Flush();
  EXPECT_THAT(worker.link->Take<StopOrder>(), SizeIs(1));
  worker = Connect("w", 1, {Status(job, 0, RankState::kReady)});
  EXPECT_THAT(worker.link->Take<StopOrder>(), SizeIs(1));
}

TEST_F(CoordinatorTest, RankThatAReturningWorkerDoesNotKnowIsGone) {
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1);
  Tick();
  ReadyAll(id, worker);
  worker = Connect("w", 1);
  EXPECT_EQ(Get(id)->state, JobState::kRecovering);
  EXPECT_EQ(Get(id)->restarts_without_progress, 0);
  Tick();
  EXPECT_EQ(Get(id)->epoch, 2);
}

TEST_F(CoordinatorTest, RanksThatDoNotCheckpointInTimeAreKilled) {
  FakeWorker worker = Connect("w", 1);
  for (const bool restart : {false, true}) {
    SCOPED_TRACE(restart);
    const std::string id = Submit(1, "runs");
    Tick();
    const Snapshot job = ReadyAll(id, worker);
    coordinator_->Cancel(id, {""}, [](absl::StatusOr<Snapshot>) {});
    Flush();
    if (restart) {
      RestartController();
      worker = Connect("w", 1, {Status(job, 0, RankState::kReady)});
    }
    const auto first = worker.link->Take<StopOrder>();
    ASSERT_THAT(first, SizeIs(1));
    EXPECT_EQ(first[0].mode, StopMode::kCheckpoint);
    for (int i = 0; i < 61; ++i) {
      coordinator_->OnHeartbeat(worker.session);
      Advance(absl::Seconds(1));
    }
    const auto second = worker.link->Take<StopOrder>();
    ASSERT_THAT(second, SizeIs(1));
    EXPECT_EQ(second[0].mode, StopMode::kKill);
    Say(worker, Status(job, 0, RankState::kExited, ExitCause::kStopped));
  }
}

// Catches devices that count as free while the ranks on them still checkpoint.
TEST_F(CoordinatorTest, AStoppingJobHoldsItsDevicesUntilItsRanksAreGone) {
  FakeWorker worker = Connect("w", 1);
  const std::string stopping = Submit(1, "runs");
  Tick();
  const Snapshot job = ReadyAll(stopping, worker);
  coordinator_->Cancel(stopping, {""}, [](absl::StatusOr<Snapshot>) {});
  const std::string next = Submit(1);
  worker.link->Take<StartOrder>();
  Tick();
  EXPECT_EQ(Get(stopping)->state, JobState::kStopping);
  EXPECT_EQ(Get(next)->state, JobState::kQueued);
  EXPECT_THAT(worker.link->Take<StartOrder>(), IsEmpty());
  const auto holders = coordinator_->DeviceHolders();
  ASSERT_EQ(holders.size(), 1u);
  EXPECT_EQ(holders.begin()->second.job_id, stopping);
  Say(worker, Status(job, 0, RankState::kExited, ExitCause::kStopped));
  Tick();
  EXPECT_EQ(Get(next)->state, JobState::kStarting);
}

TEST_F(CoordinatorTest, GaugesFollowAndThoseOfForgottenWorkersGo) {
  FakeWorker a = Connect("a", 1), b = Connect("b", 2);
  Submit(2);
  Tick();
  EXPECT_EQ(Metric("jobs", "starting"), 1);
  EXPECT_EQ(Metric("workers", "ready"), 2);
  EXPECT_EQ(Metric("devices", "busy"), 2);
  EXPECT_EQ(Metric("devices", "free"), 1);
  Advance(absl::Seconds(10));
  EXPECT_EQ(Metric("jobs", "queued") + Metric("jobs", "recovering"), 1);
  EXPECT_EQ(Metric("workers", "lost"), 2);
  EXPECT_EQ(Metric("workers", "ready"), 0);
  EXPECT_EQ(Metric("devices", "away"), 3);
  EXPECT_EQ(Metric("devices", "busy"), 0);
  EXPECT_GT(Metric("worker_heartbeat_age_seconds", "a"), 9);
  for (int seconds = 0; seconds < 3660; ++seconds) {
    clock_.Advance(absl::Seconds(1));
    coordinator_->Tick();
  }
  EXPECT_EQ(Metric("worker_heartbeat_age_seconds"), 0);
  EXPECT_EQ(Metric("devices"), 0);
}

TEST_F(CoordinatorTest, DrainingWorkerGetsNoNewRanks) {
  FakeWorker worker = Connect("w", 1);
  coordinator_->OnDraining(worker.session);
  const std::string id = Submit(1);
  Tick();
  EXPECT_EQ(Get(id)->state, JobState::kQueued);
  EXPECT_EQ(coordinator_->Workers().at(0).state, WorkerState::kDraining);
}

TEST_F(CoordinatorTest, RendezvousServesTheCurrentEpochOnly) {
  FakeWorker a = Connect("a", 1), b = Connect("b", 1);
  const std::string id = Submit(2);
  Tick();
  coordinator_->OnRendezvousGet(b.session, {id, 1, "address", ""});
  coordinator_->OnRendezvousSet(a.session, {id, 9, "address", "wrong"});
  EXPECT_THAT(b.link->Take<RendezvousValue>(), IsEmpty());
  coordinator_->OnRendezvousSet(a.session, {id, 1, "address", "10.0.0.1:1"});
  EXPECT_EQ(b.link->Take<RendezvousValue>().at(0).value, "10.0.0.1:1");
}

// Bug it must catch: who holds one machine meets the ranks of others, and speaks for their jobs.
TEST_F(CoordinatorTest, AJobIsNoBusinessOfWorkersThatItNeverRanOn) {
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1);
  Tick();
  const Snapshot job = ReadyAll(id, worker);
  FakeWorker stranger = Connect("stranger", 1);
  coordinator_->OnRendezvousSet(stranger.session, {id, 1, "key", "the stranger's"});
  coordinator_->OnRendezvousSet(worker.session, {id, 1, "key", "value"});
  coordinator_->OnRendezvousGet(stranger.session, {id, 1, "key", ""});
  EXPECT_THAT(stranger.link->Take<RendezvousValue>(), IsEmpty());
  coordinator_->OnRendezvousGet(worker.session, {id, 1, "key", ""});
  EXPECT_EQ(worker.link->Take<RendezvousValue>().at(0).value, "value");

  coordinator_->OnLogs(stranger.session, {id, {{clock_.Now(), 1, 0, "forged"}}});
  EXPECT_EQ(Metric("reports_refused_total", "log"), 1);
  coordinator_->OnLogs(worker.session, {id, {{clock_.Now(), 1, 0, "true"}}});
  Flush();
  const auto page = store_->ReadLogs(job->number, 0, -1, 10);
  ASSERT_EQ(page->lines.size(), 1u);
  EXPECT_EQ(page->lines.front().text, "true");
}

// Bug it must catch: a worker that invents jobs is remembered with each of them.
TEST_F(CoordinatorTest, AWorkerWithMoreUnwantedRanksThanItCanHaveIsSentAway) {
  const FakeWorker worker = Connect("w", 1);
  RankStatus status;
  status.state = RankState::kReady;
  const auto say = [&](uint64_t number) {
    status.job_id = JobId(number);
    coordinator_->OnRankStatus(worker.session, status, [](const absl::Status&) {});
  };
  for (uint64_t i = 1; i <= 4096; ++i) say(i);
  say(4096);
  EXPECT_TRUE(worker.link->closed().ok()) << worker.link->closed();
  say(4097);
  EXPECT_TRUE(absl::IsResourceExhausted(worker.link->closed())) << worker.link->closed();
  EXPECT_EQ(coordinator_->Workers().at(0).stale.size(), 4096u);
}

TEST_F(CoordinatorTest, CancelOfUnknownAndEndedJobsIsAnswered) {
  std::promise<absl::StatusOr<Snapshot>> unknown, ended;
  coordinator_->Cancel("j-0000000000", {""}, [&](auto job) { unknown.set_value(job); });
  EXPECT_TRUE(absl::IsNotFound(unknown.get_future().get().status()));
  const std::string id = Submit(1);
  coordinator_->Cancel(id, {"first"}, [](auto) {});
  coordinator_->Cancel(id, {"second"}, [&](auto job) { ended.set_value(job); });
  const auto job = ended.get_future().get();
  ASSERT_TRUE(job.ok());
  EXPECT_THAT((*job)->state_reason, HasSubstr("first"));
}

// Bug it must catch: an f64 job that waits for ever beside idle GPUs.
TEST_F(CoordinatorTest, F64IsRefusedWhereEveryDeviceIsAGpu) {
  Spec f64 = *MakeSpec(1);
  f64.facts.cpu_only = true;
  f64.facts.precision = "F64";
  const auto submit = [&](const std::string& request_id) {
    return TrySubmit(std::make_shared<const Spec>(f64), request_id).status();
  };
  EXPECT_TRUE(submit("before any worker").ok());
  Connect("gpus", 8, {}, DeviceKind::kCuda);
  const absl::Status refused = submit("gpus alone");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Violations::FromStatus(refused).at(0).field, "precision");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("CPU ranks alone"));
  EXPECT_EQ(Violations::FromStatus(refused).at(0).nearest, "F32");
  EXPECT_TRUE(TrySubmit(MakeSpec(8)).ok());
  Connect("cpus", 1);
  EXPECT_TRUE(submit("both").ok());
}

}  // namespace
}  // namespace trainyard::controller
