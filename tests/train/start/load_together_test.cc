// Proves that a gang loads one checkpoint or none, whatever its hosts see of it. A host is a
// directory here, in which its rank's thread stands. Checkpoints are named by relative paths, or by
// absolute ones that not every host's roots hold.

#include "train/start/load_together.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "common/status_macros.h"
#include "gmock/gmock.h"
#include "tests/train/checkpoint/signed.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/lineage.h"
#include "train/config/resolve_model.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kStep1[] = "job/epoch-1/step-1", kStep2[] = "job/epoch-1/step-2";

class Hosts : public ::testing::Test {
 protected:
  // Both have the same two checkpoints.
  Hosts() {
    JobConfig job = job_;
    job.checkpoint->every_steps = 1;
    CHECK(RunJob(job)[0].status.ok());
    std::filesystem::copy(Host(0), Host(1), std::filesystem::copy_options::recursive);
  }

  std::string Host(int rank) const { return absl::StrCat(base_, "/host-", rank); }
  std::string On(int rank, const char* checkpoint) const {
    return absl::StrCat(Host(rank), "/", checkpoint);
  }

  // What each rank gets from `load`.
  using Loaded = std::vector<absl::StatusOr<ChosenCheckpoint>>;
  Loaded Load(const std::function<absl::StatusOr<ChosenCheckpoint>(const LoadingGang&)>& load) {
    JobConfig job = job_;
    job.devices = job.parallelism.tensor = 2;
    const ModelConfig model = ResolveModel(job.model).value();
    Loaded loaded(2);
    RunWorlds(2, [&](CollectiveWorld& world) {
      // A working directory of its own, for this thread.
      CHECK(::unshare(CLONE_FS) == 0 && ::chdir(Host(world.rank()).c_str()) == 0);
      const auto engine = RankEngine::Create(job, model, {}, CpuBackend(), world).value();
      const auto everyone = world.Everyone().value();
      loaded[size_t(world.rank())] =
          load({model, roots_[size_t(world.rank())], *everyone, engine->executable()});
    });
    return loaded;
  }
  Loaded LoadTheNewest() {
    return Load([](const LoadingGang& gang) {
      // Those of rank 0 alone count.
      const std::vector<std::string> none;
      return LoadNewest(gang.everyone.rank() == 0 ? std::vector<std::string>{kStep2, kStep1} : none,
                        gang);
    });
  }

  Loaded LoadTheInitFrom(const std::string& init_from, bool loaded_before) {
    return Load([&](const LoadingGang& gang) -> absl::StatusOr<ChosenCheckpoint> {
      ASSIGN_OR_RETURN(InitialParameters loaded,
                       LoadInitFrom({init_from, /*subset=*/false, loaded_before}, gang));
      return std::move(loaded.chosen);
    });
  }
  static void WriteLaterVersion(const std::string& checkpoint) {
    const std::string path = checkpoint + "/manifest.json";
    auto json = nlohmann::json::parse(ReadFile(path).value());
    json.erase("manifest_sha256");
    json["version"] = 9;
    std::ofstream(path) << testing_checkpoint::Signed(json);
  }

  std::array<Roots, 2> roots_;  // Of each host.
  const std::string base_ = std::filesystem::weakly_canonical(FreshDirectory("hosts"));
  const JobConfig job_ = TinyJob(Host(0) + "/job");
};

TEST_F(Hosts, ThatSeeTheSameLoadTheNewest) {
  const Loaded loaded = LoadTheNewest();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(loaded[size_t(rank)].ok()) << loaded[size_t(rank)].status();
    EXPECT_EQ(loaded[size_t(rank)]->checkpoint->path(), On(rank, kStep2));
    EXPECT_TRUE(loaded[size_t(rank)]->refused.empty());
  }
}

// Rank 1's host has failed, whatever it sees; an older checkpoint, which it might have, is not
// taken for that.
void ExpectRankOneAtFault(const std::vector<absl::StatusOr<ChosenCheckpoint>>& loaded,
                          const std::string& found) {
  EXPECT_TRUE(IsStorageFault(loaded[1].status())) << loaded[1].status();
  EXPECT_THAT(std::string(loaded[1].status().message()), HasSubstr(found));
  EXPECT_TRUE(absl::IsUnavailable(loaded[0].status())) << loaded[0].status();
  EXPECT_THAT(std::string(loaded[0].status().message()),
              AllOf(StartsWith("rank 1: "), HasSubstr(found)));
}

TEST_F(Hosts, ThatLackTheCheckpointOfRankZeroAreAtFault) {
  std::filesystem::remove(On(1, kStep2) + "/manifest.json");
  ExpectRankOneAtFault(LoadTheNewest(), "and rank 0's host has it");
}

TEST_F(Hosts, ThatSeeAnotherDirectoryInItsPlaceAreAtFault) {
  std::filesystem::remove_all(On(1, kStep2));
  std::ofstream(On(1, kStep2)) << "a file";
  ExpectRankOneAtFault(LoadTheNewest(), "and rank 0's host has it");
}

TEST_F(Hosts, ThatHaveAnotherCheckpointOfThatNameAreAtFault) {
  JobConfig other = TinyJob(Host(1) + "/job");
  other.seed += 1;
  std::filesystem::remove_all(Host(1));
  ASSERT_TRUE(RunJob(other)[0].status.ok());
  ExpectRankOneAtFault(LoadTheNewest(), "wanted the checkpoint that rank 0's host has there");
}

