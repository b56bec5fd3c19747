// Proves that /proc is read right, also for a program whose name is made to confuse a reader.

#include "common/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace trainyard {
namespace {

// A child with a hostile name that lives until it is told to end, and is then a zombie until
// reaped.
class Child {
 public:
  Child() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_NAME, "x) Z 1 (");
      [[maybe_unused]] const ssize_t n = ::write(ends[1], "", 1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);  // It has its name.
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void End() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info;
    ::waitid(P_PID, id_t(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_ = 0;
};

TEST(Process, HasItsParentAndIsNotDeadWhateverItsName) {
  const Child child;
  const auto stat = ReadProcess(child.pid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getpid());
  EXPECT_FALSE(stat->dead);
  EXPECT_TRUE(*IsRunning(stat->identity));
  const auto all = AllProcesses();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const ProcessStat& p) {
    return p.identity.pid == child.pid() && p.parent == ::getpid();
  }));
}

TEST(Process, AZombieDoesNotRunAndNeitherDoesANumberThatIsUsedAgain) {
  const Child child;
  ProcessIdentity identity = ReadProcess(child.pid())->identity;
  ++identity.start_time;
  EXPECT_FALSE(*IsRunning(identity));
  --identity.start_time;
  child.End();
  EXPECT_TRUE(ReadProcess(child.pid())->dead);
  EXPECT_FALSE(*IsRunning(identity));
}

}  // namespace
}  // namespace trainyard
