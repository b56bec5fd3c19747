// Proves which checkpoint of a run is the best, that retention keeps it, and that "DIR/best" names
// it. A loss counts only with the state that was measured, in the run's own line of attempts.

#include "train/checkpoint/best.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <limits>

#include "tests/train/checkpoint/fixture.h"
#include "tests/train/checkpoint/signed.h"

namespace trainyard::testing_checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

void SaveWith(const std::string& directory, int64_t epoch, int64_t step, std::optional<double> loss,
              const std::string& measure = "m") {
  RunState state = State(epoch, step);
  if (loss) state.validation = ValidationResult{.loss = *loss, .measure = measure};
  const std::vector<TestTensor> tensors = Tensors(step);
  const auto saved = SaveCheckpoint(directory, state, Sources(tensors), LocalStorage());
  ASSERT_TRUE(saved.ok()) << saved.status();
}

std::vector<std::string> AttemptsAndSteps(const std::vector<ListedCheckpoint>& listed) {
  std::vector<std::string> names;
  for (const ListedCheckpoint& c : listed) names.push_back(absl::StrCat(c.epoch, "/", c.step));
  return names;
}

std::vector<std::string> BestFirst(const std::string& directory) {
  OpenedCheckpoints opened;
  return AttemptsAndSteps(OrderByLoss(LoadableCheckpoints(directory).value(), opened).best_first);
}

class Best : public ::testing::Test {
 protected:
  Best() : directory_(TestDirectory()) { Begin(directory_, 1, std::nullopt); }
  void Retain(int64_t keep, int64_t keep_best, int64_t epoch = 1) {
    const Retention retention = {.keep = keep, .epoch = epoch, .keep_best = keep_best};
    ASSERT_TRUE(ApplyRetention(directory_, retention, LocalStorage()).ok());
  }
  bool AmongBest(const ValidationResult& validation, int64_t most) const {
    OpenedCheckpoints opened;
    return IsAmongBest(directory_, validation, most, opened).value();
  }
  std::vector<std::string> Left() const {
    return AttemptsAndSteps(ListCheckpoints(directory_).value());
  }
  const std::string directory_;
};

TEST_F(Best, LossIsKeptToTheBit) {
  const double loss = 0.1 + 0.2;
  SaveWith(directory_, 1, 10, loss, "0123456789abcdef");
  SaveWith(directory_, 1, 20, std::nullopt);
  const auto with = Checkpoint::Open(CheckpointPath(directory_, 1, 10));
  EXPECT_EQ(with->state().validation, (ValidationResult{loss, "0123456789abcdef"}));
  EXPECT_FALSE(Checkpoint::Open(CheckpointPath(directory_, 1, 20))->state().validation);
}

TEST_F(Best, LossThatIsNoNumberIsRefused) {
  for (const double loss :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    RunState state = State(1, 10);
    state.validation = ValidationResult{.loss = loss, .measure = "m"};
    const std::vector<TestTensor> tensors = Tensors(10);
    const absl::Status refused =
        SaveCheckpoint(directory_, state, Sources(tensors), LocalStorage()).status();
    EXPECT_THAT(std::string(refused.message()), HasSubstr("wanted a finite loss"));
    EXPECT_FALSE(AmongBest(*state.validation, 1));
  }
}

TEST_F(Best, ComesFirstAndAmongEqualOnesTheNewest) {
  SaveWith(directory_, 1, 10, 3);
  SaveWith(directory_, 1, 20, 1);
  SaveWith(directory_, 1, 30, std::nullopt);
  SaveWith(directory_, 1, 40, 1);
  SaveWith(directory_, 1, 50, 2);
  EXPECT_THAT(BestFirst(directory_), ElementsAre("1/40", "1/20", "1/50", "1/10"));
}

// The run went on with other data. Bug it must catch: a loss of an easier text stays the best.
TEST_F(Best, LossesOfAnotherMeasureAreNotCompared) {
  SaveWith(directory_, 1, 10, 1, "before");
  SaveWith(directory_, 1, 20, 3, "now");
  SaveWith(directory_, 1, 30, 4, "now");
  SaveWith(directory_, 1, 40, std::nullopt);
  EXPECT_THAT(BestFirst(directory_), ElementsAre("1/20", "1/30"));
  EXPECT_TRUE(AmongBest({.loss = 9, .measure = "later"}, 1));
  EXPECT_FALSE(AmongBest({.loss = 9, .measure = "now"}, 1));
}

TEST_F(Best, StateIsWorthKeepingIfFewAreAsGood) {
  EXPECT_TRUE(AmongBest({.loss = 5, .measure = "m"}, 1));
  SaveWith(directory_, 1, 10, 2);
  SaveWith(directory_, 1, 20, 4);
  EXPECT_TRUE(AmongBest({.loss = 1, .measure = "m"}, 1));
  EXPECT_FALSE(AmongBest({.loss = 2, .measure = "m"}, 1)) << "as good";
  EXPECT_FALSE(AmongBest({.loss = 3, .measure = "m"}, 1));
  EXPECT_TRUE(AmongBest({.loss = 3, .measure = "m"}, 2));
  EXPECT_FALSE(AmongBest({.loss = 5, .measure = "m"}, 2));
  EXPECT_FALSE(AmongBest({.loss = 1, .measure = "m"}, 0));
}

