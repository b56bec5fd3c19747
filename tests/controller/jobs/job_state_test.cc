// Proves the life of a job: the table of what each event does in each state that matters, and, over
// random histories, what must hold whatever happens.

#include "controller/jobs/job_state.h"

#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <random>

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

constexpr absl::Time kTime = absl::FromUnixSeconds(1'700'000'000);

Job NewJob(uint32_t ranks = 2, uint32_t max_restarts = 3, const std::string& directory = "runs/a") {
  Spec spec;
  spec.facts.name = "tiny";
  spec.facts.ranks = ranks;
  spec.facts.steps = 10;
  spec.facts.max_restarts = max_restarts;
  spec.facts.checkpoint_directory = directory;
  Job job;
  job.id = "j-1";
  job.spec = std::make_shared<const Spec>(spec);
  job.create_time = kTime;
  return job;
}

Job Must(const Job& job, decltype(JobEvent::what) what, absl::Duration after = {}) {
  const auto next = Apply(job, {kTime + after, std::move(what)});
  EXPECT_TRUE(next.ok()) << next.status();
  return next.ok() ? *next : job;
}

absl::Status Refused(const Job& job, decltype(JobEvent::what) what) {
  return Apply(job, {kTime, std::move(what)}).status();
}

// Rank i runs on worker "w<i>" of "host<i>".
Placed Placement(uint32_t ranks) {
  Placed placed;
  for (uint32_t i = 0; i < ranks; ++i) {
    placed.ranks.push_back({.worker_id = "w" + std::to_string(i),
                            .hostname = "host" + std::to_string(i),
                            .device = 0,
                            .phase = RankPhase::kOrdered,
                            .cause = ExitCause::kNone});
  }
  return placed;
}

RankReported Said(const Job& job, uint32_t rank, RankState state,
                  ExitCause cause = ExitCause::kNone, int signal = 0) {
  return {.epoch = job.epoch,
          .rank = rank,
          .state = state,
          .cause = cause,
          .signal = signal,
          .exit_code = 0,
          .message = "",
          .worker_id = "w" + std::to_string(rank),
          .resumed = {}};
}

RankReported Exited(const Job& job, uint32_t rank, ExitCause cause, int signal = 0) {
  return Said(job, rank, RankState::kExited, cause, signal);
}

Job Placed_(const Job& job) { return Must(job, Placement(job.spec->facts.ranks)); }

Job Running(Job job) {
  job = Placed_(job);
  for (uint32_t i = 0; i < job.ranks.size(); ++i) {
    job = Must(job, Said(job, i, RankState::kStarting));
    job = Must(job, Said(job, i, RankState::kReady));
  }
  EXPECT_EQ(job.state, JobState::kRunning);
  return job;
}

CheckpointCommitted Saved(const Job& job, uint64_t step, std::vector<CheckpointId> retained = {}) {
  return {{step, job.epoch, "runs/a/step-" + std::to_string(step), 100, kTime}, "w0", retained};
}

TEST(JobState, GoesFromQueuedToSucceeded) {
  Job job = Placed_(NewJob());
  EXPECT_EQ(job.state, JobState::kStarting);
  EXPECT_EQ(job.epoch, 1);
  EXPECT_EQ(job.start_time, kTime);
  job = Must(job, Said(job, 0, RankState::kReady));
  EXPECT_EQ(job.state, JobState::kStarting) << "one rank is not ready";
  job = Must(job, Said(job, 1, RankState::kReady));
  EXPECT_EQ(job.state, JobState::kRunning);
  job = Must(job, Exited(job, 0, ExitCause::kCompleted));
  EXPECT_EQ(job.state, JobState::kRunning) << "the other rank still runs";
  job = Must(job, Exited(job, 1, ExitCause::kCompleted), absl::Seconds(5));
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.finish_time, kTime + absl::Seconds(5));
}

TEST(JobState, DeadRankStopsTheGangAndTheNextAttemptHasANewEpoch) {
  Job job = Running(NewJob());
  job = Must(job, Saved(job, 4));
  job = Must(job, Exited(job, 1, ExitCause::kSignal, 9));
  EXPECT_EQ(job.state, JobState::kRecovering);
  EXPECT_EQ(job.stop_mode, StopMode::kKill);
  EXPECT_FALSE(job.Placeable()) << "rank 0 still holds its device";
  EXPECT_THAT(job.state_reason, HasSubstr("rank 1 on host1 (worker w1) was killed by signal 9"));
  EXPECT_THAT(job.state_reason, HasSubstr("step 4"));
  EXPECT_FALSE(Refused(job, Placement(2)).ok());
  job = Must(job, Exited(job, 0, ExitCause::kStopped));
  EXPECT_TRUE(job.Placeable());
  job = Placed_(job);
  EXPECT_EQ(job.epoch, 2);
  EXPECT_EQ(job.restarts, 1);
  EXPECT_EQ(job.restarts_without_progress, 1);
}

