// Proves what becomes of a job whose storage or host fails, by the state machine alone.

#include <gmock/gmock.h>

#include "common/epochs.h"
#include "controller/jobs/job_codec.h"
#include "controller/jobs/job_state.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Time kTime = absl::FromUnixSeconds(1'700'000'000);

Job Running(uint32_t ranks) {
  Spec spec;
  spec.facts.ranks = ranks;
  spec.facts.checkpoint_directory = "runs/a";
  spec.facts.steps = 100;
  Job job;
  job.id = "j-1";
  job.spec = std::make_shared<const Spec>(spec);
  job.create_time = kTime;
  return job;
}

Job Must(const Job& job, decltype(JobEvent::what) what) {
  const auto next = Apply(job, {kTime, std::move(what)});
  EXPECT_TRUE(next.ok()) << next.status();
  return next.ok() ? *next : job;
}

Job Place(const Job& job) {
  Placed placed;
  for (uint32_t i = 0; i < job.spec->facts.ranks; ++i) {
    placed.ranks.push_back({.worker_id = "w" + std::to_string(i),
                            .hostname = "host" + std::to_string(i),
                            .device = 0,
                            .phase = RankPhase::kOrdered,
                            .cause = ExitCause::kNone});
  }
  return Must(job, placed);
}

RankReported Said(const Job& job, uint32_t rank, RankState state, ExitCause cause) {
  return {.epoch = job.epoch,
          .rank = rank,
          .state = state,
          .cause = cause,
          .signal = 0,
          .exit_code = 0,
          .message = "its own words",
          .worker_id = "w" + std::to_string(rank),
          .resumed = {}};
}

Job Ready(const Job& job, uint64_t step, std::vector<LoadableCheckpoint> loadable = {}) {
  RankReported ready = Said(job, 0, RankState::kReady, ExitCause::kNone);
  ready.resumed = StartRecord{.step = step, .refused = {}, .loadable = std::move(loadable)};
  return Must(job, ready);
}

Job Exit(const Job& job, uint32_t rank, ExitCause cause) {
  return Must(job, Said(job, rank, RankState::kExited, cause));
}

TEST(StorageFault, EndsTheAttemptWithoutCountingWhoeverIsHeardFirst) {
  const Job job = Place(Running(2));
  for (const bool peer_first : {false, true}) {
    Job next = job;
    if (peer_first) next = Exit(next, 1, ExitCause::kPeerLost);
    next = Exit(next, 0, ExitCause::kStorage);
    if (!peer_first) next = Exit(next, 1, ExitCause::kPeerLost);
    EXPECT_EQ(next.state, JobState::kRecovering);
    EXPECT_EQ(next.restarts_without_progress, 0);
    EXPECT_EQ(next.storage_faults, 1);
    EXPECT_EQ(next.strikes.at("w0"), kMostStrikes);
    EXPECT_FALSE(next.strikes.contains("w1"));
    EXPECT_THAT(next.state_reason, HasSubstr("rank 0 on host0"));
  }
}

TEST(StorageFault, IsOneThoughEveryRankTellsOfIt) {
  Job job = Place(Running(2));
  for (const uint32_t rank : {1, 0}) job = Exit(job, rank, ExitCause::kStorage);
  EXPECT_EQ(job.storage_faults, 1);
  EXPECT_EQ(job.state, JobState::kRecovering);
}

// An attempt whose readiness nobody told is known once a later one has built on it.
TEST(Resumes, HoldTheAttemptsThatTheDirectoryTellsOf) {
  Job job = Ready(Place(Running(1)), 4);
  const uint64_t told = job.epoch;
  job = Place(Exit(Place(Exit(job, 0, ExitCause::kSignal)), 0, ExitCause::kSignal));
  RankReported ready = Said(job, 0, RankState::kReady, ExitCause::kNone);
  ready.resumed = StartRecord{
      .step = 9, .earlier_starts = {{told, 0}, {told + 1, 6}, {job.epoch, 7}, {job.epoch + 1, 1}}};
  job = Must(job, ready);
  ASSERT_EQ(job.resumes.size(), 3u) << "the others contradict what is known";
  EXPECT_EQ(job.resumes[0].step, 4);
  EXPECT_EQ(job.resumes[1].epoch, told + 1);
  EXPECT_EQ(job.resumes[2].step, 9);
  EXPECT_TRUE(CheckStepFence(job, told, 6, 0, "w0").ok());
  EXPECT_FALSE(CheckStepFence(job, told, 7, 0, "w0").ok()) << "run again";
  EXPECT_TRUE(CheckStepFence(job, told + 1, 9, 0, "w0").ok());
}