TEST_F(Best, StaysBesideTheNewest) {
  for (const auto& [step, loss] : {std::pair(10, 3.), std::pair(20, 1.), std::pair(30, 2.),
                                   std::pair(40, 5.), std::pair(50, 4.)}) {
    SaveWith(directory_, 1, step, loss);
  }
  Retain(2, 1);
  EXPECT_THAT(Left(), ElementsAre("1/50", "1/40", "1/20"));
  // One checkpoint may be both.
  SaveWith(directory_, 1, 60, 0.5);
  Retain(2, 1);
  EXPECT_THAT(Left(), ElementsAre("1/60", "1/50"));
  Retain(1, 2);
  EXPECT_THAT(Left(), ElementsAre("1/60", "1/50"));
  Retain(1, 0);
  EXPECT_THAT(Left(), ElementsAre("1/60"));
}

// What cannot be read at the moment must not cost the best state. Here a later release wrote it.
TEST_F(Best, OneThatCannotBeReadStays) {
  for (const int64_t step : {10, 20, 30}) SaveWith(directory_, 1, step, double(step));
  const std::string manifest = CheckpointPath(directory_, 1, 10) + "/" + kManifestName;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(ReadFile(manifest).value());
  json.erase("manifest_sha256");
  json["version"] = 99;
  ASSERT_TRUE(WriteFileAtomic(manifest, Signed(json)).ok());
  Retain(1, 1);
  EXPECT_THAT(Left(), ElementsAre("1/30", "1/20", "1/10"));
}

TEST_F(Best, DoesNotStayWithoutTheField) {
  SaveWith(directory_, 1, 10, 1);
  SaveWith(directory_, 1, 20, 2);
  Retain(1, 0);
  EXPECT_THAT(Left(), ElementsAre("1/20"));
}

// Step 40 was lost: the next attempt went on from step 20, and trained other weights.
TEST_F(Best, OneAheadOfWhereTheRunWentOnIsForgotten) {
  SaveWith(directory_, 1, 10, 3);
  SaveWith(directory_, 1, 20, 2);
  SaveWith(directory_, 1, 40, 1);
  Begin(directory_, 2, Continued{1, 20});
  EXPECT_THAT(BestFirst(directory_), ElementsAre("1/20", "1/10"));
  EXPECT_TRUE(AmongBest({.loss = 1.5, .measure = "m"}, 1));
  SaveWith(directory_, 2, 30, 2.5);
  SaveWith(directory_, 2, 40, 2.6);
  Retain(1, 1, 2);
  EXPECT_THAT(Left(), ElementsAre("2/40", "1/20"));
}

TEST_F(Best, HasAPath) {
  SaveWith(directory_, 1, 10, 1);
  SaveWith(directory_, 1, 20, 2);
  for (const char* ending : {"/best", "/best/"}) {
    const auto found = FindCheckpoint(directory_ + ending);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(found->checkpoint->path(), EndsWith("/epoch-1/step-10"));
    EXPECT_THAT(found->refused, IsEmpty());
  }
  EXPECT_THAT(FindCheckpoint(directory_)->checkpoint->path(), EndsWith("/epoch-1/step-20"));
  // Only of a job's directory.
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint(directory_ + "/epoch-1/best").status()));
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint(directory_ + "/nowhere/best").status()));
}

TEST_F(Best, DirectoryOfThatNameGoesBefore) {
  SaveWith(directory_, 1, 10, 1);
  ASSERT_TRUE(MakeDirectories(directory_ + "-copy").ok());
  std::filesystem::copy(CheckpointPath(directory_, 1, 10), directory_ + "-copy/best",
                        std::filesystem::copy_options::recursive);
  EXPECT_THAT(FindCheckpoint(directory_ + "-copy/best")->checkpoint->path(),
              EndsWith("-copy/best"));
  std::filesystem::remove_all(directory_ + "-copy");
}

TEST_F(Best, DamagedOneIsPassedOverWithTheReason) {
  SaveWith(directory_, 1, 10, 1);
  SaveWith(directory_, 1, 20, 3);
  SaveWith(directory_, 1, 30, 2);
  std::filesystem::resize_file(CheckpointPath(directory_, 1, 10) + "/rank-0.bin", 3);
  const auto found = FindCheckpoint(directory_ + "/best");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->checkpoint->path(), EndsWith("/epoch-1/step-30"));
  EXPECT_THAT(found->refused, ElementsAre(HasSubstr("step-10/rank-0.bin: wanted ")));
  // Retention counts it neither as the best nor as one of the newest.
  Retain(1, 1);
  EXPECT_THAT(Left(), ElementsAre("1/30"));
}

// Bug it must catch: one checkpoint that this release or this host cannot read costs all others.
TEST_F(Best, OneThatCannotBeReadIsLeftOut) {
  for (const int64_t step : {10, 20, 30}) SaveWith(directory_, 1, step, double(step));
  const std::string manifest = CheckpointPath(directory_, 1, 20) + "/" + kManifestName;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(ReadFile(manifest).value());
  json.erase("manifest_sha256");
  json["version"] = 99;
  ASSERT_TRUE(WriteFileAtomic(manifest, Signed(json)).ok());
  const auto found = FindCheckpoint(directory_ + "/best");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->checkpoint->path(), EndsWith("/epoch-1/step-10"));
  // Where nothing else has a loss, the error says which may have one.
  for (const int64_t step : {10, 30}) {
    std::filesystem::remove_all(CheckpointPath(directory_, 1, step));
  }
  const absl::Status none = FindCheckpoint(directory_ + "/best").status();
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("/epoch-1/step-20/manifest.json: wanted version 1 to "));
  EXPECT_THAT(std::string(none.message()), Not(HasSubstr("an older checkpoint")));
}

TEST_F(Best, ErrorNamesWhatIsMissing) {
  SaveWith(directory_, 1, 10, std::nullopt);
  const absl::Status none = FindCheckpoint(directory_ + "/best").status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("checkpoint.keep_best"));
}

}  // namespace
}  // namespace trainyard::testing_checkpoint
