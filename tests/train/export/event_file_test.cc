// Proves that an event file holds each step once however often and with whatever history it is
// written again, and that a writer which was killed at any byte does no harm. What TensorBoard
// makes of the same files is in tests/tensorboard.

#include "train/export/event_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/files.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

SummaryEvent Step(int64_t step, double loss) {
  return PointsEvent(1.7e9 + double(step), step, {{"loss", loss}, {"mfu", 0.25}});
}

class EventFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/event_file_",
                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    ASSERT_TRUE(RemoveTree(directory_).ok());
    ASSERT_TRUE(MakeDirectories(directory_).ok());
    path_ = directory_ + "/events.out.tfevents.1";
  }

  std::string Contents() const { return ReadFile(path_).value(); }

  // One export of a history, in which every step has this loss.
  absl::Status Export(const std::vector<int64_t>& steps, double loss = 2) {
    auto file = EventFile::Open(path_, 1.7e9);
    if (!file.ok()) return file.status();
    EXPECT_TRUE((*file)->Put(PointsEvent(1.7e9, 0, {}, {{"spec", "```\n{}\n```"}})).ok());
    for (const int64_t step : steps) EXPECT_TRUE((*file)->Put(Step(step, loss)).ok());
    return (*file)->Finish(1.8e9);
  }
  // What a reader sees after all restarts: that is what an export of the same would not change.
  void ExpectHolds(const std::vector<int64_t>& steps, double loss = 2) {
    const std::string before = Contents();
    ASSERT_TRUE(Export(steps, loss).ok());
    EXPECT_EQ(Contents().size(), before.size()) << "it held something else";
  }

  std::string directory_, path_;
};

// Of any file that TensorFlow wrote: a length of 24, the length's checksum, an event with a time.
TEST_F(EventFileTest, BeginsAsTensorFlowsFilesDo) {
  ASSERT_TRUE(Export({}).ok());
  EXPECT_EQ(Contents().substr(0, 13), std::string("\x18\0\0\0\0\0\0\0\xa3\x7fK\"\t", 13));
  EXPECT_EQ(Contents().substr(21, 15),
            "\x1a\x0d"
            "brain.Event:2");
}

TEST_F(EventFileTest, AnotherExportOfTheSameWritesNothing) {
  ASSERT_TRUE(Export({1, 2, 3}).ok());
  const std::string first = Contents();
  ASSERT_TRUE(Export({1, 2, 3}).ok());
  EXPECT_EQ(Contents(), first);
}

TEST_F(EventFileTest, AnotherExportOnlyAddsNewSteps) {
  ASSERT_TRUE(Export({1, 2}).ok());
  const std::string first = Contents();
  ASSERT_TRUE(Export({1, 2, 3, 4}).ok());
  EXPECT_EQ(Contents().substr(0, first.size()), first);
  ExpectHolds({1, 2, 3, 4});
}

// Bug it must catch: the points of a step that ran twice stand in the file twice.
TEST_F(EventFileTest, AChangedStepTakesBackAllFromThereOn) {
  ASSERT_TRUE(Export({1, 2, 3, 4}, 2).ok());
  auto file = EventFile::Open(path_, 1.7e9).value();
  ASSERT_TRUE(file->Put(PointsEvent(1.7e9, 0, {}, {{"spec", "```\n{}\n```"}})).ok());
  ASSERT_TRUE(file->Put(Step(1, 2)).ok());
  ASSERT_TRUE(file->Put(Step(2, 9)).ok());
  ASSERT_TRUE(file->Finish(1.8e9).ok());
  EXPECT_TRUE(file->Put(Step(3, 9)).ok()) << "a follower goes on after it";
  ASSERT_TRUE(file->Flush().ok());
  file.reset();
  const std::string before = Contents();
  EXPECT_THAT(before, HasSubstr("\x10\x02\x3a\x02\x08\x01")) << "SessionLog.START at step 2";
  file = EventFile::Open(path_, 1.7e9).value();
  for (const SummaryEvent& event : {PointsEvent(1.7e9, 0, {}, {{"spec", "```\n{}\n```"}}),
                                    Step(1, 2), Step(2, 9), Step(3, 9)}) {
    ASSERT_TRUE(file->Put(event).ok());
  }
  ASSERT_TRUE(file->Finish(1.8e9).ok());
  EXPECT_EQ(Contents(), before);
}

