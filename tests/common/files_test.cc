// Proves that atomic writes replace whole files, and that errors carry the path and a useful code.

#include "common/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace trainyard {
namespace {

std::string Directory() {
  const std::string path = ::testing::TempDir() + "/files_test";
  EXPECT_TRUE(RemoveTree(path).ok());
  EXPECT_TRUE(MakeDirectories(path + "/a/b").ok());
  return path;
}

TEST(Files, AtomicWriteReplacesTheWholeFileAndLeavesNoTemporary) {
  const std::string directory = Directory(), path = directory + "/a/b/f";
  ASSERT_TRUE(WriteFileAtomic(path, "a longer text").ok());
  ASSERT_TRUE(WriteFileAtomic(path, "short").ok());
  EXPECT_EQ(ReadFile(path).value(), "short");
  EXPECT_THAT(ListDirectory(directory + "/a/b").value(), ::testing::ElementsAre("f"));
}

// Bug it must catch: after a power cut a file that is there, and empty. The test above runs once
// more, in a process that notes what is synced and renamed.
TEST(Files, AtomicWriteSyncsTheFileBeforeItHasItsNameAndTheNameAfter) {
  const std::string path = Directory() + "/a/b/f", log = ::testing::TempDir() + "/files_sync.log";
  const std::string parent = std::filesystem::canonical(Directory() + "/a/b");
  const char* bin = std::getenv("TRAINYARD_BIN");
  ASSERT_NE(bin, nullptr) << "run through ctest, which sets TRAINYARD_BIN";
  ASSERT_TRUE(RemoveTree(log).ok());
  const std::string command = absl::StrCat(
      "ASAN_OPTIONS=verify_asan_link_order=0 SYNC_LOG=", log, " LD_PRELOAD=", bin,
      "/../tests/libsync_shim.so ", std::filesystem::read_symlink("/proc/self/exe").string(),
      " --gtest_filter=Files.AtomicWriteReplacesTheWholeFileAndLeavesNoTemporary");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::string once =
      absl::StrCat("sync ", parent, "/f.tmp\nrename ", path, "\nsync ", parent, "\n");
  EXPECT_EQ(ReadFile(log).value_or(""), once + once);
}

TEST(Files, MissingFileIsNotFoundAndNamed) {
  const absl::Status status = ReadFile("/no/such/file").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/no/such/file"));
}

// Bug it must catch: a file that is too large passes for a full disk, which is waited for.
TEST(Files, ReadRefusesBeyondItsLimit) {
  const std::string path = Directory() + "/big";
  ASSERT_TRUE(WriteFileAtomic(path, std::string(100, 'x')).ok());
  EXPECT_EQ(ReadFile(path, 99).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(ReadFile(path, 100).ok());
}

// Bug it must catch: who reads or syncs a stranger's file is led to another, or waits at a pipe.
TEST(Files, FilesOfOthersAreRegularOnesWithOneName) {
  const std::string directory = Directory(), path = directory + "/others";
  const auto refused = [&] {
    return !ReadFileOfOthers(path).ok() && !ReadPartOfOthers(path, 0, 9).ok() &&
           !SyncFileOfOthers(path).ok() && ::unlink(path.c_str()) == 0;
  };
  ASSERT_TRUE(WriteFileAtomic(directory + "/secret", "secret").ok());
  ASSERT_EQ(::symlink("secret", path.c_str()), 0);
  EXPECT_TRUE(refused()) << "a link";
  ASSERT_EQ(::link((directory + "/secret").c_str(), path.c_str()), 0);
  EXPECT_TRUE(refused()) << "another name of the same file";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(refused()) << "a pipe";
  ASSERT_TRUE(WriteFileAtomic(path, "0123456789").ok());
  EXPECT_EQ(ReadPartOfOthers(path, 0, 4).value(), "0123");
  EXPECT_EQ(ReadPartOfOthers(path, 8, 4).value(), "89");
  EXPECT_EQ(ReadPartOfOthers(path, 10, 4).value(), "");
  EXPECT_TRUE(SyncFileOfOthers(path).ok());
}

// Whether the first page of the file lies in this machine's memory.
bool IsCached(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(mapped, 1, &resident), 0) << path;
  ::munmap(mapped, 1);
  ::close(fd);
  return (resident & 1) != 0;
}

// A file system in memory has no other place for them.
TEST(Files, DropCachedLeavesReadsToTheDisk) {
  const std::string path = Directory() + "/cached";
  ASSERT_TRUE(WriteFileAtomic(path, "text").ok());
  ASSERT_TRUE(ReadFile(path).ok());
  ASSERT_TRUE(IsCached(path));
  struct statfs info;
  ASSERT_EQ(::statfs(path.c_str(), &info), 0);
  DropCached(path);
  EXPECT_EQ(IsCached(path), info.f_type == TMPFS_MAGIC);
  EXPECT_EQ(ReadFile(path).value(), "text");
}

TEST(Sha256, MatchesThePublishedVector) {
  Sha256 hash;  // FIPS 180-4's example "abc", in two parts.
  hash.Update("a");
  hash.Update("bc");
  EXPECT_EQ(hash.HexDigest(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace trainyard