TEST(JobState, WithoutProgressRestartsAreBoundedAndTheFailureNamesTheRank) {
  Job job = NewJob(1, 3);
  for (int attempt = 0; attempt < 3; ++attempt) {
    job = Running(job);
    job = Must(job, Exited(job, 0, ExitCause::kSignal, 11));
    EXPECT_EQ(job.state, JobState::kRecovering);
  }
  job = Running(job);
  job = Must(job, Exited(job, 0, ExitCause::kSignal, 11));
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_EQ(job.restarts, 3);
  EXPECT_THAT(job.state_reason, HasSubstr("rank 0 on host0 (worker w0) was killed by signal 11"));
  EXPECT_THAT(job.state_reason, HasSubstr("no restart left (3 without any checkpoint)"));
}

// Catches a reason that reads as if a job that has written a checkpoint got nowhere.
TEST(JobState, ARestartIsCountedFromTheCheckpointThatWasProgress) {
  Job job = Running(NewJob(1));
  EXPECT_THAT(Must(job, Exited(job, 0, ExitCause::kOther)).state_reason,
              HasSubstr("there is no checkpoint yet (restart 1 of 3 without any checkpoint)"));
  job = Must(job, Saved(job, 4));
  job = Running(Must(job, Exited(job, 0, ExitCause::kOther)));
  job = Must(job, Saved(job, 2));  // Again: no progress.
  job = Must(job, Exited(job, 0, ExitCause::kOther));
  EXPECT_THAT(job.state_reason, HasSubstr("(restart 2 of 3 since the checkpoint of step 4)"));
}

// A worker that cannot wait for its ranks kills them. A peer may report that first.
TEST(JobState, RanksKilledBecauseTheirWorkerEndsDoNotCount) {
  Job job = Running(NewJob());
  const Job told = Must(job, Exited(job, 0, ExitCause::kStopped, SIGKILL));
  EXPECT_EQ(told.state, JobState::kRecovering);
  EXPECT_EQ(told.restarts_without_progress, 0);
  EXPECT_EQ(Must(told, Exited(told, 1, ExitCause::kPeerLost)).restarts_without_progress, 0);
  job = Must(job, Exited(job, 1, ExitCause::kPeerLost));
  EXPECT_EQ(job.restarts_without_progress, 1);
  const Job late = Must(job, Exited(job, 0, ExitCause::kStopped, SIGKILL));
  EXPECT_EQ(late.state, JobState::kRecovering);
  EXPECT_EQ(late.restarts_without_progress, 0);
  EXPECT_THAT(late.state_reason, HasSubstr("rank 0"));
  // One that stopped by itself, or never began, on the order that followed excuses nothing.
  EXPECT_EQ(Must(job, Exited(job, 0, ExitCause::kStopped)).restarts_without_progress, 1);
}

TEST(JobState, NewerCheckpointIsProgressAndAnOlderOneIsNot) {
  Job job = Running(NewJob(1));
  job = Must(job, Saved(job, 4));
  job = Running(Must(job, Exited(job, 0, ExitCause::kOther)));
  EXPECT_EQ(job.restarts_without_progress, 1);
  job = Must(job, Saved(job, 4));  // The same step again, in a later epoch.
  EXPECT_EQ(job.restarts_without_progress, 1);
  job = Must(job, Saved(job, 5));
  EXPECT_EQ(job.restarts_without_progress, 0);
  EXPECT_EQ(job.checkpoints.size(), 3u);
}

// Catches progress that is measured by what the list of checkpoints happens to hold.
TEST(JobState, RepeatingMoreCheckpointsThanAreListedIsNoProgress) {
  Job job = Running(NewJob(1));
  job = Must(job, Saved(job, 1000));
  job = Running(Must(job, Exited(job, 0, ExitCause::kOther)));
  for (uint64_t step = 1; step <= kMaxCheckpoints + 5; ++step) job = Must(job, Saved(job, step));
  EXPECT_EQ(job.restarts_without_progress, 1);
  EXPECT_EQ(Must(job, Saved(job, 1001)).restarts_without_progress, 0);
}

