// Proves that a service starts and ends as a user expects: a running job can be
// cancelled, however `up` ends nothing is left running, and what is taken is named.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/e2e/service.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TestJob Endless(const std::string& name) {
  return {.name = name,
          .steps = 1'000'000,
          .devices = 2,
          .checkpoint_every = 500'000,
          .directory = "runs/" + name};
}

TEST(Lifecycle, ARunningJobIsCancelledAndItsDevicesAreFree) {
  Service service({.workers = 1, .devices_per_worker = 2});
  const std::string id = service.Submit(Endless("endless"));
  ASSERT_TRUE(service.WaitForStep(id, 5));
  const Finished healthy = service.Trainyard({"health"});
  EXPECT_EQ(healthy.output, "serving\n") << healthy << "\nA probe would restart this controller.";
  EXPECT_EQ(service.Trainyard({"cancel", id, "--reason", "enough"}).exit_code, 0);
  EXPECT_EQ(service.WaitForEnd(id), "CANCELLED");
  EXPECT_TRUE(service.Trainers(id).empty());
  const std::string next = service.Submit({.name = "next", .steps = 3, .devices = 2});
  EXPECT_EQ(service.WaitForEnd(next), "SUCCEEDED");
}

// Catches two jobs that write over each other's checkpoints, and a refusal that ends the wrong one.
// The service sees that the directories are one by their names, the trainer whatever they are
// called.
TEST(Lifecycle, OfTwoLiveJobsOnOneCheckpointDirectoryTheSecondIsRefused) {
  Service service({.workers = 2, .devices_per_worker = 1});
  ASSERT_EQ(::symlink("runs", (service.directory() + "/alias").c_str()), 0);
  TestJob job = {
      .name = "first", .steps = 1'000'000, .checkpoint_every = 20, .directory = "runs/shared"};
  const std::string first = service.Submit(job);
  ASSERT_TRUE(service.WaitForStep(first, 20));
  const Finished same = service.Trainyard({"submit", "first.yaml"});
  EXPECT_EQ(same.exit_code, 1);
  EXPECT_THAT(same.errors, AllOf(HasSubstr("runs/shared"), HasSubstr(first)));
  job.name = "second";
  job.directory = "alias/shared";
  const std::string second = service.Submit(job);
  EXPECT_EQ(service.WaitForEnd(second), "FAILED");
  EXPECT_THAT(service.Job(second).value("state_reason", ""),
              HasSubstr("runs/shared belongs to job " + first));
  ASSERT_TRUE(service.WaitForStep(first, service.Step(first) + 40));
  EXPECT_EQ(service.Job(first).at("restarts"), 0);
  EXPECT_EQ(service.Trainyard({"cancel", first}).exit_code, 0);
  EXPECT_EQ(service.WaitForEnd(first), "CANCELLED");
}

TEST(Lifecycle, EndingUpWithAJobRunningLeavesNothingBehind) {
  Service service({.workers = 2, .devices_per_worker = 1});
  const std::string id = service.Submit(Endless("endless"));
  ASSERT_TRUE(service.WaitForStep(id, 5));
  EXPECT_EQ(service.Trainers(id).size(), 2u);
  service.up().Signal(SIGINT);
  EXPECT_EQ(service.up().Wait(absl::Seconds(60)), 0);
  for (const Found& process : FindProcesses(service.directory())) {
    ADD_FAILURE() << "left running: " << process.command;
  }
}

TEST(Lifecycle, ASecondSignalEndsAtOnceAndStillLeavesNothing) {
  Service service({.workers = 1, .devices_per_worker = 2});
  const std::string id = service.Submit(Endless("endless"));
  ASSERT_TRUE(service.WaitForStep(id, 5));
  for (const Found& trainer : service.Trainers(id)) Kill(trainer.pid, SIGSTOP);  // Cannot drain.
  service.up().Signal(SIGTERM);
  const std::string log = service.directory() + "/up.err";
  ASSERT_TRUE(
      WaitUntil([&] { return ReadFile(log).value_or("").find("stopping") != std::string::npos; }));
  service.up().Signal(SIGTERM);
  EXPECT_EQ(service.up().Wait(absl::Seconds(10)), 0);
  EXPECT_TRUE(FindProcesses(service.directory()).empty());
  // The user's wish is no failure of the job.
  service.StartAgain();
  ASSERT_TRUE(WaitUntil([&] { return service.State(id) == "RUNNING"; }));
  EXPECT_EQ(service.Job(id).at("epoch"), 2);
  EXPECT_EQ(service.Job(id).at("restarts_without_progress"), 0);
}

// Bug it must catch: `up` waits for programs that cannot see its signal.
TEST(Lifecycle, UpEndsAtOnceAlthoughItsWorkerAndControllerWereStopped) {
  Service service({.workers = 1, .devices_per_worker = 2});
  const std::string id = service.Submit(Endless("endless"));
  ASSERT_TRUE(service.WaitForStep(id, 5));
  for (const char* program : {"trainyard-worker", "trainyard-controller"}) {
    const pid_t part = service.Find(program, "--metrics-listen");
    ASSERT_GT(part, 0) << program;
    Kill(part, SIGSTOP);
  }
  service.up().Signal(SIGTERM);
  EXPECT_EQ(service.up().Wait(absl::Seconds(20)), 0);
  EXPECT_TRUE(FindProcesses(service.directory()).empty());
  service.StartAgain();
  EXPECT_TRUE(WaitUntil([&] { return service.State(id) == "RUNNING"; }));
  EXPECT_EQ(service.Job(id).at("restarts_without_progress"), 0);
}

