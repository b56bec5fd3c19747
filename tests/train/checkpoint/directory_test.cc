// Proves whose a checkpoint directory is, and which checkpoints retention leaves: never fewer than
// a later attempt or the controller may fall back on.

#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "tests/train/checkpoint/fixture.h"
#include "train/checkpoint/lineage.h"

namespace trainyard::testing_checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status Claim(const std::string& directory, const std::string& job, int64_t epoch) {
  return ClaimDirectory(directory, job, epoch, LocalStorage());
}

std::vector<std::string> Left(const std::string& directory) {
  std::vector<std::string> names;
  const std::vector<ListedCheckpoint> listed = ListCheckpoints(directory).value();
  for (const ListedCheckpoint& c : listed) {
    names.push_back(absl::StrCat(c.epoch, "/", c.step, c.complete ? "" : " partial"));
  }
  return names;
}

TEST(ClaimDirectory, IsTheFirstJobsForGood) {
  const std::string directory = TestDirectory();
  EXPECT_TRUE(Claim(directory, "j-1", 1).ok());
  EXPECT_TRUE(Claim(directory, "j-1", 1).ok());
  EXPECT_TRUE(Claim(directory, "j-1", 2).ok());
  const absl::Status other = Claim(directory, "j-2", 1);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()),
              ::testing::AllOf(HasSubstr(directory), HasSubstr("belongs to job j-1, not j-2")));
}

TEST(ClaimDirectory, RefusesASupersededEpoch) {
  const std::string directory = TestDirectory();
  EXPECT_TRUE(Claim(directory, "j-1", 3).ok());
  const absl::Status refused = Claim(directory, "j-1", 2);
  EXPECT_TRUE(IsSuperseded(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("epoch 2 of this job was superseded"));
}

TEST(ClaimDirectory, RefusesWhatIsSomebodyElses) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(WriteFileAtomic(directory + "/notes.txt", "mine").ok());
  EXPECT_THAT(std::string(Claim(directory, "j-1", 1).message()), HasSubstr("holds notes.txt"));
  EXPECT_THAT(ListDirectory(directory).value(), ElementsAre("notes.txt"));
  std::filesystem::remove(directory + "/notes.txt");
  ASSERT_TRUE(WriteFileAtomic(directory + "/owner.json", "garbage").ok());
  EXPECT_THAT(std::string(Claim(directory, "j-1", 1).message()), HasSubstr("owner.json"));
}

// Without an owner file the manifests decide.
TEST(ClaimDirectory, BelievesTheManifestsWhereTheOwnerFileIsGone) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  EXPECT_THAT(std::string(Claim(directory, "j-2", 2).message()), HasSubstr("of job j-1"));
  EXPECT_TRUE(Claim(directory, "j-1", 2).ok());
  EXPECT_FALSE(Claim(directory, "j-2", 2).ok());
  const std::string partial = directory + "/partial";
  ASSERT_TRUE(MakeDirectories(partial + "/epoch-1/step-3").ok());
  EXPECT_THAT(std::string(Claim(partial, "j-1", 2).message()), HasSubstr("say not whose"));
}

absl::Status Continue(const std::string& directory, const std::string& job, int64_t epoch,
                      const std::string& continues) {
  return ClaimDirectory(directory, job, epoch, LocalStorage(), continues);
}