TEST(StorageFault, NeverFailsTheJobAndIsForgottenOnceThereIsProgress) {
  Job job = Running(1);
  for (int i = 0; i < 50; ++i) job = Exit(Place(job), 0, ExitCause::kStorage);
  EXPECT_EQ(job.state, JobState::kRecovering);
  EXPECT_EQ(job.storage_faults, 50);
  EXPECT_EQ(Ready(Place(job), 7).storage_faults, 0);
}

// Bug it must catch: a job that cannot save its last checkpoint on a full disk begins again every
// half second for ever, because each attempt finds the directory.
TEST(StorageFault, CountsOnWhereAttemptsResumeAndSaveNothing) {
  Job job = Ready(Place(Running(1)), 7);
  for (uint32_t i = 1; i <= 5; ++i) {
    job = Exit(job, 0, ExitCause::kStorage);
    EXPECT_EQ(job.storage_faults, i);
    job = Ready(Place(job), 7);
  }
  EXPECT_EQ(job.storage_faults, 5);
}

TEST(Superseded, AnOlderStoreLeapsBeyondTheDirectorysAttempts) {
  Job job = Exit(Place(Running(1)), 0, ExitCause::kSuperseded);
  EXPECT_EQ(job.state, JobState::kRecovering);
  EXPECT_EQ(job.restarts_without_progress, 0);
  job = Place(job);
  EXPECT_GT(job.epoch, 64);
}

// Bug it must catch: a stray directory epoch-9223372036854775807 drove the epoch beyond all
// numbers, by 57 attempts in 11 seconds, and ended the job for good.
TEST(Superseded, LeapsAreBoundedAndThenCountAsFailures) {
  Job job = Running(1);
  int leaps = 0;
  while (!IsTerminal(job.state)) {
    job = Exit(Place(job), 0, ExitCause::kSuperseded);
    ASSERT_LT(++leaps, 30);
    ASSERT_LT(job.epoch, uint64_t(kMostEpoch));
  }
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_THAT(job.state_reason, HasSubstr("its own words")) << "they name the directory";
}

TEST(Strikes, CountAgainstTheHostOfTheCulpritAlone) {
  Job job = Exit(Place(Running(2)), 1, ExitCause::kPeerLost);
  job = Exit(job, 0, ExitCause::kDeviceError);
  EXPECT_EQ(job.strikes.at("w0"), 1);
  EXPECT_FALSE(job.strikes.contains("w1"));
  job = Must(Place(job), WorkerGone{"w0"});
  EXPECT_EQ(job.strikes.at("w0"), 2);
}

// What a host saved and never told is progress, and is listed.
TEST(Resumed, TakesStockOfTheDirectory) {
  Job job = Place(Running(1));
  job = Must(job, CheckpointCommitted{{10, 1, "runs/a/epoch-1/step-10", 5, kTime}, "w0", {}});
  job = Exit(job, 0, ExitCause::kOther);
  EXPECT_EQ(job.restarts_without_progress, 1);
  job = Ready(Place(job), 30, {{1, 30, "a/epoch-1/step-30", 6}, {1, 20, "a/epoch-1/step-20", 6}});
  EXPECT_EQ(job.furthest_checkpoint, 30);
  EXPECT_EQ(job.restarts_without_progress, 0);
  EXPECT_TRUE(job.claimed);
  ASSERT_THAT(job.checkpoints, SizeIs(2));
  EXPECT_EQ(job.checkpoints.back().step, 30);
  EXPECT_EQ(job.checkpoints.back().create_time, kTime);
}

// Bug it must catch: until its first step, which may take minutes, an attempt shows the loss of the
// dead one, at another step.
TEST(Resumed, HasNoNumbersOfAnotherStep) {
  Job job = Place(Running(1));
  job.progress = {.step = 30,
                  .furthest_step = 30,
                  .numbers = StepNumbers{.loss = 2.5, .mfu = 0.5},
                  .validation_loss = 3,
                  .tokens_per_second = 100,
                  .seconds_per_step = 4};
  const Progress back = Ready(job, 20).progress;
  EXPECT_EQ(back.step, 20);
  EXPECT_EQ(back.furthest_step, 30);
  EXPECT_FALSE(back.numbers.has_value());
  EXPECT_EQ(back.tokens_per_second, 0);
  EXPECT_FALSE(back.validation_loss.has_value()) << "the book asks the store";
  EXPECT_EQ(back.seconds_per_step, 4) << "the time left is still known";
  // An attempt that only has to end the job does not take its last loss away.
  EXPECT_EQ(Ready(job, 30).progress.loss(), 2.5);
}

