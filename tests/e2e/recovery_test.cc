// Proves that whatever dies in the middle of a run, the run ends as if nothing had happened: the
// checkpoint's digest is that of an undisturbed run. Catches state that is not in a checkpoint
// (data position, moments, step), checkpoints that are used half-written, ranks that two attempts
// run at once, and jobs that a restart forgets.

#include <gmock/gmock.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

// Long enough to be hit in its middle: a few seconds on two cores.
TestJob Job(const std::string& name) {
  return {.name = name,
          .steps = 300,
          .devices = 2,
          .checkpoint_every = 40,
          .directory = "runs/" + name,
          .hidden = 64};
}

class Recovery : public ::testing::Test {
 protected:
  // Submits a job and waits until it has a checkpoint to fall back on and steps beyond it.
  std::string SubmitAndReachTheMiddle() {
    const std::string id = service_.Submit(Job("disturbed"));
    EXPECT_TRUE(service_.WaitForStep(id, 90));
    EXPECT_EQ(service_.State(id), "RUNNING") << "too fast to be disturbed";
    return id;
  }

  void ExpectEndsLikeAnUndisturbedRun(const std::string& id) {
    EXPECT_EQ(service_.WaitForEnd(id), "SUCCEEDED");
    const auto steps = service_.Steps(id);
    ASSERT_EQ(steps.size(), 300u);
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].at("step"), i + 1);
    const std::string undisturbed = service_.Submit(Job("undisturbed"));
    EXPECT_EQ(service_.WaitForEnd(undisturbed), "SUCCEEDED");
    EXPECT_EQ(service_.Job(undisturbed).at("restarts"), 0);
    EXPECT_EQ(service_.Digest("runs/disturbed"), service_.Digest("runs/undisturbed"));
  }

  Service service_{{.workers = 2, .devices_per_worker = 1}};
};

TEST_F(Recovery, ARankThatIsKilledIsRunAgainFromTheLastCheckpoint) {
  const std::string id = SubmitAndReachTheMiddle();
  const auto trainers = service_.Trainers(id);
  ASSERT_EQ(trainers.size(), 2u);
  ASSERT_EQ(kill(trainers[1].pid, SIGKILL), 0);
  ASSERT_TRUE(WaitUntil([&] { return service_.Job(id).at("restarts") == 1; }));
  ExpectEndsLikeAnUndisturbedRun(id);
  EXPECT_EQ(service_.Job(id).at("restarts"), 1);
  EXPECT_THAT(service_.Trainyard({"events", id}).output, ::testing::HasSubstr("signal 9"));
}

TEST_F(Recovery, TheControllerIsKilledAndNoRankNotices) {
  const std::string id = SubmitAndReachTheMiddle();
  const auto before = service_.Trainers(id);
  ASSERT_EQ(kill(service_.Find("trainyard-controller", ""), SIGKILL), 0);
  // The command line waits for the controller that `up` starts again at the same address.
  EXPECT_EQ(service_.Job(id).at("restarts"), 0);
  const auto after = service_.Trainers(id);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].pid, before[i].pid);
  ExpectEndsLikeAnUndisturbedRun(id);
  EXPECT_EQ(service_.Job(id).at("restarts"), 0);
  EXPECT_EQ(service_.Job(id).at("epoch"), 1);
}

TEST_F(Recovery, AWorkerDaemonIsKilledAndItsSuccessorAdoptsTheRank) {
  const std::string id = SubmitAndReachTheMiddle();
  const auto before = service_.Trainers(id);
  const pid_t daemon = service_.Find("trainyard-worker", "/state/worker-0 --devices");
  ASSERT_EQ(kill(daemon, SIGKILL), 0);
  ASSERT_TRUE(WaitUntil([&] { return ::kill(daemon, 0) != 0; }));
  ExpectEndsLikeAnUndisturbedRun(id);
  EXPECT_EQ(service_.Job(id).at("restarts"), 0);
  EXPECT_EQ(service_.Job(id).at("epoch"), 1);
}

TEST_F(Recovery, WatchingGoesOnThroughAControllersRestart) {
  const std::string id = service_.Submit(Job("disturbed"));
  Process watch({.argv = {absl::StrCat(std::getenv("TRAINYARD_BIN"), "/trainyard"), "watch", id,
                          "--controller", service_.address()},
                 .directory = service_.directory(),
                 .environment = {},
                 .output = service_.directory() + "/watch.out",
                 .errors = service_.directory() + "/watch.err"});
  ASSERT_TRUE(service_.WaitForStep(id, 50));
  ASSERT_EQ(kill(service_.Find("trainyard-controller", ""), SIGKILL), 0);
  EXPECT_EQ(watch.Wait(absl::Seconds(100)), 0);
}

}  // namespace
}  // namespace trainyard::testing
