// Proves that no path leads out of the roots, by dots, links or absolute names, and that what lies
// inside is found. Run against a real directory tree, because the kernel does the confining.

#include "common/roots.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/files.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

TEST(MayLieBelow, GoesByTheSpelling) {
  for (const char* inside : {"/data", "/data/", "/data//a", "a", "./a"}) {
    for (const char* root : {"/data", "/data/", "/"}) {
      EXPECT_TRUE(MayLieBelow(inside, root)) << inside << " below " << root;
    }
  }
  for (const char* outside : {"/", "/database", "/dat", "/a/data"}) {
    EXPECT_FALSE(MayLieBelow(outside, "/data")) << outside;
  }
}

class RootsTest : public testing::Test {
 protected:
  RootsTest() : top_(testing::TempDir() + "/roots_test") {
    EXPECT_TRUE(RemoveTree(top_).ok());
    EXPECT_TRUE(MakeDirectories(top_ + "/a/sub").ok());
    EXPECT_TRUE(MakeDirectories(top_ + "/b").ok());
    EXPECT_TRUE(MakeDirectories(top_ + "/outside").ok());
    EXPECT_TRUE(WriteFileAtomic(top_ + "/a/sub/f", "inside").ok());
    EXPECT_TRUE(WriteFileAtomic(top_ + "/b/g", "second").ok());
    EXPECT_TRUE(WriteFileAtomic(top_ + "/outside/secret", "secret").ok());
    Link("../outside", "a/link");
    Link(top_ + "/outside/secret", "a/absolute");
    Link("sub/f", "a/inner");
    Link("../outside/secret", "a/sub/../file_link");
    Link("loop", "a/loop");
    top_ = std::filesystem::canonical(top_).string();
    roots_ = Roots({top_ + "/a", top_ + "/b/"});
  }

  void Link(const std::string& to, const std::string& at) {
    EXPECT_EQ(::symlink(to.c_str(), (top_ + "/" + at).c_str()), 0);
  }

  std::string top_;
  Roots roots_;
};

TEST_F(RootsTest, FilesInsideAreFound) {
  for (const std::string& path : {top_ + "/a/sub/f", std::string("sub/f"), std::string("inner"),
                                  top_ + "/b/g", std::string("g"), top_ + "/a//sub/./f"}) {
    const auto file = InputFile::Open(path, roots_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->size(), 6u);
    char text[3];
    EXPECT_TRUE(file->ReadAt(3, text, 3).ok());
    EXPECT_EQ(file->ReadAt(4, text, 3).code(), absl::StatusCode::kDataLoss);
  }
}

TEST_F(RootsTest, NothingOutsideIsOpened) {
  for (const std::string& path :
       {top_ + "/outside/secret", std::string("../outside/secret"), std::string("link/secret"),
        std::string("absolute"), std::string("file_link"), std::string("loop"),
        top_ + "/a/../outside/secret", std::string("sub/../../outside/secret"), top_ + "/ab",
        std::string("/etc/passwd"), std::string("/"), std::string("/proc/self/root/etc/passwd")}) {
    const auto file = InputFile::Open(path, roots_);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kPermissionDenied) << path << file.status();
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  }
}

TEST_F(RootsTest, WhatIsNoRegularFileIsRefused) {
  ASSERT_EQ(::mkfifo((top_ + "/a/pipe").c_str(), 0600), 0);
  EXPECT_EQ(InputFile::Open("pipe", roots_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(InputFile::Open("sub", roots_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(InputFile::Open("none", roots_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(InputFile::Open("", roots_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RootsTest, DirectoriesAreMadeInsideOnly) {
  EXPECT_EQ(roots_.MakeDirectory("x/y/z").value(), top_ + "/a/x/y/z");
  EXPECT_EQ(roots_.MakeDirectory("x/y/z").value(), top_ + "/a/x/y/z");
  EXPECT_EQ(roots_.MakeDirectory(top_ + "/b/new//deep").value(), top_ + "/b/new/deep");
  EXPECT_EQ(roots_.FindDirectory("new/deep").value(), top_ + "/b/new/deep");
  for (const std::string& path : {std::string("../x"), std::string("link/x"), top_ + "/outside/x",
                                  std::string("sub/../../x"), std::string("/tmp")}) {
    EXPECT_EQ(roots_.MakeDirectory(path).status().code(), absl::StatusCode::kPermissionDenied)
        << path;
  }
  EXPECT_FALSE(Exists(top_ + "/x"));
  EXPECT_FALSE(Exists(top_ + "/outside/x"));
  EXPECT_FALSE(roots_.MakeDirectory("sub/f/x").ok());
}

// The path of a checkpoint is recorded as it was resolved, and opened again below the same roots.
TEST_F(RootsTest, ResolvedPathsAreFoundBelowARootThatIsALink) {
  Link("a", "root_link");
  const Roots roots({top_ + "/root_link"});
  const std::string made = roots.MakeDirectory("made").value();
  EXPECT_EQ(made, top_ + "/a/made");
  EXPECT_EQ(roots.FindDirectory(made).value(), made);
  EXPECT_EQ(roots.FindDirectory(top_ + "/root_link/made").value(), made);
  EXPECT_EQ(roots.FindDirectory(top_ + "/b").status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RootsTest, WithoutRootsPathsAreThoseOfTheFileSystem) {
  EXPECT_TRUE(InputFile::Open(top_ + "/a/absolute").ok());
  EXPECT_EQ(Roots().MakeDirectory(top_ + "/n/m").value(), top_ + "/n/m");
}

}  // namespace
}  // namespace trainyard
