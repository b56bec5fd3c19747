// Proves that a job's directory alone says what may be loaded: an attempt goes on from what the one
// that it continues had saved, whoever recorded it, and never from what a superseded attempt saved
// afterwards. And that history follows the same line.

#include "train/checkpoint/lineage.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/train/checkpoint/faulty_storage.h"
#include "tests/train/checkpoint/fixture.h"
#include "train/checkpoint/history.h"

namespace trainyard::testing_checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Names(const std::vector<ListedCheckpoint>& listed) {
  std::vector<std::string> names;
  for (const ListedCheckpoint& c : listed) names.push_back(absl::StrCat(c.epoch, "/", c.step));
  return names;
}

std::vector<std::string> Loadable(const std::string& directory) {
  const auto listed = LoadableCheckpoints(directory);
  EXPECT_TRUE(listed.ok()) << listed.status();
  return Names(*listed);
}

// Taken for damaged, it would let an older trainer go on from what a superseded attempt saved.
TEST(Lineage, OneThatANewerTrainyardWroteIsRefusedAndNotDamaged) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  const std::string path = directory + "/epoch-1/" + kLineageName;
  ASSERT_TRUE(WriteFileAtomic(path, R"({"version": 2, "epoch": 1, "continues": null})").ok());
  const absl::Status status = LoadableCheckpoints(directory).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("wanted version 1, found 2"));
}

// Bugs it must catch: a rank that waits for a pipe's writer for ever, and one that a name ends.
TEST(Lineage, SaysWhatAnAttemptBeganWithWhateverLiesThere) {
  const std::string directory = TestDirectory();
  const auto begin = [&](int64_t epoch, const std::string& path) {
    ASSERT_TRUE(BeginEpoch(directory, epoch, LocalStorage()).ok());
    const InitialisedFrom from = {.named = "source", .path = path, .sha256 = "12"};
    ASSERT_TRUE(WriteLineage(directory, epoch, std::nullopt, LocalStorage(), from).ok());
  };
  begin(1, "in Latin-1: \xe9");
  EXPECT_EQ(ReadInitialisedFrom(directory, "source").value(), std::nullopt);
  ASSERT_TRUE(BeginEpoch(directory, 2, LocalStorage()).ok());
  ASSERT_EQ(mkfifo((directory + "/epoch-2/" + kLineageName).c_str(), 0600), 0);
  begin(3, "source/step-3");
  EXPECT_EQ(ReadInitialisedFrom(directory, "source").value()->path, "source/step-3");
}

TEST(Lineage, AnAbsentOrEmptyDirectoryHasNothingToLoad) {
  const std::string directory = TestDirectory();
  EXPECT_THAT(Loadable(directory + "/none"), IsEmpty());
  EXPECT_THAT(Loadable(directory), IsEmpty());
  Begin(directory, 1, std::nullopt);
  EXPECT_THAT(Loadable(directory), IsEmpty());
}

TEST(Lineage, HoldsWhatTheNewestAttemptContinuesAndNothingSavedLater) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  for (const int step : {10, 20, 30}) ASSERT_TRUE(Save(directory, 1, step).ok());
  Begin(directory, 2, Continued{1, 20});
  EXPECT_THAT(Loadable(directory), ElementsAre("1/20", "1/10"));
  // The superseded attempt goes on saving beside its successor.
  ASSERT_TRUE(Save(directory, 1, 40).ok());
  ASSERT_TRUE(Save(directory, 2, 30).ok());
  EXPECT_THAT(Loadable(directory), ElementsAre("2/30", "1/20", "1/10"));
  Begin(directory, 5, Continued{2, 30});
  ASSERT_TRUE(Save(directory, 2, 50).ok());
  EXPECT_THAT(Loadable(directory), ElementsAre("2/30", "1/20", "1/10"));
  const auto found = FindCheckpoint(directory);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->checkpoint->path(), ::testing::EndsWith("/epoch-2/step-30"));
}

TEST(Lineage, SaysWhereItsAttemptsBegan) {
  const Lineage lineage = {{{7, INT64_MAX}, {4, 60}, {1, 20}}};
  const auto starts = StartsAfter(lineage, 1);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].epoch, 4);
  EXPECT_EQ(starts[0].step, 20);
  EXPECT_EQ(starts[1].epoch, 7);
  EXPECT_EQ(starts[1].step, 60);
  EXPECT_EQ(StartsAfter(lineage, 0).front().step, 0u);
  EXPECT_THAT(StartsAfter(lineage, 7), IsEmpty());
}

TEST(Lineage, LeavesOutAttemptsThatChoseNothing) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  ASSERT_TRUE(ClaimDirectory(directory, "j-1", 2, LocalStorage()).ok());
  EXPECT_THAT(Loadable(directory), ElementsAre("1/10"));
  // And one that starts afresh, because nothing was good, begins a line of its own.
  Begin(directory, 3, std::nullopt);
  EXPECT_THAT(Loadable(directory), IsEmpty());
}

