// Whose process is whose, shown with real ones.

#include "worker/daemon/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/worker/daemon/testing.h"

namespace trainyard {
namespace {

// Catches a rank that speaks for another one: both are children of the daemon, and which of them is
// older says nothing.
TEST(DescendsFrom, KnowsAProcessAndItsChildrenFromItsSiblings) {
  TemporaryDirectory directory;
  const auto start = [&] {
    return SpawnSession({.arguments = {"/bin/sh", "-c", "sleep 60 & wait"},
                         .environment = {},
                         .output = directory.path() + "/output"});
  };
  const auto older = start();
  ASSERT_TRUE(older.ok()) << older.status();
  const ProcessIdentity identity = ReadProcess(*older)->identity;
  // The system counts a process's start in hundredths of a second.
  absl::SleepFor(absl::Milliseconds(20));
  const auto younger = start();
  ASSERT_TRUE(younger.ok()) << younger.status();

  pid_t child = 0;
  EXPECT_TRUE(WaitFor([&] {
    for (const ProcessStat& process : AllProcesses()) {
      if (process.parent == *older) child = process.identity.pid;
    }
    return child != 0;
  }));
  EXPECT_TRUE(DescendsFrom(*older, identity));
  EXPECT_TRUE(DescendsFrom(child, identity));
  EXPECT_FALSE(DescendsFrom(*younger, identity));
  EXPECT_FALSE(DescendsFrom(::getpid(), identity));
  ProcessIdentity former = identity;  // Another process had this number before.
  former.start_time -= 1;
  EXPECT_FALSE(DescendsFrom(*older, former));

  for (const pid_t session : {*older, *younger}) {
    ::kill(-session, SIGKILL);
    ::waitpid(session, nullptr, 0);
  }
}

}  // namespace
}  // namespace trainyard
