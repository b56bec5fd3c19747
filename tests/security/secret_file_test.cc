// Proves that a secret which others may read is refused with the command that mends it, that the
// check holds for the file that is read, and that a secret is never written with a wider mode.

#include "security/secret_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SecretFile : public ::testing::Test {
 protected:
  std::string Path(absl::string_view name) const {
    return absl::StrCat(directory_.path(), "/", name);
  }
  std::string Write(absl::string_view name, absl::string_view text, mode_t mode) const {
    const std::string path = Path(name);
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static mode_t Mode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  static void ExpectRefused(const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  const controller::TempDirectory directory_;
};

// A umask for the time of a scope.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  const mode_t before_;
};

TEST_F(SecretFile, OwnersFileIsRead) {
  for (const mode_t mode : {0600, 0400, 0700}) {
    const std::string path = Write("key", "text\n", mode);
    EXPECT_EQ(ReadSecret(path).value_or("refused"), "text\n") << mode;
  }
}

TEST_F(SecretFile, AnyRightOfOthersIsRefusedWithTheCommandThatMendsIt) {
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0602, 0610, 0601, 0777}) {
    const std::string path = Write("key", "text", mode);
    ExpectRefused(ReadSecret(path).status(), absl::StrCat("Run: chmod 600 '", path, "'"));
    ExpectRefused(ReadSecret(path).status(), absl::StrFormat("has mode %04o", mode));
    ASSERT_EQ(std::system(absl::StrCat("chmod 600 '", path, "'").c_str()), 0);
    EXPECT_TRUE(ReadSecret(path).ok());
  }
}

TEST_F(SecretFile, OnlyTheUserAndRootMayOwnIt) {
  struct stat info {};
  info.st_mode = S_IFREG | 0600;
  info.st_uid = 1001;
  EXPECT_TRUE(CheckSecretFile(info, 1001, "key").ok());
  ExpectRefused(CheckSecretFile(info, 1000, "key"), "chown 1000 'key'");
  ExpectRefused(CheckSecretFile(info, 0, "key"), "Run this as that user (sudo -u '#1001')");
  info.st_uid = 0;
  EXPECT_TRUE(CheckSecretFile(info, 1000, "key").ok());
  info.st_mode = S_IFDIR | 0700;
  EXPECT_TRUE(CheckSecretDirectory(info, 0, "directory").ok());
  ExpectRefused(CheckSecretDirectory(info, 1000, "directory"), "chown 1000 'directory'");
  if (::geteuid() == 0) {  // Only root can give a file away.
    const std::string path = Write("key", "text", 0600);
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    ExpectRefused(ReadSecret(path).status(), "belongs to user 65534");
  }
}

TEST_F(SecretFile, WhatIsBelievedMayBeReadByOthersAndNotWritten) {
  for (const mode_t mode : {0600, 0644, 0444, 0755}) {
    EXPECT_EQ(*ReadTrusted(Write("keys", "text", mode)), "text") << mode;
  }
  for (const mode_t mode : {0664, 0646, 0620, 0602}) {
    const std::string path = Write("keys", "text", mode);
    ExpectRefused(ReadTrusted(path).status(), absl::StrCat("Run: chmod go-w '", path, "'"));
  }
  struct stat info {};
  info.st_mode = S_IFREG | 0644;
  info.st_uid = 65534;
  ExpectRefused(CheckTrustedFile(info, 1000, "keys"), "belongs to user 65534");
  info.st_uid = 0;
  EXPECT_TRUE(CheckTrustedFile(info, 1000, "keys").ok());
  ExpectRefused(ReadTrusted("/dev/null").status(), "not a regular file");
  EXPECT_TRUE(ReadTrusted(Write("keys", std::string(256 << 10, 'x'), 0600)).ok());
  ExpectRefused(ReadTrusted(Write("keys", std::string((256 << 10) + 1, 'x'), 0600)).status(),
                "more than 262144 bytes");
}

