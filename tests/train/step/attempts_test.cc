// Proves how the attempts of one job follow each other through its checkpoint directory alone: what
// a successor loads whoever knows of it, that a superseded gang stops without a commit, that a
// directory that is away is the host's failure, and that history goes along.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/train/checkpoint/faulty_storage.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/save.h"
#include "train/data/text.h"
#include "train/start/start_point.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobConfig Job(const std::string& name, int64_t steps) {
  JobConfig job = TinyJob(FreshDirectory(name));
  job.steps = steps;
  job.checkpoint->every_steps = 2;
  job.checkpoint->keep = 2;
  return job;
}

TEST(Attempts, ASuccessorGoesOnFromWhatNobodyRecorded) {
  JobConfig job = Job("unrecorded", 4);
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  job.steps = 6;
  const RankRun run = RunJob(job, {.epoch = 2})[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.start.step, 4);
  ASSERT_EQ(run.start.loadable.size(), 2u);
  EXPECT_THAT(run.start.loadable[0].path, EndsWith("epoch-1/step-4"));
  EXPECT_GT(run.start.loadable[0].size_bytes, 0u);
  EXPECT_EQ(run.records.front().step, 5);
}

// A stop is agreed on, so both ranks end at the same step, and neither saves.
TEST(Attempts, ASupersededGangStopsWithinASecondAndCommitsNothing) {
  const JobConfig job = Job("superseded", 1'000'000);
  const std::string directory = job.checkpoint->directory;
  std::atomic<bool> begun = false;
  const auto runs =
      RunJob(job, {.ranks = 2, .before_attempt = [&](int rank, int64_t step, int, StepState&) {
                     if (rank != 0 || step != 5 || begun.exchange(true)) return;
                     ASSERT_TRUE(BeginEpoch(directory, 2, LocalStorage()).ok());
                     ASSERT_TRUE(WriteLineage(directory, 2, Continued{1, 4}, LocalStorage()).ok());
                   }});
  for (const RankRun& run : runs) {
    EXPECT_TRUE(IsSuperseded(run.status)) << run.status;
    EXPECT_EQ(run.records.size(), runs[0].records.size());
  }
  EXPECT_THAT(PathsOfComplete(LoadableCheckpoints(directory).value()),
              ElementsAre(EndsWith("epoch-1/step-4"), EndsWith("epoch-1/step-2")));
  EXPECT_THAT(CompleteCheckpoints(directory).value(),
              ElementsAre(EndsWith("epoch-1/step-4"), EndsWith("epoch-1/step-2")))
      << "the save of step 6 looks first";
}

// Bug it must catch: a job that saves seldom never learns of its successor.
TEST(Attempts, ASupersededGangStopsBetweenSaves) {
  JobConfig job = Job("superseded_between_saves", 1'000'000);
  job.checkpoint->every_steps = 0;
  const std::string directory = job.checkpoint->directory;
  const auto runs =
      RunJob(job, {.ranks = 2, .before_attempt = [&](int rank, int64_t step, int, StepState&) {
                     if (rank != 0 || step != 5) return;
                     ASSERT_TRUE(BeginEpoch(directory, 2, LocalStorage()).ok());
                   }});
  for (const RankRun& run : runs) {
    EXPECT_TRUE(IsSuperseded(run.status)) << run.status;
    EXPECT_EQ(run.records.size(), runs[0].records.size());
  }
  EXPECT_THAT(CompleteCheckpoints(directory).value(), IsEmpty());
}

TEST(Attempts, AnAttemptThatComesLateIsRefused) {
  const JobConfig job = Job("late", 2);
  ASSERT_TRUE(RunJob(job, {.epoch = 5})[0].status.ok());
  const auto runs = RunJob(job, {.ranks = 2, .epoch = 3});
  for (const RankRun& run : runs) EXPECT_TRUE(IsSuperseded(run.status)) << run.status;
}

class StorageFaults : public ::testing::Test {
 protected:
  StorageFaults() : job_(Job("storage", 4)), directory_(job_.checkpoint->directory) {
    EXPECT_TRUE(RunJob(job_)[0].status.ok());
    job_.steps = 6;
  }
  void ExpectFaultOfTheHost(const std::string& what) {
    const auto runs = RunJob(job_, {.ranks = 2, .epoch = 2, .resume = true});
    EXPECT_TRUE(IsStorageFault(runs[0].status)) << runs[0].status;
    EXPECT_THAT(std::string(runs[0].status.message()), HasSubstr(what));
    EXPECT_TRUE(absl::IsUnavailable(runs[1].status)) << "to it a peer is lost: " << runs[1].status;
  }
  JobConfig job_;
  const std::string directory_;
};

