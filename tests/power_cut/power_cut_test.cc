// Proves that no promise is lost in a power cut: a program's own calls are recorded, and after each
// of them the disk is put together as a cut may leave it, with any part of what was not synced, and
// opened by the product. An acknowledged job is there; a checkpoint that was saved can be loaded,
// and one that looks complete is good.
//
// Bugs it must catch: a sync that is missing or comes too late, of a file or of its directory,
// which no kill and no error shows, because the kernel goes on.
//
// POWER_CUT_STATES: how many states of each are opened (all: 0); POWER_CUT_SEED: which.

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "controller/store/sqlite_store.h"
#include "tests/power_cut/trace.h"
#include "train/checkpoint/claim.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/save.h"

namespace trainyard::power_cut {
namespace {

using Files = std::map<std::string, std::string>;

size_t FromEnvironment(const char* name, size_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : size_t(std::stoull(text));
}

// When the power goes, and what it leaves.
struct Cut {
  size_t step;  // The last one that was done.
  Disk::Survives survives;
  size_t which;
  uint64_t seed;
};

// After each step: all that is pending, none of it, all but one and one alone of the newest, and
// two random parts.
std::vector<Cut> CutsOf(const std::vector<Step>& steps, std::mt19937_64& random) {
  constexpr size_t kSingles = 6, kParts = 2;
  std::vector<Cut> cuts;
  Disk disk;
  for (size_t i = 0; i < steps.size(); ++i) {
    disk.Apply(steps[i]);
    cuts.push_back({i, Disk::Survives::kNothing, 0, 0});
    const size_t pending = disk.num_pending();
    if (pending == 0) continue;
    cuts.push_back({i, Disk::Survives::kAll, 0, 0});
    for (size_t which = pending - std::min(pending, kSingles); which < pending; ++which) {
      cuts.push_back({i, Disk::Survives::kAllButOne, which, 0});
      cuts.push_back({i, Disk::Survives::kOneAlone, which, 0});
    }
    for (size_t part = 0; part < kParts; ++part) {
      cuts.push_back({i, Disk::Survives::kAnyPart, 0, random()});
    }
  }
  return cuts;
}

class PowerCut : public ::testing::Test {
 protected:
  PowerCut() {
    EXPECT_TRUE(RemoveTree(root_).ok());
    EXPECT_TRUE(MakeDirectories(root_).ok());
  }
  ~PowerCut() override { EXPECT_TRUE(RemoveTree(root_).ok()); }

  std::vector<Step> Record(const std::string& mode) {
    const std::string directory = root_ + "/recorded", log = root_ + "/log";
    EXPECT_TRUE(MakeDirectories(directory).ok());
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string self = std::filesystem::read_symlink("/proc/self/exe").parent_path();
      ::setenv("LD_PRELOAD", (self + "/libpower_cut_recorder.so").c_str(), 1);
      // A sanitizer wants to be the first library, or to be told that it is not.
      ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
      ::setenv("RECORD_ROOT", directory.c_str(), 1);
      ::setenv("RECORD_LOG", log.c_str(), 1);
      ::execl((self + "/power_cut_writer").c_str(), "power_cut_writer", mode.c_str(),
              directory.c_str(), nullptr);
      ::_exit(127);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "power_cut_writer " << mode;
    return ReadTrace(log);
  }

  // Calls open(directory, promises) for each state, or for as many as POWER_CUT_STATES says.
  using Open = std::function<void(const std::string&, const std::vector<std::string>&)>;
  void OpenEach(const std::vector<Step>& steps, const Open& open) {
    std::vector<Cut> cuts = CutsOf(steps, random_);
    const size_t all = cuts.size(), limit = FromEnvironment("POWER_CUT_STATES", 400);
    std::shuffle(cuts.begin(), cuts.end(), random_);
    if (limit > 0 && cuts.size() > limit) cuts.resize(limit);
    std::cout << cuts.size() << " of " << all << " states, seed " << seed_ << "\n";
    std::sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.step < b.step; });
    std::vector<std::string> promises;
    Disk disk;
    size_t applied = 0;
    for (const Cut& cut : cuts) {
      for (; applied <= cut.step; ++applied) {
        disk.Apply(steps[applied]);
        if (steps[applied].call == Call::kMark) promises.push_back(steps[applied].name);
      }
      SCOPED_TRACE(absl::StrCat("after step ", cut.step, " of ", steps.size(), ", kind ",
                                int(cut.survives), " ", cut.which, " of ", disk.num_pending()));
      std::mt19937_64 random(cut.seed);
      const std::string directory = root_ + "/after";
      Lay(disk.AfterCut(cut.survives, cut.which, random), directory);
      open(directory, promises);
      if (HasFailure()) FAIL() << "POWER_CUT_STATES=" << limit << " POWER_CUT_SEED=" << seed_;
    }
  }

