// A trainer's last words reach the disk although the disk is full.

#include "worker/trainer/exit_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/check.h"
#include "common/files.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

class ExitReportTest : public ::testing::Test {
 protected:
  ~ExitReportTest() override { (void)RemoveTree(directory_); }

  static std::string MakeDirectory() {
    std::string path = "/tmp/trainyard_exit_XXXXXX";
    CHECK(::mkdtemp(path.data()) != nullptr);
    return path;
  }

  const std::string directory_ = MakeDirectory();
  const std::string path_ = directory_ + "/trainer_exit.json";
};

TEST_F(ExitReportTest, UsuallyLeavesNoRoomBehind) {
  ReserveExitReport(path_);
  WriteExitReport(path_, {ExitCause::kCompleted, "done"});
  EXPECT_THAT(ReadFile(path_).value_or(""), HasSubstr("\"completed\""));
  EXPECT_FALSE(Exists(path_ + ".room"));
}

// Bug it must catch: a trainer that has completed is taken for one that left no report.
TEST_F(ExitReportTest, GoesIntoItsRoomIfNoOtherFileCanBeMade) {
  ReserveExitReport(path_);
  ASSERT_TRUE(MakeDirectories(path_ + ".tmp").ok());
  WriteExitReport(path_, {ExitCause::kCompleted, std::string(1 << 20, '\x01')});
  const std::string written = ReadFile(path_).value_or("");
  EXPECT_THAT(written, HasSubstr("\"completed\""));
  EXPECT_EQ(written.substr(written.size() - 2), "}\n");
}

}  // namespace
}  // namespace trainyard