TEST_F(EventFileTest, AHistoryThatLostOrGainedStepsIsFollowed) {
  ASSERT_TRUE(Export({1, 2, 3, 4}).ok());
  ASSERT_TRUE(Export({1, 2}).ok());
  EXPECT_THAT(Contents(), HasSubstr("\x10\x03\x3a\x02\x08\x01")) << "SessionLog.START at step 3";
  ExpectHolds({1, 2});
  ASSERT_TRUE(Export({1, 2, 5}).ok());
  ASSERT_TRUE(Export({1, 2, 3, 4, 5}).ok());  // Their worker was away for a while.
  ExpectHolds({1, 2, 3, 4, 5});
  ASSERT_TRUE(Export({2, 5}).ok());
  ExpectHolds({2, 5});
}

TEST_F(EventFileTest, StepsComeInOrder) {
  auto file = EventFile::Open(path_, 1.7e9).value();
  ASSERT_TRUE(file->Put(Step(3, 1)).ok());
  for (const int64_t step : {3, 2, -1}) {
    EXPECT_EQ(file->Put(Step(step, 1)).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(file->Put(Step(4, 1)).ok());
}

// Bugs they must catch: a torn record hides what is written after it; a version event is written
// twice, so that TensorBoard warns.
TEST_F(EventFileTest, AWriterKilledAtAnyByteDoesNoHarm) {
  ASSERT_TRUE(Export({1, 2, 3}, 2).ok());
  ASSERT_TRUE(Export({1, 2, 3}, 3).ok());  // With a restart in it.
  const std::string whole = Contents();
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_EQ(::truncate(path_.c_str(), off_t(size)), 0);
    ASSERT_TRUE(Export({1, 2, 3}, 3).ok()) << size;
    ExpectHolds({1, 2, 3}, 3);
    ASSERT_TRUE(WriteFileAtomic(path_, whole).ok());
  }
}

TEST_F(EventFileTest, ADamagedByteCostsOnlyWhatFollows) {
  ASSERT_TRUE(Export({1, 2, 3}).ok());
  const std::string whole = Contents();
  const size_t first = 12 + 24 + 4;  // The version event.
  EXPECT_EQ(whole.substr(first + 21, 4), "\x3a\x02\x08\x01") << "SessionLog.START";
  for (size_t i = first; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = char(damaged[i] ^ 0x40);
    ASSERT_TRUE(WriteFileAtomic(path_, damaged).ok());
    ASSERT_TRUE(Export({1, 2, 3}).ok()) << i;
    EXPECT_EQ(Contents(), whole) << i;
  }
}

TEST_F(EventFileTest, WhatIsInTheWayStaysAndIsNamed) {
  const std::string foreign = "a letter to somebody, of more bytes than the first event has";
  for (const std::string& text : {foreign, foreign.substr(0, 5)}) {
    ASSERT_TRUE(WriteFileAtomic(path_, text).ok());
    EXPECT_THAT(std::string(Export({1}).message()),
                AllOf(HasSubstr(path_), HasSubstr("a file of another form; move it away")));
    EXPECT_EQ(Contents(), text);
  }
  ASSERT_TRUE(RemoveTree(path_).ok());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(std::string(Export({1}).message()), HasSubstr("something that is no file"));
  ASSERT_TRUE(RemoveTree(path_).ok());
  ASSERT_TRUE(MakeDirectories(path_).ok());
  EXPECT_THAT(std::string(Export({1}).message()), HasSubstr("found a directory"));
}

TEST_F(EventFileTest, TwoExportsDoNotWriteOneFile) {
  const auto file = EventFile::Open(path_, 1.7e9).value();
  EXPECT_THAT(std::string(Export({1}).message()), HasSubstr("another export is writing"));
}

}  // namespace
}  // namespace trainyard