TEST_F(StorageFaults, ADirectoryThatIsAwayIsNotMadeAnew) {
  std::filesystem::rename(directory_, directory_ + ".away");
  ExpectFaultOfTheHost("cannot be used");
  EXPECT_FALSE(Exists(directory_)) << "never step 0 in its place";
  std::filesystem::rename(directory_ + ".away", directory_);
  EXPECT_EQ(RunJob(job_, {.epoch = 3, .resume = true})[0].start.step, 4);
}

TEST_F(StorageFaults, AnEmptyDirectoryIsAMountPoint) {
  std::filesystem::rename(directory_, directory_ + ".away");
  std::filesystem::create_directory(directory_);
  ExpectFaultOfTheHost("has no owner.json");
  EXPECT_THAT(ListDirectory(directory_).value(), IsEmpty());
  std::filesystem::remove_all(directory_ + ".away");
}

TEST_F(StorageFaults, ADirectoryThatLostItsCheckpointsDoesNotBeginAtStepZero) {
  std::filesystem::remove_all(directory_ + "/epoch-1");
  // The directory itself forgets with them; what was recorded does not.
  JobConfig job = job_;
  RankConfig rank;
  rank.job_id = "j-1";
  rank.epoch = 2;
  rank.claimed = true;
  rank.recorded_step = 4;
  LocalWorld world(1);
  const RankRun run = RunOneRank(job, rank, {}, world.world(0));
  EXPECT_TRUE(IsStorageFault(run.status)) << run.status;
  EXPECT_THAT(std::string(run.status.message()), HasSubstr("holds no checkpoint any more"));
}

