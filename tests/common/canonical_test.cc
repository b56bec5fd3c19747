// Proves that no link is followed, wherever in a path it stands, when a directory is listed or a
// file is read at a path that was canonical.

#include "common/canonical.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/files.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Canonical : public ::testing::Test {
 protected:
  Canonical() {
    EXPECT_TRUE(RemoveTree(::testing::TempDir() + "/canonical_test").ok());
    std::filesystem::create_directories(base_ + "/job/epoch-1");
    std::filesystem::create_directories(base_ + "/secret/epoch-1");
    for (const char* file : {"/job/epoch-1/file", "/secret/epoch-1/file"}) {
      std::ofstream(base_ + file) << "text of" << file;
    }
  }
  const std::string base_ = ::testing::TempDir() + "/canonical_test";
};

TEST_F(Canonical, DirectoriesAreListedAndFilesRead) {
  std::ofstream(base_ + "/job/epoch-1/another");
  EXPECT_THAT(ListCanonical(base_ + "/job/epoch-1").value(), ElementsAre("another", "file"));
  EXPECT_EQ(ReadCanonical(base_ + "/job/epoch-1/file", 100).value(), "text of/job/epoch-1/file");
  const std::string large(200'000, 'x');
  std::ofstream(base_ + "/large") << large;
  EXPECT_EQ(ReadCanonical(base_ + "/large", 200'000).value(), large);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadCanonical(base_ + "/large", 199'999).status()));
}

// Bug it must catch: a job's directory becomes a link after the job's path was checked, and what
// lies outside of the roots is listed and read.
TEST_F(Canonical, NoLinkIsFollowed) {
  std::filesystem::rename(base_ + "/job", base_ + "/away");
  std::filesystem::create_symlink(base_ + "/secret", base_ + "/job");
  std::filesystem::create_symlink(base_ + "/away/epoch-1/file", base_ + "/link");
  for (const absl::Status& status :
       {ListCanonical(base_ + "/job").status(), ListCanonical(base_ + "/job/epoch-1").status(),
        ReadCanonical(base_ + "/job/epoch-1/file", 100).status(),
        ReadCanonical(base_ + "/link", 100).status()}) {
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("wanted a path without links"));
  }
}

TEST_F(Canonical, WhatIsMissingOrOfAnotherKindIsSaid) {
  EXPECT_TRUE(absl::IsNotFound(ListCanonical(base_ + "/none").status()));
  EXPECT_TRUE(absl::IsNotFound(ReadCanonical(base_ + "/none", 1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(ListCanonical(base_ + "/job/epoch-1/file").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadCanonical(base_ + "/job", 1).status()));
  ASSERT_EQ(::mkfifo((base_ + "/pipe").c_str(), 0600), 0);  // No writer comes.
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadCanonical(base_ + "/pipe", 1).status()));
}

}  // namespace
}  // namespace trainyard
