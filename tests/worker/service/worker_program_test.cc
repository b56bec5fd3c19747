// The program trainyard-worker itself, against a scripted controller: it says when it is ready,
// drains on SIGTERM, hurries on a second one, and after kill -9 takes its ranks up again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "absl/strings/match.h"
#include "common/build_info.h"
#include "common/files.h"
#include "tests/testing/fake_nvml/fake_nvml.h"
#include "tests/worker/daemon/testing.h"
#include "tests/worker/service/fake_controller.h"
#include "worker/daemon/processes.h"
#include "worker/daemon/rank_directory.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

bool WithCuda() { return CudaVersion() != std::string("none"); }

class WorkerProgramTest : public ::testing::Test {
 protected:
  ~WorkerProgramTest() override {
    if (worker_ > 0) {
      ::kill(worker_, SIGKILL);
      ::waitpid(worker_, nullptr, 0);
    }
    // Ranks that a test leaves running, as a crashed worker does.
    const auto names = ListDirectory(state() + "/ranks");
    for (const std::string& name : names.value_or(std::vector<std::string>{})) {
      const std::string marker = RankDirectory::Marker(state() + "/ranks/" + name);
      EXPECT_TRUE(WaitFor([&] { return KillMarked(marker) == 0; }));
    }
  }

  std::string state() const { return directory_.path() + "/state"; }
  std::string Output() const { return ReadFile(directory_.path() + "/output").value_or(""); }

  using Flags = std::map<std::string, std::string>;

  // With these flags instead of, or besides, the usual ones.
  pid_t Spawn(const Flags& changed = {}) {
    Flags flags = {{"--controller", controller_.address()},
                   {"--state", state()},
                   {"--devices", "2"},
                   {"--cores", "1"},
                   {"--root", directory_.path()},
                   {"--trainer", FakeTrainer()}};
    for (const auto& [name, value] : changed) flags[name] = value;
    Command command = {.arguments = {WorkerProgram()},
                       .environment = environment_,
                       .output = directory_.path() + "/output"};
    for (const auto& [name, value] : flags) {
      command.arguments.push_back(name);
      command.arguments.push_back(value);
    }
    const auto pid = SpawnSession(command);
    EXPECT_TRUE(pid.ok()) << pid.status();
    return pid.value_or(0);
  }
  // For workers started from now on, and those that run.
  void PlayMachine(const nlohmann::json& machine) {
    SetFakeMachine(directory_.path(), machine);
    environment_.push_back(std::string("FAKE_NVML=") + std::getenv("FAKE_NVML"));
    environment_.push_back("LD_LIBRARY_PATH=" + FakeNvmlDirectory());
  }
  void Start(const Flags& changed = {}) {
    worker_ = Spawn(changed);
    EXPECT_TRUE(WaitFor([&] { return absl::StrContains(Output(), "ready worker="); })) << Output();
  }
  int AwaitEnd(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (pid == worker_) worker_ = 0;
    return status;
  }
  void RunRank(const std::vector<std::string>& actions) {
    ASSERT_TRUE(WaitFor([&] { return controller_.Start(StartMessage("job", 1, actions)); }));
    controller_.AwaitRank("job", 1, v1::RANK_STATE_READY);
  }
  // Bug it must catch: an end that the user asked for counts as a failure of the rank.
  void ExpectKilledWithItsWorker() {
    const v1::RankStatus exited = controller_.AwaitRank("job", 1, v1::RANK_STATE_EXITED);
    EXPECT_EQ(exited.cause(), v1::EXIT_CAUSE_STOPPED);
    EXPECT_EQ(exited.signal(), SIGKILL);
  }

  std::vector<std::string> environment_ = {"PATH=/usr/bin:/bin"};
  FakeController controller_;
  TemporaryDirectory directory_;
  pid_t worker_ = 0;
};

TEST_F(WorkerProgramTest, SaysWhenItIsReadyAndWhatItHas) {
  Start();
  const v1::Register registered = controller_.AwaitRegister(1);
  EXPECT_THAT(Output(), HasSubstr("ready worker=" + registered.worker_id() + " controller=" +
                                  controller_.address() + " metrics=" + registered.metrics_url()));
  EXPECT_THAT(registered.metrics_url(), HasSubstr("http://127.0.0.1:"));
  ASSERT_EQ(registered.devices_size(), 2);
  EXPECT_EQ(registered.devices(0).threads(), 1u);
  EXPECT_EQ(registered.devices(0).peak_size(), 3);
  EXPECT_TRUE(registered.devices(0).peak(0).measured());
}