TEST(JobState, BadInputAndNotFiniteFailAtOnce) {
  for (const ExitCause cause : {ExitCause::kBadInput, ExitCause::kNotFinite}) {
    Job job = Running(NewJob());
    job = Must(job, Exited(job, 0, cause));
    EXPECT_EQ(job.state, JobState::kStopping) << "rank 1 holds its device";
    job = Must(job, Exited(job, 1, ExitCause::kPeerLost));
    EXPECT_EQ(job.state, JobState::kFailed);
    EXPECT_EQ(job.restarts, 0);
  }
}

TEST(JobState, BadInputFailsEvenIfAPeerComplainedFirst) {
  Job job = Placed_(NewJob());
  job = Must(job, Exited(job, 1, ExitCause::kPeerLost));
  EXPECT_EQ(job.state, JobState::kRecovering);
  job = Must(job, Exited(job, 0, ExitCause::kBadInput));
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_THAT(job.state_reason, HasSubstr("rank 0"));
}

TEST(JobState, CulpritIsNamedThoughAPeerComplainedFirst) {
  Job job = Running(NewJob());
  job = Must(job, Exited(job, 0, ExitCause::kPeerLost));
  EXPECT_THAT(job.state_reason, HasSubstr("rank 0"));
  const Job named = Must(job, Exited(job, 1, ExitCause::kSignal, 9), absl::Seconds(1));
  EXPECT_THAT(named.state_reason, HasSubstr("rank 1 on host1 (worker w1) was killed by signal 9"));
  EXPECT_EQ(named.restarts_without_progress, 1) << "one failure, not two";
  // Killed on our order five seconds later, it would be innocent.
  const Job innocent = Must(job, Exited(job, 1, ExitCause::kSignal, 9), absl::Seconds(5));
  EXPECT_THAT(innocent.state_reason, HasSubstr("rank 0"));
}

RankReported LostPeer(const Job& job, uint32_t rank, const std::string& message) {
  RankReported report = Exited(job, rank, ExitCause::kPeerLost);
  report.message = message;
  return report;
}

// Catches a failure that names the dead rank, and not the collective and the group that it left its
// peers in; and words of a rank that are taken for the end of the reason.
TEST(JobState, TheReasonNamesCollectiveAndGroupWhicheverReportComesFirst) {
  const std::string words =
      "all_gather 17 of group data of 0, rank 0 of 3; lost world rank 1; no restart left";
  for (const uint32_t limit : {0u, 3u}) {
    for (const bool complaint_first : {false, true}) {
      Job job = Running(NewJob(3, limit));
      if (complaint_first) job = Must(job, LostPeer(job, 0, words));
      job = Must(job, Exited(job, 1, ExitCause::kSignal, 9));
      if (!complaint_first) job = Must(job, LostPeer(job, 0, words));
      EXPECT_THAT(job.state_reason,
                  ::testing::StartsWith(
                      "rank 1 on host1 (worker w1) was killed by signal 9 (Killed) (rank 0 on "
                      "host0 (worker w0) lost a peer: " +
                      words + "); " + (limit == 0 ? "no restart" : "there is no checkpoint")));
      const std::string said = job.state_reason;
      job = Must(job, LostPeer(job, 2, words));
      EXPECT_EQ(job.state_reason, said) << "one witness will do";
    }
  }
}

TEST(JobState, ACancelKeepsItsReasonWhateverRanksSayAfterwards) {
  Job job = Running(NewJob(3));
  job = Must(job, Exited(job, 0, ExitCause::kPeerLost));
  job = Must(job, CancelRequested{"enough"});
  job = Must(job, Exited(job, 1, ExitCause::kSignal, 9));
  EXPECT_EQ(job.state_reason, "cancelled: enough");
  job = Must(job, LostPeer(job, 2, "all_gather 1"));
  EXPECT_EQ(job.state_reason, "cancelled: enough");
}

// Its worker says so only once it is gone, which takes as long as any kill.
TEST(JobState, ARankThatHungIsNamedHoweverLongAfterItsPeersComplaint) {
  Job job = Running(NewJob());
  job = Must(job, Exited(job, 0, ExitCause::kPeerLost));
  job = Must(job, Exited(job, 1, ExitCause::kHung), absl::Seconds(20));
  EXPECT_THAT(job.state_reason, HasSubstr("rank 1 on host1 (worker w1) hung"));
  EXPECT_EQ(job.restarts_without_progress, 1);
}

