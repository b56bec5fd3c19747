// Proves that saving, claiming and retention survive a failure at every single call that changes
// the file system: an error, a killed process, a power cut that loses what was not synced. After
// each, the newest good checkpoint loads, and it is the new one wherever the save said so.

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/train/checkpoint/faulty_storage.h"
#include "tests/train/checkpoint/fixture.h"

namespace trainyard::testing_checkpoint {
namespace {

struct Sweep {
  const char* name;
  Fault fault;
  int seeds;  // A power cut loses another part of what was not synced with each.
};
void PrintTo(const Sweep& sweep, std::ostream* out) { *out << sweep.name; }

class EveryCall : public ::testing::TestWithParam<Sweep> {
 protected:
  // Runs attempt(storage, run directory) with the fault at the 1st, 2nd, ... call until it runs
  // through without one; after each calls check(run directory, what attempt returned).
  template <typename Prepare, typename Attempt, typename Check>
  void ForEveryCall(Prepare&& prepare, Attempt&& attempt, Check&& check) {
    const std::string top = TestDirectory();
    int calls = 0;
    for (bool hit = true; hit;) {
      ++calls;
      for (int seed = 0; seed < GetParam().seeds; ++seed) {
        SCOPED_TRACE(absl::StrCat("call ", calls, ", seed ", seed));
        const std::string directory = top + "/run", graveyard = top + "/graveyard";
        std::filesystem::remove_all(directory);
        std::filesystem::remove_all(graveyard);
        std::filesystem::create_directories(directory);
        std::filesystem::create_directories(graveyard);
        FaultyStorage sound(Fault::kNone, 0, 0, graveyard);
        prepare(sound, directory);
        FaultyStorage storage(GetParam().fault, calls, uint64_t(seed), graveyard);
        const absl::Status status = attempt(storage, directory);
        if (GetParam().fault == Fault::kPowerCut) storage.LosePower();
        hit = storage.hit();
        check(sound, directory, status);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    EXPECT_GT(calls, 3);
  }
};

int64_t NewestStep(const std::string& directory) {
  const auto candidates = CompleteCheckpoints(directory);
  EXPECT_TRUE(candidates.ok()) << candidates.status();
  const auto chosen = NewestGood(*candidates);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  if (!chosen.ok() || !chosen->checkpoint) return -1;
  const int64_t step = chosen->checkpoint->state().step;
  ExpectHolds(*chosen->checkpoint, step);
  return step;
}

// Whatever is there completely is good: catches a removal that takes the data before the manifest.
void ExpectCompleteAreGood(const std::string& directory) {
  const std::vector<std::string> paths = CompleteCheckpoints(directory).value();
  for (const std::string& path : paths) EXPECT_TRUE(Checkpoint::Open(path).ok()) << path;
}

// The next attempt works as if nothing had been, and leaves nothing of the failed one.
void ExpectNextAttemptWorks(Storage& sound, const std::string& directory, int64_t epoch,
                            int64_t step) {
  ASSERT_TRUE(ClaimDirectory(directory, "j-1", epoch, sound).ok());
  ASSERT_TRUE(Save(directory, epoch, step, sound).ok());
  ASSERT_TRUE(ApplyRetention(directory, {.keep = 1, .epoch = epoch}, sound).ok());
  EXPECT_EQ(NewestStep(directory), step);
  const auto listed = ListCheckpoints(directory);
  ASSERT_EQ(listed->size(), 1u) << listed->at(1).path;
}

// A run's first save: before it there is nothing, after it the checkpoint or still nothing.
TEST_P(EveryCall, FirstSaveIsThereOrNot) {
  ForEveryCall([](Storage&, const std::string&) {},
               [](Storage& storage, const std::string& directory) -> absl::Status {
                 absl::Status status = ClaimDirectory(directory, "j-1", 1, storage);
                 return status.ok() ? Save(directory, 1, 10, storage).status() : status;
               },
               [](Storage& sound, const std::string& directory, const absl::Status& status) {
                 EXPECT_THAT(NewestStep(directory), ::testing::AnyOf(-1, 10));
                 if (status.ok()) {
                   EXPECT_EQ(NewestStep(directory), 10);
                 }
                 ExpectNextAttemptWorks(sound, directory, 2, 20);
               });
}

// The directory passes to another job or does not, and its checkpoint stays; then the job's next
// attempt has it.
TEST_P(EveryCall, ATakeOverIsDoneOrNot) {
  ForEveryCall(
      [](Storage& sound, const std::string& directory) {
        ASSERT_TRUE(ClaimDirectory(directory, "j-0", 1, sound).ok());
        ASSERT_TRUE(Save(directory, 1, 10, sound).ok());
      },
      [](Storage& storage, const std::string& directory) {
        return ClaimDirectory(directory, "j-1", 2, storage, "j-0");
      },
      [](Storage& sound, const std::string& directory, const absl::Status& status) {
        const absl::StatusOr<std::optional<Owner>> owner = FindOwner(directory);
        ASSERT_TRUE(owner.ok() && owner->has_value()) << owner.status();
        EXPECT_THAT((*owner)->job_id, ::testing::AnyOf("j-0", "j-1"));
        if (status.ok()) {
          EXPECT_EQ((*owner)->job_id, "j-1");
        }
        EXPECT_EQ(NewestStep(directory), 10);
        ASSERT_TRUE(ClaimDirectory(directory, "j-1", 3, sound, "j-0").ok());
        EXPECT_FALSE(ClaimDirectory(directory, "j-0", 4, sound).ok());
        EXPECT_TRUE(FindOwner(directory).value()->is_published);
        ExpectNextAttemptWorks(sound, directory, 3, 20);
      });
}

// Later saves with retention, of which the older ones must never be the price.
TEST_P(EveryCall, SaveAndRetentionKeepTheNewestGood) {
  ForEveryCall(
      [](Storage& sound, const std::string& directory) {
        ASSERT_TRUE(ClaimDirectory(directory, "j-1", 1, sound).ok());
        ASSERT_TRUE(Save(directory, 1, 10, sound).ok());
        ASSERT_TRUE(Save(directory, 1, 20, sound).ok());
      },
      [](Storage& storage, const std::string& directory) -> absl::Status {
        absl::Status status = Save(directory, 1, 30, storage).status();
        // Not even a failed save may be followed by a harmful retention.
        ApplyRetention(directory, {.keep = 1, .epoch = 1}, storage).IgnoreError();
        return status;
      },
      [](Storage& sound, const std::string& directory, const absl::Status& status) {
        ExpectCompleteAreGood(directory);
        EXPECT_THAT(NewestStep(directory), ::testing::AnyOf(20, 30));
        if (status.ok()) {
          EXPECT_EQ(NewestStep(directory), 30);
        }
        ExpectNextAttemptWorks(sound, directory, 1, 40);
      });
}

// A step that is written a second time (its first version was damaged) costs at most itself.
TEST_P(EveryCall, ReplacingADamagedStepKeepsTheOneBefore) {
  ForEveryCall(
      [](Storage& sound, const std::string& directory) {
        ASSERT_TRUE(ClaimDirectory(directory, "j-1", 0, sound).ok());
        ASSERT_TRUE(Save(directory, 0, 10, sound).ok());
        ASSERT_TRUE(Save(directory, 0, 20, sound).ok());
        std::filesystem::resize_file(CheckpointPath(directory, 0, 20) + "/rank-0.bin", 5);
      },
      [](Storage& storage, const std::string& directory) {
        return Save(directory, 0, 20, storage).status();
      },
      [](Storage& sound, const std::string& directory, const absl::Status& status) {
        EXPECT_THAT(NewestStep(directory), ::testing::AnyOf(10, 20));
        if (status.ok()) {
          EXPECT_EQ(NewestStep(directory), 20);
        }
        ExpectNextAttemptWorks(sound, directory, 0, 30);
      });
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryCall,
                         ::testing::Values(Sweep{"error", Fault::kError, 1},
                                           Sweep{"kill", Fault::kKill, 1},
                                           Sweep{"power cut", Fault::kPowerCut, 10}));

}  // namespace
}  // namespace trainyard::testing_checkpoint
