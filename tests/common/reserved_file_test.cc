// A file whose room was reserved can be written when the disk takes nothing more, and is whole or
// absent.

#include "common/reserved_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/check.h"
#include "common/files.h"
#include "tests/testing/full_disk.h"

namespace trainyard {
namespace {

class ReservedFileTest : public ::testing::Test {
 protected:
  ~ReservedFileTest() override { (void)RemoveTree(directory_); }

  static std::string MakeDirectory() {
    std::string path = "/tmp/trainyard_reserved_XXXXXX";
    CHECK(::mkdtemp(path.data()) != nullptr);
    return path;
  }

  const std::string directory_ = MakeDirectory();
  const std::string path_ = directory_ + "/report";
};

ino_t FileNumber(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

// The blocks of the room are used again: a second file would need others.
TEST_F(ReservedFileTest, TheRoomBecomesTheFile) {
  ASSERT_TRUE(ReserveFile(path_, 4096).ok());
  EXPECT_FALSE(Exists(path_));
  const ino_t room = FileNumber(path_ + ".room");
  ASSERT_TRUE(WriteReservedFile(path_, "the end").ok());
  EXPECT_EQ(ReadFile(path_).value_or(""), "the end");
  EXPECT_EQ(FileNumber(path_), room);
  EXPECT_FALSE(Exists(path_ + ".room"));
}

TEST_F(ReservedFileTest, WhatDoesNotFitChangesNothing) {
  ASSERT_TRUE(ReserveFile(path_, 4).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(WriteReservedFile(path_, "12345")));
  EXPECT_FALSE(Exists(path_));
  EXPECT_TRUE(WriteReservedFile(path_, "1234").ok());
}

TEST_F(ReservedFileTest, WithoutARoomNothingIsWritten) {
  EXPECT_TRUE(absl::IsNotFound(WriteReservedFile(path_, "")));
  ASSERT_TRUE(ReserveFile(path_, 4).ok());
  ReleaseReserve(path_);
  EXPECT_TRUE(absl::IsNotFound(WriteReservedFile(path_, "")));
}

TEST_F(ReservedFileTest, AFullDiskRefusesTheReservationAndKeepsNoPartOfIt) {
  const FullDisk full(100);
  EXPECT_FALSE(ReserveFile(path_, 4096).ok());
  EXPECT_FALSE(Exists(path_ + ".room"));
}

}  // namespace
}  // namespace trainyard