TEST_F(SecretFile, LinkIsJudgedByWhatItLeadsTo) {
  std::filesystem::create_symlink(Write("good", "text", 0600), Path("to_good"));
  std::filesystem::create_symlink(Write("wide", "text", 0644), Path("to_wide"));
  std::filesystem::create_symlink(Path("nothing"), Path("dangling"));
  std::filesystem::create_symlink("loop", Path("loop"));
  EXPECT_EQ(ReadSecret(Path("to_good")).value_or("refused"), "text");
  ExpectRefused(ReadSecret(Path("to_wide")).status(), "chmod 600");
  EXPECT_EQ(ReadSecret(Path("dangling")).status().code(), absl::StatusCode::kNotFound);
  ExpectRefused(ReadSecret(Path("loop")).status(), "cannot open");
  EXPECT_EQ(ReadSecret(Path("nothing")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SecretFile, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  ExpectRefused(ReadSecret(Path("fifo")).status(), "not a regular file");
  ExpectRefused(ReadSecret(directory_.path()).status(), "not a regular file");
  ExpectRefused(ReadSecret("/dev/null").status(), "not a regular file");
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  absl::SNPrintF(address.sun_path, sizeof(address.sun_path), "%s", Path("socket"));
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ExpectRefused(ReadSecret(Path("socket")).status(), "not a regular file");
  ::close(fd);
}

TEST_F(SecretFile, LimitIs64KiB) {
  const std::string largest(64 << 10, 'x');
  EXPECT_EQ(ReadSecret(Write("largest", largest, 0600)).value_or("refused"), largest);
  ExpectRefused(ReadSecret(Write("larger", largest + "x", 0600)).status(), "65536 bytes");
  EXPECT_TRUE(WriteSecret(Path("largest"), largest).ok());
  ExpectRefused(WriteSecret(Path("larger"), largest + "x"), "65536 bytes");
}

// Bug it must catch: the path is checked, and then opened once more. Another thread puts a narrow
// and a wide file there in turn; the text of the wide one must never be read.
TEST_F(SecretFile, CheckHoldsForTheFileThatIsRead) {
  Write("narrow", "narrow", 0600);
  Write("wide", "wide", 0644);
  std::filesystem::create_symlink("narrow", Path("key"));
  std::atomic<bool> stop = false;
  std::thread swapper([&] {
    for (int i = 0; !stop; ++i) {
      std::filesystem::create_symlink(i % 2 == 0 ? "wide" : "narrow", Path("next"));
      std::filesystem::rename(Path("next"), Path("key"));
    }
  });
  int read = 0, refused = 0, wrong = 0;
  for (int i = 0; i < 100'000 && (i < 20'000 || read < 100 || refused < 100); ++i) {
    const absl::StatusOr<std::string> text = ReadSecret(Path("key"));
    ++(text.ok() ? read : refused);
    if (text.ok() && *text != "narrow") ++wrong;
  }
  stop = true;
  swapper.join();
  EXPECT_EQ(wrong, 0) << "of " << read << " reads, beside " << refused << " refusals";
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(SecretFile, WrittenSecretIsTheOwnersAloneWhateverTheUmask) {
  for (const mode_t mask : {0, 022, 0777}) {
    const Umask umask(mask);
    ASSERT_TRUE(WriteSecret(Path("key"), "first").ok());
    ASSERT_TRUE(WriteSecret(Path("key"), "second").ok());
    EXPECT_EQ(Mode(Path("key")), 0600);
    EXPECT_EQ(ReadSecret(Path("key")).value_or("refused"), "second");
    EXPECT_THAT(ListDirectory(directory_.path()).value(), ElementsAre("key"));
  }
  ASSERT_TRUE(WriteSecret(Write("wide", "old", 0644), "new").ok());
  EXPECT_EQ(Mode(Path("wide")), 0600);
}

// Bug it must catch: the file is made with the mode that the umask allows, and narrowed afterwards.
// Another thread looks at the temporary file all the time.
TEST_F(SecretFile, ModeIsNeverWiderInBetween) {
  const Umask umask(0);
  std::atomic<bool> stop = false;
  std::atomic<int> seen = 0, wide = 0;
  std::thread reader([&] {
    while (!stop) {
      struct stat info {};
      if (::lstat(Path("key.tmp").c_str(), &info) != 0) continue;
      ++seen;
      if ((info.st_mode & 077) != 0) ++wide;
    }
  });
  for (int i = 0; i < 20'000 && (i < 500 || seen < 200); ++i) {
    ASSERT_TRUE(WriteSecret(Path("key"), "text").ok());
  }
  stop = true;
  reader.join();
  EXPECT_GT(seen, 0);
  EXPECT_EQ(wide, 0) << "of " << seen;
}

TEST_F(SecretFile, WhatADeadWriterLeftIsNotWrittenTo) {
  Write("key.tmp", "left", 0666);
  const int held = ::open(Path("key.tmp").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(held, 0);
  ASSERT_TRUE(WriteSecret(Path("key"), "secret").ok());
  EXPECT_EQ(Mode(Path("key")), 0600);
  char text[16] = {};
  EXPECT_EQ(::read(held, text, sizeof(text)), 4);
  EXPECT_STREQ(text, "left") << "who held the old file open would have read the secret";
  ::close(held);
}

TEST_F(SecretFile, LinksAtBothPathsAreReplacedNotFollowed) {
  Write("victim", "theirs", 0644);
  std::filesystem::create_symlink("victim", Path("key"));
  std::filesystem::create_symlink("victim", Path("key.tmp"));
  ASSERT_TRUE(WriteSecret(Path("key"), "secret").ok());
  EXPECT_EQ(ReadFile(Path("victim")).value(), "theirs");
  EXPECT_EQ(ReadSecret(Path("key")).value_or("refused"), "secret");
}

TEST_F(SecretFile, FailedWriteLeavesTheOldFileAndNoTemporary) {
  EXPECT_EQ(WriteSecret(Path("no/key"), "x").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(MakeDirectories(Path("directory/child")).ok());
  EXPECT_FALSE(WriteSecret(Path("directory"), "x").ok());
  EXPECT_THAT(ListDirectory(directory_.path()).value(), ElementsAre("directory"));
}

// Bug it must catch: after a power cut the secret is there, and empty. The test above that writes
// one secret runs once more, in a process that notes what is synced and renamed.
TEST_F(SecretFile, WriteSyncsTheFileBeforeItHasItsNameAndTheNameAfter) {
  const char* bin = std::getenv("TRAINYARD_BIN");
  ASSERT_NE(bin, nullptr) << "run through ctest, which sets TRAINYARD_BIN";
  const std::string log = Path("log");
  const std::string command = absl::StrCat(
      "ASAN_OPTIONS=verify_asan_link_order=0 SYNC_LOG=", log, " LD_PRELOAD=", bin,
      "/../tests/libsync_shim.so ", std::filesystem::read_symlink("/proc/self/exe").string(),
      " --gtest_filter=SecretFile.LinksAtBothPathsAreReplacedNotFollowed >/dev/null");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_THAT(ReadFile(log).value_or(""),
              ::testing::MatchesRegex("(.|\n)*\nsync [^\n]*/key.tmp\nrename [^\n]*/key\n"
                                      "sync [^\n]*\n"));
}

TEST_F(SecretFile, DirectoryIsTheOwnersAlone) {
  for (const mode_t mask : {0, 022}) {
    const Umask umask(mask);
    const std::string path = Path(absl::StrCat("a", mask, "/b"));
    ASSERT_TRUE(MakeSecretDirectory(path).ok());
    ASSERT_TRUE(MakeSecretDirectory(path).ok());
    EXPECT_EQ(Mode(path), 0700);
  }
}

TEST_F(SecretFile, WiderDirectoryIsRefusedAndLeftAsItWas) {
  const std::string path = Path("directory");
  ASSERT_TRUE(MakeDirectories(path).ok());
  for (const mode_t mode : {0755, 0750, 0701}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    ExpectRefused(MakeSecretDirectory(path), absl::StrCat("Run: chmod 700 '", path, "'"));
    EXPECT_EQ(Mode(path), mode);
  }
  std::filesystem::create_symlink("directory", Path("link"));
  ExpectRefused(MakeSecretDirectory(Path("link")), "chmod 700");
  ExpectRefused(MakeSecretDirectory(Write("file", "x", 0600)), "Not a directory");
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  EXPECT_TRUE(MakeSecretDirectory(path).ok());
}

}  // namespace
}  // namespace trainyard