// Bug it must catch: after another batch, the tokens of the earlier steps are counted by it, too.
TEST(TokensSeen, AreThoseOfEachStepsOwnBatch) {
  const auto with = [](uint32_t batch, const std::string& continues) {
    Spec spec;
    spec.facts.global_batch = batch;
    spec.facts.sequence = 10;
    spec.facts.continues = continues;
    Job job;
    job.spec = std::make_shared<const Spec>(spec);
    return job;
  };
  Job first = with(2, "");
  first.progress.step = 8;
  EXPECT_EQ(first.TokensSeen(), 8 * 20);
  Job second = with(3, "j-1");
  EXPECT_FALSE(second.TokensSeen().has_value()) << "it may go on from any checkpoint";
  second.earlier_batches = first.Batches();
  second.resumes = {{2, 6}};
  second.progress.step = 9;
  EXPECT_EQ(second.TokensSeen(), 6 * 20 + 3 * 30);
  Job third = with(5, "j-2");
  third.earlier_batches = second.Batches();
  third.resumes = {{3, 8}, {4, 9}};
  third.progress.step = 10;
  EXPECT_EQ(third.TokensSeen(), 6 * 20 + 2 * 30 + 2 * 50);
  third.progress.step = 7;
  EXPECT_EQ(third.TokensSeen(), 6 * 20 + 1 * 30) << "of a step that is another job's";
  // The second job's checkpoints were damaged, and the third began with one of the first.
  third.resumes = {{5, 4}};
  third.progress.step = 5;
  EXPECT_EQ(third.TokensSeen(), 4 * 20 + 50);
  EXPECT_EQ(third.Batches().size(), 2u);
  EXPECT_FALSE(with(3, "alone").TokensSeen().has_value()) << "a trainer alone ran it";
  third.earlier_batches.clear();
  EXPECT_FALSE(third.TokensSeen().has_value());
}

TEST(StepFence, EarlierAttemptsCountUpToTheFirstResumeBehindThem) {
  Job job = Ready(Place(Running(1)), 0);
  job = Ready(Place(Exit(job, 0, ExitCause::kOther)), 40);
  job = Ready(Place(Exit(job, 0, ExitCause::kOther)), 55);
  const auto counts = [&](uint64_t epoch, uint64_t step) {
    return CheckStepFence(job, epoch, step, 0, "w0").ok();
  };
  EXPECT_TRUE(counts(1, 40));
  EXPECT_FALSE(counts(1, 41));
  EXPECT_TRUE(counts(2, 55));
  EXPECT_FALSE(counts(2, 56));
  EXPECT_TRUE(counts(3, 99));
  EXPECT_FALSE(counts(4, 1)) << "an attempt that never was";
  EXPECT_FALSE(CheckStepFence(Running(1), 0, 1, 0, "w0").ok()) << "a job that was never placed";
  EXPECT_FALSE(CheckStepFence(job, 3, 99, 0, "w9").ok());
  // An earlier resume from a later step is moot.
  job = Ready(Place(Exit(job, 0, ExitCause::kOther)), 30);
  EXPECT_TRUE(counts(1, 30));
  EXPECT_FALSE(counts(1, 31));
  EXPECT_FALSE(counts(3, 31));
}

// Bug it must catch: any worker may write into the history of a job that has gone on elsewhere.
TEST(StepFence, EarlierAttemptsCountFromWorkersOfTheJobAlone) {
  Job job = Ready(Place(Running(1)), 0);
  job = Exit(job, 0, ExitCause::kOther);
  Placed elsewhere;
  elsewhere.ranks = {{.worker_id = "w9", .hostname = "host9"}};
  job = Must(job, elsewhere);
  RankReported ready = Said(job, 0, RankState::kReady, ExitCause::kNone);
  ready.worker_id = "w9";
  ready.resumed = StartRecord{.step = 40};
  job = Must(job, ready);
  EXPECT_TRUE(CheckStepFence(job, 1, 40, 0, "w0").ok());
  EXPECT_TRUE(CheckStepFence(job, 1, 40, 0, "w9").ok());
  EXPECT_FALSE(CheckStepFence(job, 1, 40, 0, "stranger").ok());
  const auto read = DecodeJob(EncodeJob(job));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->WasOn("w0"));
  EXPECT_FALSE(read->IsOn("w0"));
}

TEST(Codec, KeepsWhatRecoveryNeeds) {
  Job job = Ready(Place(Running(1)), 7);
  job = Exit(job, 0, ExitCause::kStorage);
  job.epoch_floor = 99;
  const auto read = DecodeJob(EncodeJob(job));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->strikes, job.strikes);
  EXPECT_EQ(read->storage_faults, 1);
  EXPECT_EQ(read->epoch_floor, 99);
  EXPECT_TRUE(read->claimed);
  ASSERT_THAT(read->resumes, SizeIs(1));
  EXPECT_EQ(read->resumes[0].step, 7);
}

}  // namespace
}  // namespace trainyard::controller
