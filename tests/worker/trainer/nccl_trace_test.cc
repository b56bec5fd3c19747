// Proves what NCCL is told where a job's profile asks for its log, which it has no other way to
// learn, and that other ranks leave the environment as they found it.

#include "worker/trainer/nccl_trace.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "tests/worker/trainer/trainer_process.h"

namespace trainyard {
namespace {

using testing::FreshDirectory;
using ::testing::HasSubstr;

constexpr const char* kNames[] = {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"};

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "unset" : value;
}

// Rank 3 of a job that has ranks 1 and 3 traced.
class NcclTrace : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
    root_ = std::filesystem::canonical(FreshDirectory("nccl_trace"));
    config_.job.profile = {
        .directory = "100%/p", .start_step = 1, .ranks = {1, 3}, .nccl_trace = true};
    RankConfig& rank = config_.rank.emplace();
    rank.job_id = "j-1", rank.epoch = 2, rank.world = 4, rank.rank = 3;
    rank.roots = {root_};
  }
  void TearDown() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  void ExpectNothingIsTold() {
    EXPECT_FALSE(WantsNcclTrace(config_));
    EXPECT_TRUE(PrepareNcclTrace(config_).ok());
    for (const char* name : kNames) EXPECT_EQ(Environment(name), "unset") << name;
    EXPECT_FALSE(Exists(root_ + "/100%"));
  }

  std::string root_;
  TrainerConfig config_;
};

TEST_F(NcclTrace, GoesToAFileBesideTheTraceWhateverTheMachineAsksFor) {
  ::setenv("NCCL_DEBUG", "WARN", 1);
  ::setenv("NCCL_DEBUG_FILE", "/elsewhere", 1);
  ASSERT_TRUE(PrepareNcclTrace(config_).ok());
  EXPECT_EQ(Environment("NCCL_DEBUG"), "INFO");
  EXPECT_THAT(Environment("NCCL_DEBUG_SUBSYS"), AllOf(HasSubstr("INIT"), HasSubstr("COLL")));
  // NCCL reads %% as one %.
  EXPECT_EQ(Environment("NCCL_DEBUG_FILE"), root_ + "/100%%/p/j-1-epoch-2-rank-3-nccl.log");
  EXPECT_TRUE(Exists(root_ + "/100%/p")) << "NCCL makes no directory";
}

TEST_F(NcclTrace, IsOfTheChosenRanksAlone) {
  config_.rank->rank = 2;
  ExpectNothingIsTold();
}

TEST_F(NcclTrace, IsNothingWithoutTheField) {
  config_.job.profile->nccl_trace = false;
  ExpectNothingIsTold();
  config_.job.profile.reset();
  ExpectNothingIsTold();
}

TEST_F(NcclTrace, ADirectoryOutsideTheRootsIsTheFieldsError) {
  config_.job.profile->directory = "/elsewhere/traces";
  const absl::Status status = PrepareNcclTrace(config_);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("profile.directory: "));
  EXPECT_EQ(Environment("NCCL_DEBUG"), "unset");
}

}  // namespace
}  // namespace trainyard