TEST_F(Hosts, WhoseProgramIsTooOldForItAreAtFault) {
  WriteLaterVersion(On(1, kStep2));
  const Loaded loaded = LoadTheNewest();
  ExpectRankOneAtFault(loaded, "found 9");
  EXPECT_THAT(
      std::string(loaded[1].status().message()),
      AllOf(HasSubstr("Install the later version on this host"), Not(HasSubstr("mounted"))));
}

TEST_F(Hosts, ThatAllLackItTakeTheOneBefore) {
  for (const int rank : {0, 1}) std::filesystem::remove(On(rank, kStep2) + "/rank-0.bin");
  const Loaded loaded = LoadTheNewest();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(loaded[size_t(rank)].ok()) << loaded[size_t(rank)].status();
    EXPECT_EQ(loaded[size_t(rank)]->checkpoint->path(), On(rank, kStep1));
    ASSERT_EQ(loaded[size_t(rank)]->refused.size(), 1u);
    EXPECT_THAT(loaded[size_t(rank)]->refused[0], HasSubstr(On(0, kStep2)));
  }
}

TEST_F(Hosts, ThatAllLackAllSaySoWithEveryReason) {
  for (const char* checkpoint : {kStep1, kStep2}) {
    for (const int rank : {0, 1}) std::filesystem::remove(On(rank, checkpoint) + "/rank-0.bin");
  }
  for (const auto& loaded : LoadTheNewest()) {
    EXPECT_TRUE(absl::IsInternal(loaded.status())) << loaded.status();
    EXPECT_THAT(
        std::string(loaded.status().message()),
        AllOf(StartsWith("none of 2 checkpoints is good: "), HasSubstr(kStep1), HasSubstr(kStep2)));
  }
}

// No attempt has begun: the user hears what is wrong, and no host is at fault.
TEST_F(Hosts, AreNotAtFaultForInitFromInAFirstAttempt) {
  const std::string init_from = On(0, kStep2);
  for (const auto& loaded : LoadTheInitFrom(init_from, false)) {
    EXPECT_TRUE(loaded.ok()) << loaded.status();
  }
  std::filesystem::remove(init_from + "/rank-0.bin");
  for (const auto& loaded : LoadTheInitFrom(init_from, false)) {
    EXPECT_TRUE(absl::IsDataLoss(loaded.status())) << loaded.status();
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(init_from + "/rank-0.bin"));
  }
  WriteLaterVersion(init_from);
  for (const auto& loaded : LoadTheInitFrom(init_from, false)) {
    EXPECT_TRUE(absl::IsUnimplemented(loaded.status())) << loaded.status();
  }
  roots_[1] = Roots({Host(1)});
  for (const auto& loaded : LoadTheInitFrom(On(0, kStep1), false)) {
    EXPECT_TRUE(absl::IsPermissionDenied(loaded.status())) << loaded.status();
  }
}

// Bug it must catch: every host of the gang is at fault for what one of them lacks, and gets no
// ranks for a while.
TEST_F(Hosts, ThatLackAnInitFromThatWasLoadedBeforeAreAloneAtFault) {
  roots_[1] = Roots({Host(1)});
  ExpectRankOneAtFault(LoadTheInitFrom(On(0, kStep2), true), "it is not below " + Host(1));
  roots_ = {Roots({Host(1)}), Roots()};
  const Loaded loaded = LoadTheInitFrom(On(0, kStep2), true);
  EXPECT_TRUE(IsStorageFault(loaded[0].status())) << loaded[0].status();
  EXPECT_TRUE(absl::IsUnavailable(loaded[1].status())) << loaded[1].status();
}

// Bug it must catch: the job is FAILED for a program that one of its hosts should get.
TEST_F(Hosts, WhoseProgramIsTooOldForAnInitFromThatWasLoadedBeforeAreAtFault) {
  WriteLaterVersion(On(0, kStep2));
  const Loaded loaded = LoadTheInitFrom(On(0, kStep2), true);
  EXPECT_TRUE(IsStorageFault(loaded[0].status())) << loaded[0].status();
  EXPECT_THAT(std::string(loaded[0].status().message()),
              AllOf(HasSubstr("found 9"), HasSubstr("Install the later version on this host")));
  EXPECT_TRUE(absl::IsUnavailable(loaded[1].status())) << loaded[1].status();
}

// As the first attempt did.
TEST_F(Hosts, TakeTheOneBeforeOfAnInitFromThatWasLoadedBefore) {
  std::filesystem::remove(On(0, kStep2) + "/rank-0.bin");
  for (const auto& loaded : LoadTheInitFrom(Host(0) + "/job", true)) {
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->checkpoint->path(), On(0, kStep1));
  }
}

TEST_F(Hosts, AreAllAtFaultWhereNoInitFromThatWasLoadedBeforeIsGood) {
  for (const char* checkpoint : {kStep1, kStep2}) {
    std::filesystem::resize_file(On(0, checkpoint) + "/rank-0.bin", 3);
  }
  for (const auto& loaded : LoadTheInitFrom(Host(0) + "/job", true)) {
    EXPECT_TRUE(IsStorageFault(loaded.status())) << loaded.status();
    EXPECT_THAT(std::string(loaded.status().message()),
                AllOf(HasSubstr("none of 2 checkpoints is good: "), HasSubstr(kStep1)));
  }
}

}  // namespace
}  // namespace trainyard::testing