TEST(ClaimDirectory, PassesToAJobThatContinuesTheOwner) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Claim(directory, "j-1", 3).ok());
  EXPECT_TRUE(IsSuperseded(Continue(directory, "j-2", 3, "j-1"))) << "an epoch of the run";
  ASSERT_TRUE(Continue(directory, "j-2", 4, "j-1").ok());
  const Owner owner = FindOwner(directory).value().value();
  EXPECT_EQ(owner.job_id, "j-2");
  EXPECT_EQ(owner.after_epoch, 3);
  EXPECT_THAT(ReadFile(directory + "/owner.json").value(), HasSubstr("j-2"));
  // The job that it was taken from writes no more, and nobody takes it a second time.
  EXPECT_THAT(std::string(Claim(directory, "j-1", 9).message()),
              HasSubstr("belongs to job j-2, not j-1"));
  EXPECT_THAT(std::string(Continue(directory, "j-3", 9, "j-1").message()),
              HasSubstr("belongs to job j-2, not j-1, whose run this job continues"));
  ASSERT_TRUE(Continue(directory, "j-2", 5, "j-1").ok()) << "its next attempt";
  ASSERT_TRUE(Continue(directory, "j-3", 6, "j-2").ok());
  ASSERT_TRUE(Continue(directory, "j-1", 7, "j-3").ok()) << "a name may come again";
  EXPECT_EQ(FindOwner(directory).value()->job_id, "j-1");
  EXPECT_EQ(FindOwner(directory).value()->after_epoch, 6);
}

TEST(ClaimDirectory, PassesWithoutAnOwnerFileFromTheJobOfTheManifests) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  EXPECT_THAT(std::string(Continue(directory, "j-2", 2, "j-9").message()), HasSubstr("of job j-1"));
  EXPECT_TRUE(Continue(directory, "j-2", 2, "j-1").ok());
  EXPECT_EQ(FindOwner(directory).value()->job_id, "j-2");
}

// Of jobs that read the same owner, one wins: a plain rename would let the last one win.
TEST(ClaimDirectory, PassesToOneOfTwoThatComeAtOnce) {
  const std::string top = TestDirectory();
  for (int round = 0; round < 50; ++round) {
    const std::string directory = absl::StrCat(top, "/", round);
    ASSERT_TRUE(MakeDirectories(directory).ok());
    ASSERT_TRUE(Claim(directory, "j-1", 1).ok());
    std::vector<absl::Status> results(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back(
          [&, i] { results[size_t(i)] = Continue(directory, absl::StrCat("heir-", i), 2, "j-1"); });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string winner = FindOwner(directory).value()->job_id;
    for (int i = 0; i < 4; ++i) {
      const absl::Status& status = results[size_t(i)];
      if (absl::StrCat("heir-", i) == winner) {
        EXPECT_TRUE(status.ok()) << status;
      } else {
        EXPECT_THAT(std::string(status.message()), HasSubstr("belongs to job " + winner));
      }
    }
  }
}

// Both see an empty directory; catches a claim that checks and then writes.
TEST(ClaimDirectory, GivesItToOneOfTwoThatComeAtOnce) {
  const std::string top = TestDirectory();
  for (int round = 0; round < 50; ++round) {
    const std::string directory = absl::StrCat(top, "/", round);
    ASSERT_TRUE(MakeDirectories(directory).ok());
    std::vector<absl::Status> results(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back(
          [&, i] { results[size_t(i)] = Claim(directory, absl::StrCat("j-", i), 1); });
    }
    for (std::thread& thread : threads) thread.join();
    int won = 0;
    for (const absl::Status& status : results) won += status.ok();
    EXPECT_EQ(won, 1) << results[0] << results[1] << results[2] << results[3];
  }
}

TEST(FindCheckpoint, TakesACheckpointOrTheNewestGoodOneOfAJobsDirectory) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20, 30}) ASSERT_TRUE(Save(directory, 1, step).ok());
  const auto named = FindCheckpoint(CheckpointPath(directory, 1, 10));
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->checkpoint->state().step, 10);
  std::filesystem::resize_file(CheckpointPath(directory, 1, 30) + "/rank-0.bin", 3);
  const auto newest = FindCheckpoint(directory);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->checkpoint->state().step, 20);
  EXPECT_THAT(newest->refused, ElementsAre(HasSubstr("step-30")));
}

TEST(FindCheckpoint, SaysWhatWasWantedWhereThereIsNone) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(MakeDirectories(directory + "/epoch-1/step-3").ok());
  const absl::Status none = FindCheckpoint(directory).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()),
              ::testing::AllOf(HasSubstr(directory), HasSubstr("or a job's checkpoint.directory")));
  EXPECT_THAT(std::string(FindCheckpoint(directory + "/nowhere").status().message()),
              HasSubstr(directory + "/nowhere"));
}

