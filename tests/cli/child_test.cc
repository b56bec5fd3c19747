// Proves that a child's output and end can be seen, that its log is appended to and bounded, and
// that addresses which cannot be listened on are told apart.

#include "cli/child.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/errors.h"
#include "cli/local_service.h"
#include "cli/ports.h"
#include "common/files.h"

namespace trainyard::cli {
namespace {

std::string Directory() {
  const std::string path = ::testing::TempDir() + "/child_test";
  EXPECT_TRUE(RemoveTree(path).ok());
  EXPECT_TRUE(MakeDirectories(path).ok());
  return path;
}

TEST(Child, ItsOutputIsReadAndItsErrorsAreLogged) {
  const std::string log = Directory() + "/log";
  ASSERT_TRUE(WriteFileAtomic(log, "before\n").ok());
  const auto child = SpawnChild({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, log);
  ASSERT_TRUE(child.ok()) << child.status();
  int wait_status = 0;
  ASSERT_EQ(waitpid(child->pid, &wait_status, 0), child->pid);
  char buffer[16] = {};
  EXPECT_EQ(read(child->output.get(), buffer, sizeof(buffer)), 4);
  EXPECT_STREQ(buffer, "out\n");
  EXPECT_EQ(DescribeExit(wait_status), "exited with 3");
  EXPECT_EQ(ReadFile(log).value(), "before\nerr\n");
  EXPECT_EQ(Tail(log, 1), "err");
}

TEST(Child, ItIsListedAmongTheChildrenAndNamedBySignalWhenKilled) {
  const auto child = SpawnChild({"/bin/sleep", "100"}, Directory() + "/log");
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT(ChildrenOfThisProcess(), ::testing::Contains(child->pid));
  kill(child->pid, SIGKILL);
  int wait_status = 0;
  ASSERT_EQ(waitpid(child->pid, &wait_status, 0), child->pid);
  EXPECT_EQ(DescribeExit(wait_status), "was killed by signal 9");
}

TEST(Child, AMissingProgramIsNotFound) {
  const auto child = SpawnChild({"/no/such/program"}, Directory() + "/log");
  EXPECT_EQ(child.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(child.status().message(), "cannot run /no/such/program: No such file or directory");
}

TEST(RotateLog, MovesABigLogAsideAndLeavesASmallOne) {
  const std::string log = Directory() + "/log";
  ASSERT_TRUE(WriteFileAtomic(log, "123456").ok());
  RotateLog(log, 6);
  EXPECT_FALSE(Exists(log + ".1"));
  RotateLog(log, 5);
  EXPECT_EQ(ReadFile(log).value(), "");
  EXPECT_EQ(ReadFile(log + ".1").value(), "123456");
}

TEST(CheckListenable, TellsATakenPortFromABadAddress) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string taken = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  const absl::Status status = CheckListenable("--listen", taken);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(
      status.message(),
      absl::StrCat("--listen: cannot listen on ", taken,
                   ": the port is taken, perhaps by another 'trainyard up'; --listen 127.0.0.1:0 "
                   "picks a free port"));
  close(fd);
  EXPECT_TRUE(CheckListenable("--listen", taken).ok());
  EXPECT_TRUE(CheckListenable("--listen", "127.0.0.1:0").ok());
  for (const char* bad : {"7070", ":7070", "localhost:http", "127.0.0.1:70000"}) {
    EXPECT_EQ(ExitCode(CheckListenable("--listen", bad)), 2) << bad;
  }
}

}  // namespace
}  // namespace trainyard::cli