// Bug it must catch: a job that is placed on a GPU that fell off the bus, again and again.
TEST_F(WorkerProgramTest, ALostGpuIsOfferedNoMoreUntilItIsBack) {
  if (!WithCuda()) return;
  nlohmann::json machine = FakeMachine(3);
  PlayMachine(machine);
  Start({{"--devices", "cuda"}});
  EXPECT_EQ(controller_.AwaitRegister(1).devices_size(), 3);
  machine["gpus"][1]["error"] = 15;
  PlayMachine(machine);
  const v1::Register without = controller_.AwaitRegister(2);
  ASSERT_EQ(without.devices_size(), 2);
  EXPECT_EQ(without.devices(1).index(), 2u);  // Indices stay.
  v1::StartRanks order = StartMessage("job", 1, {"ready", "wait"});
  order.mutable_ranks(0)->set_device(1);
  ASSERT_TRUE(WaitFor([&] { return controller_.Start(order); }));  // Sent before it was known.
  const v1::RankStatus refused = controller_.AwaitRank("job", 1, v1::RANK_STATE_EXITED);
  EXPECT_EQ(refused.cause(), v1::EXIT_CAUSE_STOPPED);
  EXPECT_THAT(refused.message(), HasSubstr("is lost"));
  machine["gpus"][1].erase("error");
  PlayMachine(machine);
  EXPECT_EQ(controller_.AwaitRegister(3).devices_size(), 3);
}