TEST(Retention, KeepsTheNewestOfAllEpochs) {
  const std::string directory = TestDirectory();
  for (const auto& [epoch, step] :
       {std::pair(1, 10), std::pair(1, 20), std::pair(2, 15), std::pair(2, 25)}) {
    ASSERT_TRUE(Save(directory, epoch, step).ok());
  }
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 3, .epoch = 2}, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("2/25", "2/15", "1/20"));
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 2}, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("2/25"));
}

// Somebody has moved one to another disk: its files stay there.
TEST(Retention, RemovesALinkAndNotWhatItLeadsTo) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20, 30}) ASSERT_TRUE(Save(directory, 1, step).ok());
  const std::string linked = CheckpointPath(directory, 1, 10), elsewhere = directory + "-elsewhere";
  std::filesystem::remove_all(elsewhere);
  std::filesystem::rename(linked, elsewhere);
  std::filesystem::create_directory_symlink(elsewhere, linked);
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 1}, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("1/30"));
  EXPECT_FALSE(std::filesystem::is_symlink(linked));
  EXPECT_TRUE(Checkpoint::Open(elsewhere).ok());
}

// A damaged one does not count as kept and stays behind a good one until enough are good; and a
// superseded attempt deletes nothing.
TEST(Retention, CountsGoodOnesAndStopsForASuccessor) {
  const std::string directory = TestDirectory();
  for (const int step : {10, 20, 30, 40}) ASSERT_TRUE(Save(directory, 1, step).ok());
  std::filesystem::resize_file(CheckpointPath(directory, 1, 30) + "/rank-0.bin", 3);
  std::filesystem::create_directory(directory + "/epoch-2");
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 1}, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("1/40", "1/30", "1/20", "1/10"));
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 2, .epoch = 2}, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("1/40", "1/30", "1/20"));
  std::filesystem::resize_file(CheckpointPath(directory, 1, 40) + "/rank-0.bin", 3);
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 2}, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("1/40", "1/30", "1/20"));
}

// Each attempt that fails before it chooses leaves a directory, and every save lists them all.
TEST(Retention, RemovesDirectoriesOfAttemptsThatChoseNothing) {
  const std::string directory = TestDirectory();
  for (const int64_t epoch : {1, 2, 3, 4, 5}) ASSERT_TRUE(Claim(directory, "j-1", epoch).ok());
  for (const int64_t epoch : {2, 4}) {
    ASSERT_TRUE(WriteLineage(directory, epoch, std::nullopt, LocalStorage()).ok());
  }
  ASSERT_TRUE(Save(directory, 4, 10).ok());
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 4}, LocalStorage()).ok());
  EXPECT_THAT(ListEpochs(directory).value(), ElementsAre(5, 4, 3, 2, 1)) << "superseded";
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 5}, LocalStorage()).ok());
  EXPECT_THAT(ListEpochs(directory).value(), ElementsAre(5, 4, 2));
}

TEST(Retention, RemovesWhatAttemptsLeftBehindButNotWhatIsBeingWritten) {
  const std::string directory = TestDirectory();
  ASSERT_TRUE(BeginCheckpoint(directory, 1, 10, LocalStorage()).ok());
  ASSERT_TRUE(WriteFileAtomic(CheckpointPath(directory, 1, 10) + "/rank-0.bin", "half").ok());
  ASSERT_TRUE(BeginCheckpoint(directory, 2, 5, LocalStorage()).ok());
  ASSERT_TRUE(Save(directory, 2, 20).ok());
  ASSERT_TRUE(BeginCheckpoint(directory, 2, 30, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("2/30 partial", "2/20", "2/5 partial", "1/10 partial"));
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 2, .epoch = 2}, LocalStorage()).ok());
  EXPECT_THAT(Left(directory), ElementsAre("2/30 partial", "2/20"));
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
