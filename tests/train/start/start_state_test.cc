// Proves from which state an attempt starts, where the job names another's weights (init_from):
// from them until it has a checkpoint of its own, and never from them afterwards.

#include "train/start/start_state.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/train/checkpoint/signed.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/claim.h"
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
    job_.optimizer.options["learning_rate"] = 1e-300;  // Too small to move anything.
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

// A directory whose job trains on: each attempt begins with what the first one took.
TEST_F(InitFrom, OfADirectoryIsTheSameCheckpointInEveryAttempt) {
  const std::string taken = job_.init_from, own = job_.checkpoint->directory;
  job_.init_from = source_;
  ASSERT_TRUE(RunJob(job_)[0].status.ok());
  const auto written = ReadInitialisedFrom(own, job_.init_from);
  ASSERT_TRUE(written.ok() && *written) << written.status();
  EXPECT_EQ((*written)->path, taken);
  EXPECT_EQ((*written)->sha256, Checkpoint::Open(taken)->manifest().sha256);
  EXPECT_EQ(ReadInitialisedFrom(own, "another").value(), std::nullopt);

  // As if the attempt had died before its first checkpoint.
  std::filesystem::remove_all(Newest(own).path());
  JobConfig more = TinyJob(source_);
  more.steps = 3;
  ASSERT_TRUE(RunJob(more, {.epoch = 2, .resume = true})[0].status.ok());
  ASSERT_NE(Newest(source_).path(), taken);
  for (const bool told : {true, false}) {  // By a controller that the job has begun.
    SCOPED_TRACE(told);
    const auto runs = RunJob(job_, {.ranks = 2, .epoch = told ? 2 : 3, .resume = told});
    ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
    const auto wanted = ReadTensors(*Checkpoint::Open(taken)), found = ReadTensors(Newest(own));
    for (const auto& [name, values] : wanted) {
      if (!name.ends_with("/parameter")) continue;
      EXPECT_EQ(found.at(name), values) << name;
    }
    std::filesystem::remove_all(Newest(own).path());
  }

  // None at its place, for good: the job must not begin again for ever.
  std::filesystem::rename(taken, source_ + "-aside");
  auto runs = RunJob(job_, {.ranks = 2, .epoch = 4, .resume = true});
  EXPECT_TRUE(absl::IsInvalidArgument(runs[0].status)) << runs[0].status;
  EXPECT_THAT(std::string(runs[0].status.message()), HasSubstr("found it removed from"));
  // The share is away, which a host without it says, whoever told what.
  std::filesystem::rename(source_, source_ + "-away");
  for (const bool told : {true, false}) {
    runs = RunJob(job_, {.ranks = 2, .epoch = told ? 5 : 6, .resume = told});
    EXPECT_TRUE(IsStorageFault(runs[0].status)) << runs[0].status;
    EXPECT_TRUE(absl::IsUnavailable(runs[1].status)) << runs[1].status;
  }
  std::filesystem::rename(source_ + "-away", source_);
  std::filesystem::remove_all(source_ + "-aside");
  // Another one, for good, too.
  JobConfig other = TinyJob(source_ + "/other");
  other.seed = 6;
  ASSERT_TRUE(RunJob(other)[0].status.ok());
  std::filesystem::copy(Newest(source_ + "/other").path(), taken);
  for (const bool told : {true, false}) {
    runs = RunJob(job_, {.ranks = 2, .epoch = told ? 7 : 8, .resume = told});
    for (const RankRun& run : runs) EXPECT_TRUE(absl::IsInvalidArgument(run.status)) << run.status;
    EXPECT_THAT(std::string(runs[0].status.message()), HasSubstr("found another one in its place"));
  }
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

// Bug it must catch: the weights of a model with short sequences cannot start one with longer ones.
TEST_F(InitFrom, MayBeOfAModelWithAnotherLengthAndBase) {
  job_.model.architecture->fields["max_seq"] = int64_t{4096};
  job_.model.architecture->fields["rope_base"] = 1e6;
  const auto runs = RunJob(job_, {.ranks = 2});
  for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  ExpectItsParameters(job_.checkpoint->directory);
}

// Bug it must catch: heads of another width have the same shapes, and another meaning.
TEST_F(InitFrom, OfOtherHeadsIsRefused) {
  GivenFields& fields = job_.model.architecture->fields;
  fields["heads"] = int64_t{2};
  fields["kv_heads"] = int64_t{1};
  fields["head_dim"] = int64_t{8};
  for (const bool subset : {false, true}) {
    job_.init_from_subset = subset;
    EXPECT_THAT(std::string(RunJob(job_)[0].status.message()), HasSubstr(": heads is "));
  }
}

// Every layer that the checkpoint has is taken, on whichever stage, and the others are as they
// would be without a checkpoint.
TEST_F(InitFrom, OfFewerLayersFillsThoseThatItHasWhereThatIsAsked) {
  JobConfig fresh = job_;
  job_.model.architecture->fields["layers"] = int64_t{4};
  EXPECT_THAT(std::string(RunJob(job_)[0].status.message()), HasSubstr(": layers is 2, wanted 4"));
  fresh.model = job_.model;
  fresh.init_from.clear();
  fresh.checkpoint->directory = FreshDirectory("start_fresh");
  ASSERT_TRUE(RunJob(fresh)[0].status.ok());
  job_.init_from_subset = true;
  job_.parallelism.pipeline = 2;
  const auto runs = RunJob(job_, {.ranks = 2});
  for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  const auto source = ReadTensors(Newest(source_)),
             initial = ReadTensors(Newest(fresh.checkpoint->directory));
  int taken = 0, begun = 0;
  for (const auto& [name, values] : ReadTensors(Newest(job_.checkpoint->directory))) {
    if (!name.ends_with("/parameter")) continue;
    const auto from = source.find(name);
    ++(from != source.end() ? taken : begun);
    EXPECT_EQ(values, from != source.end() ? from->second : initial.at(name)) << name;
  }
  EXPECT_GT(taken, 0);
  EXPECT_EQ(begun % 2, 0) << "of two layers";
  EXPECT_GT(begun, 0);
}

// Bug it must catch: a job that asked for a model's weights trains from random ones.
TEST_F(InitFrom, ThatHasNoneOfTheParametersIsRefused) {
  const std::string path = absl::StrCat(job_.init_from, "/manifest.json");
  auto json = nlohmann::json::parse(ReadFile(path).value());
  json.erase("manifest_sha256");
  for (auto& tensor : json["tensors"])
    tensor["name"] = absl::StrCat("old.", std::string(tensor["name"]));
  std::ofstream(path) << testing_checkpoint::Signed(json);
  job_.init_from_subset = true;
  const auto runs = RunJob(job_, {.ranks = 2});
  for (const RankRun& run : runs) {
    EXPECT_TRUE(absl::IsInvalidArgument(run.status)) << run.status;
    EXPECT_THAT(std::string(run.status.message()), HasSubstr("found none"));
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
