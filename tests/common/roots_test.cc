// Proves that no path leads out of the roots, by dots, links or absolute names, and that what lies
// inside is found. Run against a real directory tree, because the kernel does the confining.

#include "common/roots.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <thread>

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

// What openat2 is to whoever asks: a kernel before 5.6, and many a sandbox, has none.
enum class Openat2 { kPresent, kMissing };

// Runs it on a thread whose calls of openat2 the kernel answers with ENOSYS.
void WithoutOpenat2(const std::function<void()>& run) {
  std::thread([&] {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {.len = std::size(code), .filter = code};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    ASSERT_EQ(::syscall(SYS_openat2, AT_FDCWD, "/", nullptr, 0), -1);
    ASSERT_EQ(errno, ENOSYS);
    run();
  }).join();
}

class RootsTest : public ::testing::TestWithParam<Openat2> {
 protected:
  void Run(const std::function<void()>& test) {
    GetParam() == Openat2::kPresent ? test() : WithoutOpenat2(test);
  }

  RootsTest() : top_(::testing::TempDir() + "/roots_test") {
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

TEST_P(RootsTest, FilesInsideAreFound) {
  Run([&] {
    for (const std::string& path : {top_ + "/a/sub/f", std::string("sub/f"), std::string("inner"),
                                    top_ + "/b/g", std::string("g"), top_ + "/a//sub/./f"}) {
      const auto file = InputFile::Open(path, roots_);
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_EQ(file->size(), 6u);
      char text[3];
      EXPECT_TRUE(file->ReadAt(3, text, 3).ok());
      EXPECT_EQ(file->ReadAt(4, text, 3).code(), absl::StatusCode::kDataLoss);
    }
  });
}

TEST_P(RootsTest, NothingOutsideIsOpened) {
  Run([&] {
    for (const std::string& path :
         {top_ + "/outside/secret", std::string("../outside/secret"), std::string("link/secret"),
          std::string("absolute"), std::string("file_link"), std::string("loop"),
          top_ + "/a/../outside/secret", std::string("sub/../../outside/secret"), top_ + "/ab",
          std::string("/etc/passwd"), std::string("/"),
          std::string("/proc/self/root/etc/passwd")}) {
      const auto file = InputFile::Open(path, roots_);
      EXPECT_EQ(file.status().code(), absl::StatusCode::kPermissionDenied) << path << file.status();
      EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
    }
  });
}

TEST_P(RootsTest, WhatIsNoRegularFileIsRefused) {
  Run([&] {
    ASSERT_EQ(::mkfifo((top_ + "/a/pipe").c_str(), 0600), 0);
    EXPECT_EQ(InputFile::Open("pipe", roots_).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(InputFile::Open("sub", roots_).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(InputFile::Open("none", roots_).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(InputFile::Open("", roots_).status().code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST_P(RootsTest, DirectoriesAreMadeInsideOnly) {
  Run([&] {
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
  });
}

// The path of a checkpoint is recorded as it was resolved, and opened again below the same roots.
TEST_P(RootsTest, ResolvedPathsAreFoundBelowARootThatIsALink) {
  Run([&] {
    Link("a", "root_link");
    const Roots roots({top_ + "/root_link"});
    const std::string made = roots.MakeDirectory("made").value();
    EXPECT_EQ(made, top_ + "/a/made");
    EXPECT_EQ(roots.FindDirectory(made).value(), made);
    EXPECT_EQ(roots.FindDirectory(top_ + "/root_link/made").value(), made);
    EXPECT_EQ(roots.FindDirectory(top_ + "/b").status().code(),
              absl::StatusCode::kPermissionDenied);
  });
}

TEST_P(RootsTest, WithoutRootsPathsAreThoseOfTheFileSystem) {
  Run([&] {
    EXPECT_TRUE(InputFile::Open(top_ + "/a/absolute").ok());
    EXPECT_EQ(Roots().MakeDirectory(top_ + "/n/m").value(), top_ + "/n/m");
  });
}

INSTANTIATE_TEST_SUITE_P(Kernels, RootsTest,
                         ::testing::Values(Openat2::kPresent, Openat2::kMissing),
                         [](const auto& info) {
                           return info.param == Openat2::kPresent ? "Openat2" : "NoOpenat2";
                         });

}  // namespace
}  // namespace trainyard