// A directory of a version before lineage files, and one whose file a disk has damaged.
TEST(Lineage, WithoutAFileEverythingBeforeCounts) {
  const std::string directory = TestDirectory();
  for (const auto& [epoch, step] : {std::pair(1, 10), std::pair(1, 20), std::pair(2, 15)}) {
    ASSERT_TRUE(Save(directory, epoch, step).ok());
  }
  EXPECT_THAT(Loadable(directory), ElementsAre("2/15", "1/20", "1/10"));
  Begin(directory, 3, Continued{2, 15});
  EXPECT_THAT(Loadable(directory), ElementsAre("2/15", "1/20", "1/10"));
  for (const char* damaged : {"", "{", "[]", R"({"version": 1, "continues": {"epoch": 3}})",
                              R"({"version": 1, "continues": {"epoch": 3, "step": 1}})"}) {
    ASSERT_TRUE(WriteFileAtomic(EpochPath(directory, 3) + "/lineage.json", damaged).ok());
    EXPECT_THAT(Loadable(directory), ElementsAre("2/15", "1/20", "1/10")) << damaged;
  }
}

TEST(Lineage, RetentionRemovesWhatLiesOutsideAndKeepsTheLine) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  for (const int step : {10, 20, 30}) ASSERT_TRUE(Save(directory, 1, step).ok());
  Begin(directory, 2, Continued{1, 20});
  for (const int step : {25, 28}) ASSERT_TRUE(Save(directory, 2, step).ok());
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 2, .epoch = 2}, LocalStorage()).ok());
  EXPECT_THAT(Names(ListCheckpoints(directory).value()), ElementsAre("2/28", "2/25"));
  // A superseded attempt removes nothing.
  ASSERT_TRUE(Save(directory, 1, 50).ok());
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 1}, LocalStorage()).ok());
  EXPECT_THAT(Names(ListCheckpoints(directory).value()), ElementsAre("2/28", "2/25", "1/50"));
}

TEST(CheckNewest, SeesALaterAttemptAndExcusesADirectoryThatIsAway) {
  const std::string directory = TestDirectory();
  Begin(directory, 4, std::nullopt);
  EXPECT_TRUE(CheckNewest(directory, 4).ok());
  EXPECT_TRUE(IsSuperseded(CheckNewest(directory, 3)));
  EXPECT_TRUE(CheckNewest(directory + "/away", 3).ok());
  EXPECT_FALSE(IsSuperseded(StorageFault(directory, "is away")));
  EXPECT_FALSE(IsStorageFault(CheckNewest(directory, 3)));
}

// Whatever happens while an attempt begins: what the one before had saved stays loadable.
TEST(Lineage, SurvivesAFaultAtEveryCallOfABeginning) {
  const std::string top = TestDirectory();
  for (const Fault fault : {Fault::kError, Fault::kKill, Fault::kPowerCut}) {
    bool hit = true;
    for (int call = 1; hit; ++call) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        SCOPED_TRACE(absl::StrCat("fault ", int(fault), " at call ", call, ", seed ", seed));
        const std::string directory = top + "/run", graveyard = top + "/graveyard";
        for (const std::string& path : {directory, graveyard}) {
          std::filesystem::remove_all(path);
          std::filesystem::create_directories(path);
        }
        Begin(directory, 1, std::nullopt);
        for (const int step : {10, 20}) ASSERT_TRUE(Save(directory, 1, step).ok());
        FaultyStorage storage(fault, call, seed, graveyard);
        const bool begun = ClaimDirectory(directory, "j-1", 2, storage).ok() &&
                           WriteLineage(directory, 2, Continued{1, 20}, storage).ok();
        if (fault == Fault::kPowerCut) storage.LosePower();
        hit = storage.hit();
        EXPECT_EQ(begun, !hit);
        EXPECT_THAT(Loadable(directory), ElementsAre("1/20", "1/10"));
        Begin(directory, 3, Continued{1, 20});
        EXPECT_THAT(Loadable(directory), ElementsAre("1/20", "1/10"));
      }
    }
  }
}

TEST(History, FollowsTheLineageFromTheStepThatIsKnown) {
  const std::string directory = TestDirectory();
  const auto line = [](int step, const char* who) {
    return absl::StrCat(R"({"step":)", step, R"(,"who":")", who, "\"}\n");
  };
  Begin(directory, 1, std::nullopt);
  ASSERT_TRUE(AppendHistory(directory, 1, line(1, "a") + line(2, "a"), LocalStorage()).ok());
  ASSERT_TRUE(AppendHistory(directory, 1, line(3, "a") + line(4, "a"), LocalStorage()).ok());
  Begin(directory, 2, Continued{1, 3});
  ASSERT_TRUE(AppendHistory(directory, 1, line(5, "late"), LocalStorage()).ok());
  ASSERT_TRUE(AppendHistory(directory, 2, line(4, "b") + "{\"step\":5,", LocalStorage()).ok());
  ASSERT_TRUE(AppendHistory(directory, 2, line(5, "b"), LocalStorage()).ok());
  std::vector<std::string> read;
  ::testing::internal::CaptureStderr();
  ReadHistory(directory, ReadLineage(directory).value(), 1,
              [&](int64_t epoch, const std::string& text) {
                read.push_back(absl::StrCat(epoch, " ", text));
              });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("history_lines_damaged"), HasSubstr("lines_left_out=1")));
  EXPECT_THAT(read, ElementsAre(R"(1 {"step":2,"who":"a"})", R"(1 {"step":3,"who":"a"})",
                                R"(2 {"step":4,"who":"b"})", R"(2 {"step":5,"who":"b"})"));
}

