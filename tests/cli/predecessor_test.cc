// Proves which processes that run in a state directory an 'up' waits for: controllers and workers,
// and no others.

#include "cli/predecessor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/files.h"

namespace trainyard::cli {
namespace {

class Predecessor : public ::testing::Test {
 protected:
  Predecessor() { EXPECT_TRUE(RemoveTree(state_).ok()); }

  // Makes a directory with a lock file, as controllers and workers do, and takes the lock.
  int Lock(const std::string& name) const {
    const std::string directory = absl::StrCat(state_, "/", name);
    EXPECT_TRUE(MakeDirectories(directory).ok());
    const int lock = ::open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    EXPECT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0) << name;
    return lock;
  }

  const std::string state_ = ::testing::TempDir() + "/predecessor_test";
};

TEST_F(Predecessor, IsTheControllerOrAWorkerUntilItHasEnded) {
  EXPECT_EQ(FindPredecessor(state_), "") << "no directory";
  for (const char* name : {"controller", "worker-0", "worker-12"}) {
    const int lock = Lock(name);
    EXPECT_EQ(FindPredecessor(state_), absl::StrCat(state_, "/", name));
    ::close(lock);
    EXPECT_EQ(FindPredecessor(state_), "") << name;
    ::close(Lock(name));  // Looking has not kept the lock.
  }
}

// Bug it must catch: 'up' does not start beside a program that locks a directory of its own.
TEST_F(Predecessor, IsNoOtherProgram) {
  for (const char* name : {"logs", "worker-", "worker-a", "worker-0.old", "my-controller"}) {
    const int lock = Lock(name);
    EXPECT_EQ(FindPredecessor(state_), "") << name;
    ::close(lock);
  }
}

}  // namespace
}  // namespace trainyard::cli
