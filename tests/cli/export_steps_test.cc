// Proves that `export-steps --follow` goes by the history as it is, and not by what it was when
// steps were told: an attempt that runs steps again, and steps that are told late. The rest, with a
// real service and TensorBoard's reader, is in tests/tensorboard.

#include <gmock/gmock.h>

#include <mutex>
#include <sstream>

#include "cli/command_line.h"
#include "cli/verbs/verbs.h"
#include "common/files.h"
#include "tests/cli/fake_controller.h"
#include "tests/testing/process.h"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;

v1::StepRecord Record(uint64_t step, uint64_t epoch) {
  v1::StepRecord record;
  record.set_step(step);
  record.set_epoch(epoch);
  record.set_loss(10 * double(epoch) + 0.1 * double(step));
  record.mutable_finish_time()->set_seconds(int64_t(1'800'000'000 + 1000 * epoch + step));
  return record;
}

class ExportStepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/export_steps_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_TRUE(RemoveTree(directory_).ok());
    controller_.job.set_id("j-1");
    controller_.job.mutable_spec()->set_devices(1);
    controller_.steps = [this](const v1::StreamStepsRequest& request, auto& writer) {
      if (request.follow()) {
        follow_(writer);
      } else {
        v1::StreamStepsResponse response;
        std::lock_guard lock(mutex_);
        ++reads_;
        for (const v1::StepRecord& record : history_) {
          if (record.step() > request.after_step()) *response.add_steps() = record;
        }
        writer.Write(response);
      }
      return grpc::Status::OK;
    };
  }

  int Export(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"export-steps", "j-1", "--tensorboard", directory_};
    words.insert(words.end(), more.begin(), more.end());
    Output output(out_, err_, Terminal());
    return RunCommandLine(Verbs(), words,
                          {.controller = controller_.address(), .binary_directory = "/x"}, output);
  }
  std::string Contents() const {
    const std::string run = directory_ + "/j-1";
    return ReadFile(run + "/" + ListDirectory(run).value().front()).value();
  }
  void SetHistory(const std::vector<v1::StepRecord>& history) {
    std::lock_guard lock(mutex_);
    history_ = history;
  }
  bool WaitForRead(int number) {
    return testing::WaitUntil([&] {
      std::lock_guard lock(mutex_);
      return reads_ >= number;
    });
  }

  std::string directory_;
  std::function<void(grpc::ServerWriter<v1::StreamStepsResponse>&)> follow_;
  std::mutex mutex_;
  std::vector<v1::StepRecord> history_;  // Under mutex_.
  int reads_ = 0;                        // Under mutex_.
  FakeController controller_;
  std::ostringstream out_, err_;
};

// Bugs it must catch: the steps that a new attempt has run again keep their old points; so do steps
// that nobody has told since the last one of the stream.
TEST_F(ExportStepsTest, AFollowedFileHoldsTheHistoryAsItIsInTheEnd) {
  SetHistory({Record(1, 1), Record(2, 1), Record(3, 1)});
  follow_ = [&](grpc::ServerWriter<v1::StreamStepsResponse>& writer) {
    v1::StreamStepsResponse response;
    *response.add_steps() = Record(4, 2);
    SetHistory({Record(1, 1), Record(2, 2), Record(3, 2), Record(4, 2)});
    writer.Write(response);
    EXPECT_TRUE(WaitForRead(2)) << "at once, not when the job ends";
    SetHistory({Record(1, 1), Record(2, 2), Record(3, 3), Record(4, 2)});
  };
  EXPECT_EQ(Export({"--follow"}), 0) << err_.str();
  const std::string followed = Contents();
  EXPECT_EQ(Export(), 0);
  EXPECT_EQ(Contents(), followed) << "an export of the history as it is changes nothing";
}

// Bug it must catch: a follower that cannot write stays until the job ends.
TEST_F(ExportStepsTest, WhatCannotBeWrittenEndsTheExport) {
  follow_ = [&](grpc::ServerWriter<v1::StreamStepsResponse>& writer) {
    v1::StreamStepsResponse response;
    *response.add_steps() = Record(1, 1);
    SetHistory({Record(2, 1), Record(1, 1)});  // In no order that a file can have.
    while (writer.Write(response)) std::this_thread::yield();
  };
  EXPECT_EQ(Export({"--follow"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("wanted a step above 2, found 1"));
}

TEST_F(ExportStepsTest, ADirectoryIsWanted) {
  Output output(out_, err_, Terminal());
  EXPECT_EQ(RunCommandLine(Verbs(), {"export-steps", "j-1"},
                           {.controller = controller_.address(), .binary_directory = "/x"}, output),
            2);
  EXPECT_THAT(err_.str(), HasSubstr("--tensorboard: wanted the directory"));
}

}  // namespace
}  // namespace trainyard::cli