// Bug it must catch: 18 GB a day of a tiny job.
TEST(History, AStepWithADamagedNumberHidesNoOther) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  std::string lines;
  for (const int step : {1, 2, 93, 4, 5, 6, 7, 81})
    absl::StrAppend(&lines, "{\"step\":", step, "}\n");
  ASSERT_TRUE(AppendHistory(directory, 1, lines, LocalStorage()).ok());
  std::vector<std::string> read;
  ::testing::internal::CaptureStderr();
  ReadHistory(directory, {{{1, 10}}}, 0,
              [&](int64_t, const std::string& line) { read.push_back(line); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("lines_left_out=1"));
  EXPECT_THAT(read, ElementsAre("{\"step\":1}", "{\"step\":2}", "{\"step\":4}", "{\"step\":5}",
                                "{\"step\":6}", "{\"step\":7}"));
}

TEST(History, OldLinesAreThinnedAndNewOnesStayWhole) {
  const std::string directory = TestDirectory(), path = directory + "/epoch-1/steps.jsonl";
  Begin(directory, 1, std::nullopt);
  const std::string rest = absl::StrCat(R"(,"text":")", std::string(960, 'x'), "\"}\n");
  int64_t step = 0;
  for (int append = 0; append < 60; ++append) {
    std::string lines;
    for (int i = 0; i < 4000; ++i) absl::StrAppend(&lines, R"({"step":)", ++step, rest);
    ASSERT_TRUE(AppendHistory(directory, 1, lines, LocalStorage()).ok());
    ASSERT_LE(std::filesystem::file_size(path), kMostHistoryBytes);
  }
  std::vector<int64_t> steps;
  ReadHistory(directory, ReadLineage(directory).value(), 0, [&](int64_t, const std::string& line) {
    steps.push_back(nlohmann::json::parse(line)["step"].get<int64_t>());
  });
  EXPECT_LE(steps.front(), 64);
  EXPECT_EQ(steps.back(), step);
  int64_t whole = 0;
  while (steps[steps.size() - 1 - size_t(whole)] == step - whole) ++whole;
  EXPECT_GE(whole * 980, int64_t(kMostHistoryBytes / 2) - (1 << 22));
  for (size_t i = 1; i < steps.size(); ++i) ASSERT_LE(steps[i] - steps[i - 1], 64);
}

// Bug it must catch: nobody can go on after such an attempt, and the job ended for good.
TEST(Lineage, AnEpochThatNoAttemptCanHaveIsIgnored) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  ASSERT_TRUE(Save(directory, 1, 10).ok());
  for (const char* name : {"epoch-9223372036854775807", "epoch-1125899906842625"}) {
    ASSERT_TRUE(MakeDirectories(absl::StrCat(directory, "/", name)).ok());
  }
  EXPECT_TRUE(CheckNewest(directory, 2).ok());
  Begin(directory, 2, Continued{1, 10});
  ASSERT_TRUE(Save(directory, 2, 20).ok());
  EXPECT_THAT(Loadable(directory), ElementsAre("2/20", "1/10"));
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = 2}, LocalStorage()).ok());
  EXPECT_THAT(Loadable(directory), ElementsAre("2/20"));
  EXPECT_TRUE(Exists(directory + "/epoch-9223372036854775807")) << "it is not ours to remove";
  // The greatest that an attempt can have supersedes as before.
  ASSERT_TRUE(MakeDirectories(directory + "/epoch-1125899906842624").ok());
  EXPECT_TRUE(IsSuperseded(CheckNewest(directory, 2)));
}

// Bug it must catch: an empty line, at which `for line in file: json.loads(line)` ends.
TEST(History, HasOneObjectALine) {
  const std::string directory = TestDirectory();
  Begin(directory, 1, std::nullopt);
  const auto written = [&] { return ReadFile(directory + "/epoch-1/" + kHistoryName).value(); };
  ASSERT_TRUE(AppendHistory(directory, 1, "{\"step\":1}\n{\"step\":2}\n", LocalStorage()).ok());
  ASSERT_TRUE(AppendHistory(directory, 1, "{\"step\":3}\n", LocalStorage()).ok());
  EXPECT_EQ(written(), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  // Only a failed append leaves a line that is no object.
  ASSERT_TRUE(AppendHistory(directory, 1, "{\"ste", LocalStorage()).ok());
  ASSERT_TRUE(AppendHistory(directory, 1, "{\"step\":4}\n", LocalStorage()).ok());
  EXPECT_THAT(written(), ::testing::EndsWith("{\"step\":3}\n{\"ste\n{\"step\":4}\n"));
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