// Data on the share that is away, and a checkpoint that one rank's host cannot read.
TEST_F(StorageFaults, WhatEarlierAttemptsCouldUseIsTheHostsFaultToo) {
  JobConfig job = job_;
  job.model.architecture->fields["vocab"] = 256;
  job.data = TextData{.path = "/no/such/corpus.txt", .validation_fraction = 0};
  EXPECT_TRUE(IsStorageFault(RunJob(job, {.epoch = 2, .resume = true})[0].status));
  EXPECT_TRUE(absl::IsNotFound(RunJob(job, {.epoch = 2})[0].status)) << "of a first attempt";
  for (const auto code : {absl::StatusCode::kNotFound, absl::StatusCode::kFailedPrecondition,
                          absl::StatusCode::kDataLoss, absl::StatusCode::kPermissionDenied}) {
    EXPECT_TRUE(IsStorageFault(OfThisHost(absl::Status(code, "gone"))));
  }
  EXPECT_TRUE(OfThisHost(absl::OkStatus()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(OfThisHost(absl::InvalidArgumentError("another model"))));
  EXPECT_TRUE(IsSuperseded(OfThisHost(absl::AbortedError("superseded"))));
}

// As a share that was remounted read-only gives it.
TEST_F(StorageFaults, AnOwnerFileThatCannotBeReadIsNoOtherJobs) {
  ASSERT_TRUE(WriteFileAtomic(directory_ + "/owner.json", "{\"job_id\": 7").ok());
  ExpectFaultOfTheHost("owner.json");
}

// To a first attempt it says that the directory is somebody's, and no space is waited for.
TEST_F(StorageFaults, AHugeOwnerFileIsNoFullDisk) {
  ASSERT_TRUE(WriteFileAtomic(directory_ + "/owner.json", std::string(100'000, ' ')).ok());
  ExpectFaultOfTheHost("owner.json is larger than 65536 bytes");
  const absl::Status first = RunJob(job_, {.epoch = 3})[0].status;
  EXPECT_TRUE(absl::IsFailedPrecondition(first)) << first;
}

TEST_F(StorageFaults, AFirstAttemptMayMakeTheDirectory) {
  std::filesystem::remove_all(directory_);
  EXPECT_EQ(RunJob(job_, {.epoch = 2})[0].start.step, 0);
}

// Where every checkpoint is damaged another host may still read them: an error that restarts count.
TEST_F(StorageFaults, NoGoodCheckpointIsAnErrorThatNamesAll) {
  const std::vector<std::string> paths = CompleteCheckpoints(directory_).value();
  for (const std::string& path : paths) {
    std::filesystem::resize_file(path + "/rank-0.bin", 3);
  }
  const RankRun run = RunJob(job_, {.epoch = 2, .resume = true})[0];
  EXPECT_TRUE(absl::IsInternal(run.status)) << run.status;
  EXPECT_THAT(std::string(run.status.message()), HasSubstr("none of 2 checkpoints is good"));
}

// Bug it must catch: a host that reads badly goes on from an older one, and prunes the newer. What
// the host refuses to open stands for a disk that it cannot read.
TEST_F(StorageFaults, ACheckpointThatCannotBeReadIsTheHostsFault) {
  const std::string manifest = directory_ + "/epoch-1/step-4/manifest.json";
  std::filesystem::rename(manifest, manifest + ".away");
  std::filesystem::create_symlink(manifest + ".away", manifest);
  ExpectFaultOfTheHost("step-4/manifest.json: wanted a path without links");
  std::filesystem::rename(manifest + ".away", manifest);
  EXPECT_EQ(RunJob(job_, {.epoch = 3, .resume = true})[0].start.step, 4);
}

// At each write of a beginning. Nothing says that the share is not mounted.
TEST_F(StorageFaults, AFullDiskSaysSo) {
  using testing_checkpoint::Fault;
  RankConfig rank;
  rank.job_id = "j-1";
  rank.epoch = 2;
  rank.claimed = true;
  bool hit = true;
  for (int call = 1; hit; ++call) {
    testing_checkpoint::FaultyStorage storage(Fault::kError, call, 0, directory_);
    absl::StatusOr<StartPoint> start = BeginAttempt(directory_, rank, Roots(), storage);
    const absl::Status status =
        start.ok() ? ContinueFrom(std::nullopt, rank, *start, storage) : start.status();
    hit = storage.hit();
    EXPECT_EQ(IsStorageFault(status), hit) << "call " << call << ": " << status;
    if (!hit) continue;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr("no space left in "),
                                 HasSubstr("/storage (injected at "), Not(HasSubstr("mounted"))));
  }
}

// Bug it must catch: a job whose disk is full when it begins burns its restarts within a second.
TEST_F(StorageFaults, AFullDiskIsWaitedForFromTheFirstAttemptOn) {
  using testing_checkpoint::Fault;
  RankConfig rank;
  rank.job_id = "j-2";
  rank.epoch = 1;
  bool hit = true;
  for (int call = 1; hit; ++call) {
    const std::string fresh = FreshDirectory("full_at_first");
    testing_checkpoint::FaultyStorage storage(Fault::kError, call, 0, directory_);
    absl::StatusOr<StartPoint> start = BeginAttempt(fresh, rank, Roots(), storage);
    const absl::Status status =
        start.ok() ? ContinueFrom(std::nullopt, rank, *start, storage) : start.status();
    hit = storage.hit();
    EXPECT_EQ(IsStorageFault(status), hit) << "call " << call << ": " << status;
  }
}

// Runs one rank with lines of history, and returns those of earlier attempts that it tells.
std::vector<std::string> Told(const JobConfig& job, int64_t epoch, int64_t history_after,
                              int64_t recorded_epoch) {
  std::vector<std::string> told;
  RankConfig rank;
  rank.job_id = "j-1";
  rank.epoch = epoch;
  rank.history_after = history_after;
  rank.recorded_epoch = recorded_epoch;
  LocalWorld world(1);
  TrainerCallbacks callbacks{
      .history_line =
          [&](const StepRecord& record) {
            return absl::StrCat("{\"step\":", record.step, ",\"epoch\":", epoch, "}");
          },
      .earlier_step = [&](int64_t from,
                          const std::string& line) { told.push_back(absl::StrCat(from, line)); }};
  const auto trainer =
      Trainer::Create(job, rank, CpuBackend(), world.world(0), std::move(callbacks));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  EXPECT_TRUE((*trainer)->Run().ok());
  return told;
}

TEST(History, OfEveryStepBehindACheckpointGoesAlong) {
  JobConfig job = Job("history", 3);
  EXPECT_THAT(Told(job, 1, 0, 0), IsEmpty());
  job.steps = 4;
  EXPECT_THAT(Told(job, 2, 1, 1),
              ElementsAre(R"(1{"step":2,"epoch":1})", R"(1{"step":3,"epoch":1})"));
  EXPECT_THAT(Told(job, 3, 2, 2),
              ElementsAre(R"(1{"step":3,"epoch":1})", R"(2{"step":4,"epoch":2})"));
  job.steps = 5;
  EXPECT_THAT(Told(job, 4, 9, 1), ElementsAre(R"(2{"step":4,"epoch":2})"))
      << "nobody told of attempts 2 and 3: what is recorded of their steps is of attempt 1";
}

TEST(Saves, ThatFailAreToldAndTrainingGoesOn) {
  JobConfig job = Job("failing_saves", 5);
  std::vector<int64_t> failed;
  RankConfig rank;
  rank.job_id = "j-1";
  rank.epoch = 1;
  LocalWorld world(1);
  const std::string in_the_way = job.checkpoint->directory + "/epoch-1/step-2";
  TrainerCallbacks callbacks{
      .checkpoint_failed = [&](int64_t step, const std::string&) { failed.push_back(step); },
      .before_attempt =
          [&](int64_t step, int, StepState&) {
            // A file where the save wants a directory.
            if (step != 2) return;
            ASSERT_TRUE(WriteFileAtomic(in_the_way, "in the way").ok());
          }};
  const auto trainer =
      Trainer::Create(job, rank, CpuBackend(), world.world(0), std::move(callbacks));
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const auto result = (*trainer)->Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(failed, ElementsAre(2));
  EXPECT_EQ(result->step, 5);
}

}  // namespace
}  // namespace trainyard::testing