TEST(JobState, LostWorkerAndDrainDoNotCount) {
  Job job = Running(NewJob(2, 0));
  job = Must(job, WorkerGone{"w1"});
  EXPECT_EQ(job.state, JobState::kRecovering);
  EXPECT_EQ(job.restarts_without_progress, 0);
  job = Must(job, Exited(job, 0, ExitCause::kPeerLost));
  EXPECT_TRUE(job.Placeable());

  job = Running(job);
  job = Must(job, Exited(job, 0, ExitCause::kStopped));
  EXPECT_EQ(job.state, JobState::kRecovering);
  EXPECT_EQ(job.stop_mode, StopMode::kCheckpoint);
  job = Must(job, Exited(job, 1, ExitCause::kStopped));
  EXPECT_EQ(job.restarts_without_progress, 0);
  EXPECT_TRUE(job.Placeable());
}

TEST(JobState, HostLossDoesNotCountThoughPeersNoticeItFirst) {
  for (const uint32_t limit : {0u, 3u}) {
    Job job = Running(NewJob(2, limit));
    job = Must(job, Exited(job, 0, ExitCause::kPeerLost));
    job = Must(job, WorkerGone{"w1"});
    EXPECT_EQ(job.state, JobState::kRecovering);
    EXPECT_EQ(job.restarts_without_progress, 0);
    EXPECT_THAT(job.state_reason, HasSubstr("rank 1 on host1 (worker w1) was lost"));
    EXPECT_TRUE(job.Placeable());
  }
}

TEST(JobState, CancelWaitsForTheRanks) {
  EXPECT_EQ(Must(NewJob(), CancelRequested{""}).state, JobState::kCancelled);
  Job job = Must(Running(NewJob()), CancelRequested{"enough"});
  EXPECT_EQ(job.state, JobState::kStopping);
  EXPECT_EQ(job.stop_mode, StopMode::kCheckpoint);
  EXPECT_EQ(Must(job, StopOverdue{}).stop_mode, StopMode::kKill);
  job = Must(job, Exited(job, 0, ExitCause::kStopped));
  EXPECT_EQ(job.state, JobState::kStopping);
  EXPECT_EQ(Must(job, WorkerGone{"w1"}).state, JobState::kCancelled);
  job = Must(job, Exited(job, 1, ExitCause::kStopped));
  EXPECT_EQ(job.state, JobState::kCancelled);
  EXPECT_THAT(job.state_reason, HasSubstr("enough"));
  EXPECT_TRUE(absl::IsAlreadyExists(Refused(job, CancelRequested{""})));
}

TEST(JobState, CancelThatCameTooLateLeavesTheSuccess) {
  Job job = Must(Running(NewJob(1)), CancelRequested{""});
  EXPECT_EQ(Must(job, Exited(job, 0, ExitCause::kCompleted)).state, JobState::kSucceeded);
}

TEST(JobState, WithoutCheckpointsCancelKills) {
  EXPECT_EQ(Must(Running(NewJob(2, 3, "")), CancelRequested{""}).stop_mode, StopMode::kKill);
  EXPECT_EQ(Must(Placed_(NewJob()), CancelRequested{""}).stop_mode, StopMode::kKill);
}