TEST(Lifecycle, UpAddsRootsForPathsOfSpecs) {
  const std::string elsewhere = ::testing::TempDir() + "up_root";
  ASSERT_TRUE(MakeDirectories(elsewhere).ok());
  ASSERT_TRUE(WriteFileAtomic(elsewhere + "/a.txt", std::string(4000, 'a')).ok());
  const TestJob job = {
      .name = "elsewhere", .steps = 2, .data = absl::StrCat("text: {path: ", elsewhere, "/a.txt}")};
  {
    Service service({.workers = 1});
    const Finished refused =
        service.Trainyard({"submit", service.Write("elsewhere.yaml", job.Text())});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.errors, AllOf(HasSubstr("data.text.path: wanted a path below a root"),
                                      HasSubstr("trainyard up --root DIR")));
  }
  Service service({.workers = 1, .up_flags = {"--root", elsewhere}});
  EXPECT_EQ(service.WaitForEnd(service.Submit(job)), "SUCCEEDED");
}

TEST(Lifecycle, UpGivesItsWorkersTheirPatience) {
  Service service({.workers = 1, .devices_per_worker = 1, .up_flags = {"--patience", "77"}});
  pid_t worker = service.Find("trainyard-worker", "--patience 77");
  EXPECT_GT(worker, 0);
}

TEST(Lifecycle, EveryProgramEndsWithTwoForFlagsThatItCannotUse) {
  Service service({.workers = 1, .devices_per_worker = 1});
  for (const char* program : {"trainyard", "trainyard-controller", "trainyard-worker",
                              "trainyard-trainer", "trainyard-tokenize"}) {
    SCOPED_TRACE(program);
    EXPECT_EQ(service.Run(program, {"--no-such-flag"}).exit_code, 2);
    EXPECT_EQ(service.Run(program, {"--help"}).exit_code, 0);
  }
  EXPECT_EQ(service.Run("trainyard-controller", {}).exit_code, 2) << "--state is required";
}

TEST(Lifecycle, KillingUpItselfEndsEverythingItStarted) {
  Service service({.workers = 2, .devices_per_worker = 1});
  const std::string id = service.Submit(Endless("endless"));
  ASSERT_TRUE(service.WaitForStep(id, 5));
  service.up().Signal(SIGKILL);
  EXPECT_EQ(service.up().Wait(absl::Seconds(10)), 128 + SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return FindProcesses(service.directory()).empty(); }));
}

// Bug it must catch: the second 'up' ends because the first one's workers, which drain, still hold
// their state directories.
TEST(Lifecycle, UpThatWasKilledIsStartedAgainAtOnce) {
  Service service({.workers = 2, .devices_per_worker = 1});
  TestJob job = Endless("killed-up");
  job.checkpoint_every = 20;
  job.directory = "runs/killed-up";
  const std::string id = service.Submit(job);
  ASSERT_TRUE(service.WaitForStep(id, 40));
  service.up().Signal(SIGKILL);
  service.up().Wait(absl::Seconds(10));
  service.StartAgain();
  EXPECT_TRUE(service.WaitForStep(id, 60));
  EXPECT_EQ(service.Trainyard({"cancel", id}).exit_code, 0);
  EXPECT_EQ(service.WaitForEnd(id), "CANCELLED");
}

TEST(Lifecycle, ATakenPortAndATakenStateAreNamed) {
  Service service({.workers = 1, .devices_per_worker = 1});
  const Finished port = service.Trainyard(
      {"up", "--state", "other", "--listen", service.address(), "--metrics-listen", "127.0.0.1:0"});
  EXPECT_EQ(port.exit_code, 1);
  EXPECT_EQ(port.output, "");
  EXPECT_THAT(port.errors,
              AllOf(HasSubstr("cannot listen on " + service.address()), HasSubstr("taken")));
  EXPECT_FALSE(Exists(service.directory() + "/other"));
  // Where the state is taken as well, its owner may be what has the port.
  for (const std::string& listen : {std::string("127.0.0.1:0"), service.address()}) {
    const Finished state = service.Trainyard(
        {"up", "--state", "state", "--listen", listen, "--metrics-listen", "127.0.0.1:0"});
    EXPECT_EQ(state.exit_code, 1);
    EXPECT_THAT(state.errors,
                HasSubstr("another 'trainyard up' uses " + service.directory() + "/state"));
  }
}

TEST(Lifecycle, AWorkerThatKeepsDyingEndsTheServiceWithAMessage) {
  Service service({.workers = 1, .devices_per_worker = 1});
  // Each death is seen before the next: the sixth within a minute is one too many.
  for (int death = 0; death < 6; ++death) {
    pid_t worker = -1;
    ASSERT_TRUE(WaitUntil([&] {
      for (const Found& found : FindProcesses(service.directory() + "/state/worker-0 "))
        worker = found.pid;
      return worker > 0;
    }));
    Kill(worker, SIGKILL);
    ASSERT_TRUE(WaitUntil([&] {
      for (const Found& found : FindProcesses(service.directory() + "/state/worker-0 ")) {
        if (found.pid == worker) return false;
      }
      return true;
    }));
  }
  EXPECT_EQ(service.up().Wait(absl::Seconds(60)), 1);
  EXPECT_THAT(ReadFile(service.directory() + "/up.err").value_or(""),
              AllOf(HasSubstr("worker-0 was killed by signal 9"), HasSubstr("sixth")));
}

}  // namespace
}  // namespace trainyard::testing