// As a machine with GPUs: NVML is found where the system's loader looks.
TEST_F(WorkerProgramTest, OffersGpusWhereThereAreAnyAndARankOnOneSeesItAlone) {
  PlayMachine(FakeMachine(4));
  environment_.push_back("CUDA_VISIBLE_DEVICES=2,3");
  Start({{"--devices", "auto"}});
  const v1::Register registered = controller_.AwaitRegister(1);
  if (!WithCuda()) {  // Its trainer could not use them.
    EXPECT_EQ(registered.devices(0).kind(), v1::DEVICE_KIND_CPU);
    return;
  }
  ASSERT_EQ(registered.devices_size(), 2);
  EXPECT_EQ(registered.devices(0).kind(), v1::DEVICE_KIND_CUDA);
  EXPECT_EQ(registered.devices(0).model(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(registered.devices(0).gpu().index(), 2u);
  RunRank({"print_environment:CUDA_VISIBLE_DEVICES", "ready", "wait"});
  const std::string rank = state() + "/ranks/job.1.0";
  EXPECT_TRUE(WaitFor([&] { return absl::StrContains(LogText(rank), "\n"); }));
  EXPECT_EQ(LogText(rank), "CUDA_VISIBLE_DEVICES=" + FakeH100(2)["uuid"].get<std::string>() + "\n");
  EXPECT_THAT(ReadFile(rank + "/config.json").value_or(""), HasSubstr("\"device_kind\": \"CUDA\""));
}

TEST_F(WorkerProgramTest, AfterKillNineANewOneAdoptsTheRanksUnderTheSameName) {
  Start();
  const v1::Register first = controller_.AwaitRegister(1);
  RunRank({"ready", "wait"});
  ::kill(worker_, SIGKILL);
  AwaitEnd(worker_);
  Start();
  const v1::Register second = controller_.AwaitRegister(2);
  EXPECT_EQ(second.worker_id(), first.worker_id());
  EXPECT_NE(second.instance_id(), first.instance_id());
  ASSERT_EQ(second.running_size(), 1);
  EXPECT_EQ(second.running(0).state(), v1::RANK_STATE_READY);
  ASSERT_TRUE(WaitFor([&] { return controller_.Stop("job", 1, v1::STOP_MODE_KILL); }));
  EXPECT_EQ(controller_.AwaitRank("job", 1, v1::RANK_STATE_EXITED).signal(), SIGTERM);
}

// One end of an upgrade is always first: the worker waits for the other, and its ranks go on.
TEST_F(WorkerProgramTest, SaysThatItsControllerIsOfAnotherReleaseAndWaitsForTheNextOne) {
  const std::string refusal = "this controller, Trainyard 0.2.0, speaks version 3";
  controller_.GoAway();
  worker_ = Spawn();
  EXPECT_TRUE(WaitFor([&] { return absl::StrContains(Output(), "controller_lost"); })) << Output();
  controller_.set_refusal(refusal);
  controller_.ComeBack();
  EXPECT_TRUE(WaitFor([&] { return absl::StrContains(Output(), refusal); })) << Output();
  controller_.set_refusal("");
  controller_.set_admit(true);
  EXPECT_TRUE(WaitFor([&] { return absl::StrContains(Output(), "ready worker="); })) << Output();
}

TEST_F(WorkerProgramTest, SigtermDrains) {
  Start();
  RunRank({"ready", "wait_stop", "report:stopped:", "exit:0"});
  ::kill(worker_, SIGTERM);
  EXPECT_EQ(AwaitEnd(worker_), 0);
  EXPECT_EQ(controller_.AwaitRank("job", 1, v1::RANK_STATE_EXITED).cause(), v1::EXIT_CAUSE_STOPPED);
  EXPECT_EQ(controller_.Count([](const auto& request) { return request.has_draining(); }), 1u);
}

TEST_F(WorkerProgramTest, ASecondSignalKillsRanksThatDoNotStop) {
  Start();
  RunRank({"ready", "wait"});
  ::kill(worker_, SIGTERM);
  controller_.Await([](const auto& request) { return request.has_draining(); });
  ::kill(worker_, SIGINT);
  EXPECT_EQ(AwaitEnd(worker_), 0);
  ExpectKilledWithItsWorker();
}

TEST_F(WorkerProgramTest, TheDrainIsBounded) {
  Start({{"--drain-timeout", "0.1"}});
  RunRank({"ready", "wait"});
  ::kill(worker_, SIGTERM);
  EXPECT_EQ(AwaitEnd(worker_), 0);
  ExpectKilledWithItsWorker();
}

TEST_F(WorkerProgramTest, ASecondWorkerOnOneStateDirectoryIsRefused) {
  Start();
  const int status = AwaitEnd(Spawn());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(Output(), HasSubstr("belongs to another running worker daemon"));
}

TEST_F(WorkerProgramTest, WrongFlagsAreSaidAndEndIt) {
  const auto exit_code = [&](const Flags& flags) { return WEXITSTATUS(AwaitEnd(Spawn(flags))); };
  EXPECT_EQ(exit_code({{"--controller", "192.0.2.1:7070"}}), 1);
  EXPECT_THAT(Output(),
              HasSubstr("has not joined the controller at 192.0.2.1:7070: give it --join FILE"));
  EXPECT_EQ(exit_code({{"--metrics-listen", "0.0.0.0:0"}}), 1);
  EXPECT_THAT(Output(), HasSubstr("refusing to serve metrics at 0.0.0.0:0"));
  EXPECT_EQ(exit_code({{"--trainer", "/nonexistent"}}), 1);
  EXPECT_THAT(Output(), HasSubstr("no trainer at /nonexistent"));
  EXPECT_EQ(exit_code({{"--root", "/nonexistent"}}), 1);
  EXPECT_THAT(Output(), HasSubstr("--root /nonexistent"));
  EXPECT_EQ(exit_code({{"--devices", "0"}}), 2);
  EXPECT_THAT(Output(), HasSubstr("--devices 0 is not between 1"));
  EXPECT_EQ(exit_code({{"--devices", "gpu"}}), 2);
  EXPECT_THAT(Output(), HasSubstr("--devices gpu: wanted auto, cuda or a number"));
  EXPECT_EQ(exit_code({{"--devices", "cuda"}}), 1);
  EXPECT_THAT(Output(), HasSubstr(WithCuda() ? "no NVIDIA driver" : "no kernels for GPUs"));
  EXPECT_EQ(exit_code({{"--patience", "0"}}), 2);
  EXPECT_EQ(exit_code({{"--cores", "0"}}), 2);
  EXPECT_EQ(exit_code({{"--cores", "100000"}}), 2);
  EXPECT_THAT(Output(), HasSubstr("usable cores"));
  EXPECT_EQ(exit_code({{"--devises", "2"}}), 2);
}

}  // namespace
}  // namespace trainyard