TEST(JobState, SupersededEpochAndStrangersAreRefused) {
  Job old = Running(NewJob());
  Job job = Must(old, WorkerGone{"w0"});
  EXPECT_FALSE(Refused(job, Saved(job, 4)).ok()) << "rank 0 was declared dead";
  job = Must(job, WorkerGone{"w1"});
  job = Placed_(job);
  EXPECT_EQ(job.epoch, 2);
  EXPECT_EQ(Refused(job, Exited(old, 0, ExitCause::kCompleted)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Refused(job, Saved(old, 4)).code(), absl::StatusCode::kFailedPrecondition);
  RankReported stranger = Said(job, 0, RankState::kReady);
  stranger.worker_id = "w9";
  EXPECT_FALSE(Refused(job, stranger).ok());
  EXPECT_FALSE(Refused(job, Said(job, 2, RankState::kReady)).ok()) << "there is no rank 2";
}

TEST(JobState, RepeatedReportsAreRecognised) {
  Job job = Running(NewJob());
  EXPECT_TRUE(absl::IsAlreadyExists(Refused(job, Said(job, 0, RankState::kStarting))));
  job = Must(job, Saved(job, 4));
  EXPECT_TRUE(absl::IsAlreadyExists(Refused(job, Saved(job, 4))));
  const RankReported exit = Exited(job, 1, ExitCause::kSignal, 9);
  job = Must(job, exit);
  EXPECT_TRUE(absl::IsAlreadyExists(Refused(job, exit)));
}

// What retention removed is no longer listed; a report that comes again, late, brings nothing back.
TEST(JobState, ListsTheCheckpointsThatExist) {
  Job job = Running(NewJob(1));
  job = Must(job, Saved(job, 4, {{1, 4}}));
  job = Must(job, Saved(job, 8, {{1, 8}, {1, 4}}));
  job = Running(Must(job, Exited(job, 0, ExitCause::kOther)));
  job = Must(job, Saved(job, 6, {{2, 6}, {1, 8}}));  // It could not use that of step 8.
  ASSERT_EQ(job.checkpoints.size(), 2u);
  EXPECT_EQ(job.checkpoints[0].step, 8);
  EXPECT_EQ(job.checkpoints[1].step, 6);
  job = Must(job, Saved(job, 10, {{2, 10}, {2, 6}}));
  EXPECT_EQ(job.checkpoints.front().epoch, 2);
  EXPECT_TRUE(absl::IsAlreadyExists(Refused(job, Saved(job, 6, {{2, 6}, {1, 8}}))));
  EXPECT_EQ(Must(job, Saved(job, 12)).checkpoints.size(), 3u) << "it could not list them";
}

// Bug it must catch: a run that has lost its best steps still shows them as the best ones.
TEST(JobState, TheBestCheckpointIsTheOneThatRankZeroNamesLast) {
  Job job = Running(NewJob(1));
  EXPECT_FALSE(job.best_checkpoint);
  CheckpointCommitted saved = Saved(job, 4);
  saved.best = BestCheckpoint{1, 4, 2.5};
  job = Must(job, saved);
  EXPECT_EQ(job.best_checkpoint, saved.best);
  saved = Saved(job, 8);
  saved.best = BestCheckpoint{1, 4, 2.5};
  job = Must(job, saved);
  EXPECT_EQ(job.best_checkpoint, saved.best);
  job = Placed_(Must(job, Exited(job, 0, ExitCause::kOther)));
  EXPECT_EQ(job.best_checkpoint, saved.best) << "no attempt has said otherwise";
  RankReported ready = Said(job, 0, RankState::kReady);
  ready.resumed = StartRecord{.step = 2, .best = BestCheckpoint{1, 2, 3.5}};
  EXPECT_EQ(Must(job, ready).best_checkpoint, ready.resumed->best);
  ready.resumed->best.reset();
  EXPECT_EQ(Must(job, ready).best_checkpoint, saved.best) << "the directory could not be listed";
  ready.resumed->loadable = {{1, 2, "/c/epoch-1/step-2", 1}};
  EXPECT_FALSE(Must(job, ready).best_checkpoint);
  // A worker may report anything.
  ready.resumed->best = BestCheckpoint{1, 2, std::nan("")};
  EXPECT_FALSE(Must(job, ready).best_checkpoint);
  ready.resumed->best = BestCheckpoint{3, 2, 1};
  EXPECT_FALSE(Must(job, ready).best_checkpoint) << "the second attempt knows of a third";
}

TEST(JobState, CheckpointsAreBoundedAndTheNewestStay) {
  Job job = Running(NewJob(1));
  for (uint64_t step = 1; step <= kMaxCheckpoints + 5; ++step) job = Must(job, Saved(job, step));
  EXPECT_EQ(job.checkpoints.size(), kMaxCheckpoints);
  EXPECT_EQ(job.checkpoints.back().step, kMaxCheckpoints + 5);
}

decltype(JobEvent::what) RandomEvent(const Job& job, std::mt19937& random) {
  const auto below = [&](uint32_t n) { return uint32_t(random() % n); };
  const uint32_t ranks = job.spec->facts.ranks, rank = below(ranks);
  switch (below(10)) {
    case 0:
    case 1:
      return Placement(ranks);
    case 2:
      return WorkerGone{"w" + std::to_string(rank)};
    case 3:
      return RankVanished{job.epoch, rank};
    case 4:
      return CheckpointCommitted{{below(10), job.epoch - below(2), "p", 1, kTime}, "w0", {}};
    case 5:
      if (below(20) == 0) return CancelRequested{"r"};
      return StopOverdue{};
    default: {
      const int signal = below(2) != 0 ? 9 : 15;
      RankReported report = Said(job, rank, RankState(1 + below(3)), ExitCause::kNone, signal);
      if (report.state == RankState::kExited) report.cause = ExitCause(1 + below(9));
      report.epoch -= below(8) == 0;
      return report;
    }
  }
}

// Catches: a device freed while a rank lives; a finished job that changes; an epoch that is used
// twice; more restarts than allowed. Tried by letting Placeable ignore living ranks.
TEST(JobState, HoldsItsPromisesOverRandomHistories) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Job job = NewJob(1 + seed % 4, seed % 3);
    for (int i = 0; i < 200; ++i) {
      const auto what = RandomEvent(job, random);
      const auto next = Apply(job, {kTime + absl::Seconds(i), what});
      if (!next.ok()) continue;
      ASSERT_FALSE(IsTerminal(job.state)) << "a finished job changed";
      if (next->epoch != job.epoch) {
        ASSERT_EQ(next->epoch, job.epoch + 1);
        ASSERT_TRUE(job.AllRanksGone());
        ASSERT_EQ(next->state, JobState::kStarting);
      }
      if (IsTerminal(next->state)) {
        ASSERT_TRUE(next->AllRanksGone());
        ASSERT_TRUE(next->finish_time.has_value());
      }
      if (next->state == JobState::kSucceeded) {
        for (const Rank& rank : next->ranks) ASSERT_EQ(rank.cause, ExitCause::kCompleted);
      }
      ASSERT_LE(next->restarts_without_progress, job.spec->facts.max_restarts);
      ASSERT_LE(next->restarts, next->epoch);
      job = *next;
    }
  }
}