  static void Lay(const Files& files, const std::string& directory) {
    ASSERT_TRUE(RemoveTree(directory).ok());
    ASSERT_TRUE(MakeDirectories(directory).ok());
    for (const auto& [path, contents] : files) {
      if (path.ends_with("/")) {
        ASSERT_TRUE(MakeDirectories(directory + "/" + path).ok());
      } else {
        std::ofstream(directory + "/" + path, std::ios::binary) << contents;
      }
    }
  }

  const uint64_t seed_ = FromEnvironment("POWER_CUT_SEED", std::random_device()());
  std::mt19937_64 random_{seed_};
  // As the kernel spells it.
  const std::string root_ = absl::StrCat(std::filesystem::canonical(::testing::TempDir()).string(),
                                         "/power_cut-", ::getpid());
};

TEST_F(PowerCut, NoAcknowledgedJobIsLost) {
  const std::vector<Step> steps = Record("store");
  ASSERT_GT(steps.size(), 100u);
  OpenEach(steps, [](const std::string& directory, const std::vector<std::string>& promises) {
    const auto store = controller::SqliteStore::Open(directory);
    ASSERT_TRUE(store.ok()) << store.status();
    for (const std::string& promise : promises) {
      const std::pair<std::string, std::string> words = absl::StrSplit(promise, ' ');
      const uint64_t number = std::stoull(words.second);
      EXPECT_TRUE((*store)->GetJob(number).ok()) << promise;
      EXPECT_EQ((*store)->FindRequest(absl::StrCat("request-", number)).value_or(0), number);
    }
  });
}

TEST_F(PowerCut, ASavedCheckpointCanBeLoadedAndWhatLooksCompleteIsGood) {
  const std::vector<Step> steps = Record("checkpoints");
  ASSERT_GT(steps.size(), 100u);
  OpenEach(steps, [](const std::string& directory, const std::vector<std::string>& promises) {
    const auto complete = CompleteCheckpoints(directory);
    ASSERT_TRUE(complete.ok()) << complete.status();
    for (const std::string& path : *complete) {
      const auto checkpoint = Checkpoint::Open(path);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      EXPECT_TRUE(checkpoint->Verify().ok()) << path;
    }
    // The next attempt.
    const int64_t epoch = 1 + NewestEpoch(directory).value_or(0);
    const absl::Status claimed = ClaimDirectory(directory, "j-1", epoch, LocalStorage());
    ASSERT_TRUE(claimed.ok()) << claimed;
    const absl::StatusOr<std::vector<ListedCheckpoint>> loadable = LoadableCheckpoints(directory);
    ASSERT_TRUE(loadable.ok()) << loadable.status();
    // Each attempt goes on from the save before its predecessor's last.
    std::pair<int64_t, int64_t> saved, left_at;
    for (const std::string& promise : promises) {
      const std::vector<std::string> words = absl::StrSplit(promise, ' ');
      (words[0] == "saved" ? saved : left_at) = {std::stoll(words[1]), std::stoll(words[2])};
    }
    const int64_t least = epoch - 1 > saved.first ? saved.second - 10 : saved.second;
    EXPECT_GE(loadable->empty() ? 0 : loadable->front().step, least) << promises.back();
    for (const ListedCheckpoint& listed : *loadable) {
      EXPECT_FALSE(listed.epoch == left_at.first && listed.step > left_at.second) << listed.path;
    }
  });
}

}  // namespace
}  // namespace trainyard::power_cut
