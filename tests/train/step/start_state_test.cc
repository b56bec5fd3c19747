// Proves from which state an attempt starts, where the job names another's weights (init_from):
// from them until it has a checkpoint of its own, and never from them afterwards.

#include "train/step/start_state.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/save.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

class InitFrom : public ::testing::Test {
 protected:
  InitFrom() {
    CHECK(RunJob(TinyJob(source_))[0].status.ok());
    job_.init_from = Newest(source_).path();
    job_.optimizer.adamw.learning_rate = 1e-300;  // Too small to move anything.
  }

  // What an attempt leaves that dies before its first checkpoint.
  void BeginAndDie() const {
    const std::string& directory = job_.checkpoint->directory;
    std::filesystem::create_directories(directory);
    ASSERT_TRUE(ClaimDirectory(directory, "j-1", 1, LocalStorage()).ok());
    ASSERT_TRUE(WriteLineage(directory, 1, std::nullopt, LocalStorage()).ok());
  }

  void ExpectItsParameters(const std::string& directory) const {
    const auto wanted = ReadTensors(Newest(source_)), found = ReadTensors(Newest(directory));
    for (const auto& [name, values] : wanted) {
      if (!name.ends_with("/parameter")) continue;
      EXPECT_EQ(found.at(name), values) << name;
    }
  }

  const std::string source_ = FreshDirectory("start_source");
  JobConfig job_ = TinyJob(FreshDirectory("start"));
};

// Bug it must catch: the second attempt of a job trains from random weights.
TEST_F(InitFrom, IsLoadedAgainByTheNextAttemptWhereNothingWasSaved) {
  BeginAndDie();
  const auto runs = RunJob(job_, {.ranks = 2, .epoch = 2, .resume = true});
  for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(runs[0].records.front().step, 1);
  ExpectItsParameters(job_.checkpoint->directory);
}

TEST_F(InitFrom, ThatIsGoneByTheNextAttemptIsTheHostsFailure) {
  BeginAndDie();
  std::filesystem::remove_all(source_);
  const auto runs = RunJob(job_, {.ranks = 2, .epoch = 2, .resume = true});
  EXPECT_TRUE(IsStorageFault(runs[0].status)) << runs[0].status;
  EXPECT_THAT(std::string(runs[0].status.message()), HasSubstr(job_.init_from));
  EXPECT_TRUE(absl::IsUnavailable(runs[1].status)) << "its host may have it: " << runs[1].status;
}

// With or without a controller that says that the job has begun.
TEST_F(InitFrom, IsNotLookedAtOnceTheJobHasACheckpoint) {
  ASSERT_TRUE(RunJob(job_)[0].status.ok());
  std::filesystem::remove_all(source_);
  for (const bool told : {true, false}) {
    job_.steps += 1;
    const auto runs = RunJob(job_, {.ranks = 2, .epoch = job_.steps, .resume = told});
    for (const RankRun& run : runs) {
      ASSERT_TRUE(run.status.ok()) << run.status;
      EXPECT_EQ(run.start.step, job_.steps - 1);
    }
  }
}

// Bug it must catch: an attempt whose load failed stands in the lineage as one that began at step
// 0, and the good checkpoints of the attempts before are not loadable any more.
TEST(StartState, NothingIsWrittenDownBeforeItIsLoaded) {
  JobConfig job = TinyJob(FreshDirectory("start_lineage"));
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  const std::string directory = job.checkpoint->directory, saved = Newest(directory).path();
  const std::string file = saved + "/rank-0.bin", aside = directory + "/aside";
  std::filesystem::rename(file, aside);
  job.steps = 3;
  EXPECT_FALSE(RunJob(job, {.epoch = 2, .resume = true})[0].status.ok());
  EXPECT_FALSE(Exists(absl::StrCat(EpochPath(directory, 2), "/", kLineageName)));
  std::filesystem::rename(aside, file);
  const RankRun run = RunJob(job, {.epoch = 3, .resume = true})[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.start.step, 2);
}

}  // namespace
}  // namespace trainyard::testing