// Catches events that claim a resume from the newest checkpoint, which the gang found damaged.
TEST(JobState, EventsSayWhatWasRefusedAndWhereTheAttemptBegan) {
  Job job = Running(NewJob(1));
  job.progress.step = 9;
  job = Must(job, Saved(job, 4));
  job = Must(job, Saved(job, 8));
  job = Must(job, Exited(job, 0, ExitCause::kOther));
  EXPECT_THAT(job.state_reason, HasSubstr("the newest checkpoint is of step 8"));
  const Job before = Placed_(job);
  RankReported ready = Said(before, 0, RankState::kReady);
  ready.resumed = {.step = 4, .refused = {"step-8/rank-0.bin: damaged"}};
  const JobEvent event{kTime, ready};
  const Job after = *Apply(before, event);
  EXPECT_EQ(after.progress.step, 4);
  const auto events = EventsOf(before, event, after);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, EventType::kWarning);
  EXPECT_EQ(events[0].message,
            "checkpoint refused: step-8/rank-0.bin: damaged; resuming from the checkpoint of "
            "step 4");
  EXPECT_EQ(events[1].message, "every rank is ready; resuming from the checkpoint of step 4");
}

TEST(JobState, EventsTellTheStory) {
  const Job before = Running(NewJob());
  const JobEvent event{kTime, Exited(before, 1, ExitCause::kSignal, 9)};
  const Job after = *Apply(before, event);
  const auto events = EventsOf(before, event, after);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].type, EventType::kRankExited);
  EXPECT_THAT(events[0].message, HasSubstr("signal 9"));
  EXPECT_EQ(events[1].type, EventType::kRecovering);
}

// Bug it must catch: of an attempt that has ended, the events tell for ever that a peer lost its
// connection, and nowhere as its end that another rank was killed.
TEST(JobState, EventsSayAnewHowTheAttemptEndedOnceTheCulpritIsKnown) {
  const Job running = Running(NewJob(3));
  const Job complaint = Must(running, Exited(running, 0, ExitCause::kPeerLost));
  const auto of = [](const Job& before, decltype(JobEvent::what) what) {
    const JobEvent event{kTime, std::move(what)};
    return EventsOf(before, event, *Apply(before, event));
  };
  auto events = of(complaint, Exited(complaint, 1, ExitCause::kSignal, 9));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].type, EventType::kRecovering);
  EXPECT_THAT(events[1].message, ::testing::StartsWith("rank 1 on host1 (worker w1) was killed"));
  events = of(complaint, WorkerGone{"w1"});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].type, EventType::kRecovering);
  EXPECT_THAT(events[1].message, HasSubstr("was lost with its worker"));
  // A witness says no more about the cause.
  const Job killed = Must(complaint, Exited(complaint, 1, ExitCause::kSignal, 9));
  events = of(killed, Exited(killed, 2, ExitCause::kPeerLost));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, EventType::kRankExited);
}

}  // namespace
}  // namespace trainyard::controller
