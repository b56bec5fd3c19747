// The daemon without its network edge, over real supervisors and the fake trainer: what it reports
// of a rank, what of that a later daemon still knows, and that nothing runs that should not.

#include "worker/daemon/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/full_disk.h"
#include "tests/worker/daemon/testing.h"
#include "worker/channel/line_socket.h"
#include "worker/channel/unsent.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() { Restart(); }
  ~DaemonTest() override {
    daemon_->KillAll();
    EXPECT_TRUE(WaitFor([&] { return daemon_->num_live_ranks() == 0; }));
  }

  // A new daemon on the same state directory, as after a crash: the old one takes no leave.
  void Restart() {
    daemon_.reset();
    auto daemon = Daemon::Create(options_, metrics_, *clock_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    daemon_->Connected();
    heard_ = std::make_unique<Listener>(daemon_->outbox());
  }

  RankDirectory DirectoryOf(const RankId& id) { return {directory_.path(), id}; }
  ProcessIdentity SupervisorOf(const RankId& id) {
    WaitFor([&] { return ReadSupervisor(DirectoryOf(id).File("supervisor.json")).ok(); });
    return ReadSupervisor(DirectoryOf(id).File("supervisor.json")).value_or(ProcessIdentity{});
  }

  // Ends the daemon, and changes one bit of the first digit after `key` in a file of the rank.
  void Damage(absl::string_view name, const char* key) {
    daemon_.reset();
    const std::string path = DirectoryOf(id_).File(name);
    absl::StatusOr<std::string> text = ReadFile(path, 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    const size_t digit = text->find_first_of("0123456789", text->find(key));
    ASSERT_NE(digit, std::string::npos) << *text;
    (*text)[digit] = char((*text)[digit] ^ 1);
    ASSERT_TRUE(WriteFileAtomic(path, *text).ok());
  }

  // Whether the daemon lets this process, which is not the rank, speak for it.
  bool HearsThisProcess() {
    auto fd = channel::ConnectUnix(DirectoryOf(id_).File("socket"));
    EXPECT_TRUE(fd.ok()) << fd.status();
    channel::LineSocket socket(*std::move(fd));
    socket.Queue(channel::Encode({channel::Hello{"job", 1, 0, 1}}));
    socket.Queue(channel::Encode({channel::Ready{}, 1}));
    std::vector<std::string> lines;
    EXPECT_TRUE(WaitFor(
        [&] { return !socket.Write().ok() || !socket.Read(lines).ok() || !lines.empty(); }));
    return !lines.empty();
  }

  const RankId id_ = {"job", 1, 0};
  TemporaryDirectory directory_;
  DaemonOptions options_ = TestOptions(directory_.path());
  WorkerMetrics metrics_{"host"};
  FakeClock fake_clock_;
  const Clock* clock_ = &RealClock();
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Listener> heard_;
};

TEST_F(DaemonTest, ReportsARankFromStartToExitWithItsExitLast) {
  daemon_->StartRanks(
      Order("job", 1, {"ready", "step:100", "checkpoint:100", "flush", "report:completed:"}));
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kCompleted);
  EXPECT_TRUE(heard_->Await(id_, RankState::kStarting));
  EXPECT_TRUE(heard_->Await(id_, RankState::kReady));
  ASSERT_EQ(heard_->steps().size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(heard_->steps()[i].step.step, i + 1);
  ASSERT_EQ(heard_->checkpoints().size(), 1u);
  EXPECT_EQ(heard_->checkpoints()[0].checkpoint.path, "/data/step-100");
  EXPECT_EQ(heard_->kinds().back(), "status");
}

// Bug it must catch: three starts on a full disk within a second, and the job has failed.
TEST_F(DaemonTest, ARankThatAFullDiskKeepsFromStartingIsNoFaultOfItsJob) {
  {
    const FullDisk full;
    daemon_->StartRanks(Order("job", 1, {"report:completed:"}));
    const auto exited = heard_->Await(id_, RankState::kExited);
    ASSERT_TRUE(exited);
    EXPECT_EQ(exited->cause, ExitCause::kStorage);
    EXPECT_THAT(exited->message, HasSubstr("could not be started: cannot write"));
  }
  daemon_->StartRanks(Order("job", 2, {"report:completed:"}));
  const auto next = heard_->Await({"job", 2, 0}, RankState::kExited);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->cause, ExitCause::kCompleted);
  EXPECT_FALSE(DirectoryOf({"job", 2, 0}).Has("exit_report.json.room"));
}

TEST_F(DaemonTest, ARankHasRoomForItsReportWhileItRuns) {
  daemon_->StartRanks(Order("job", 1, {"ready", "wait"}));
  ASSERT_TRUE(heard_->Await(id_, RankState::kReady));
  EXPECT_GE(ReadFile(DirectoryOf(id_).File("exit_report.json.room")).value_or("").size(), 4096u);
}

TEST_F(DaemonTest, ForwardsTheLog) {
  daemon_->StartRanks(Order("job", 1, {"print:hello from the rank", "exit:0"}));
  EXPECT_TRUE(heard_->AwaitLog("hello from the rank"));
}

// All ranks may run as one user, and a rank finds the other's socket in /proc/net/unix.
TEST_F(DaemonTest, OnlyAProcessOfTheRankSpeaksForIt) {
  daemon_->StartRanks(Order("job", 1, {"ready", "flush", "wait"}));
  ASSERT_TRUE(heard_->Await(id_, RankState::kReady));
  EXPECT_FALSE(HearsThisProcess());
}

TEST_F(DaemonTest, OtherUsersSeeNothingOfARank) {
  daemon_->StartRanks(Order("job", 1, {"ready", "wait"}));
  ASSERT_TRUE(heard_->Await(id_, RankState::kReady));
  struct stat info = {};
  ASSERT_EQ(::stat(DirectoryOf(id_).path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(DaemonTest, TheSameOrderTwiceStartsOneRank) {
  const StartOrder order = Order("job", 1, {"print:begins", "wait"});
  daemon_->StartRanks(order);
  daemon_->StartRanks(order);
  EXPECT_TRUE(heard_->AwaitLog("begins"));
  EXPECT_EQ(daemon_->num_live_ranks(), 1u);
}

// Bug it must catch: an order repeated after a reconnect that runs a finished rank again.
TEST_F(DaemonTest, ARankThatHasExitedIsNotStartedAgainButItsExitIsSaidAgain) {
  const StartOrder order = Order("job", 1, {"report:completed:"});
  daemon_->StartRanks(order);
  ASSERT_TRUE(heard_->Await(id_, RankState::kExited));
  daemon_->Acknowledge(heard_->last_sequence());
  ASSERT_TRUE(WaitFor([&] { return DirectoryOf(id_).Has("reported"); }));
  Restart();
  daemon_->StartRanks(order);
  const auto again = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cause, ExitCause::kCompleted);
  EXPECT_EQ(daemon_->num_live_ranks(), 0u);
}

TEST_F(DaemonTest, AKillEndsTheRankAndAllEpochsBefore) {
  daemon_->StartRanks(Order("job", 3, {"wait"}));
  daemon_->StopRanks({"job", 2, StopMode::kKill});
  EXPECT_EQ(daemon_->num_live_ranks(), 1u);  // A later epoch is not meant.
  daemon_->StopRanks({"job", 4, StopMode::kKill});
  const auto exited = heard_->Await({"job", 3, 0}, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kSignal);
  EXPECT_EQ(exited->signal, SIGTERM);
}

TEST_F(DaemonTest, AStopReachesTheTrainerEvenBeforeItHasConnected) {
  daemon_->StartRanks(Order("job", 1, {"wait_stop", "report:stopped:", "exit:0"}));
  daemon_->StopRanks({"job", 1, StopMode::kCheckpoint});
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kStopped);
}

TEST_F(DaemonTest, ANewEpochKillsTheOldOneAndWaitsForItsDevice) {
  daemon_->StartRanks(Order("job", 1, {"print:old", "wait"}));
  ASSERT_TRUE(heard_->AwaitLog("old"));
  daemon_->StartRanks(Order("job", 2, {"print:new", "wait"}));
  EXPECT_TRUE(heard_->Await({"job", 1, 0}, RankState::kExited));
  EXPECT_TRUE(heard_->Await({"job", 2, 0}, RankState::kStarting));
  EXPECT_TRUE(heard_->AwaitLog("new"));
  // Bug it must catch: two ranks on one device.
  std::vector<std::string> order;
  for (const RankStatus& status : heard_->statuses()) {
    order.push_back(absl::StrCat(status.epoch, status.state == RankState::kExited ? " gone" : ""));
  }
  EXPECT_THAT(order, ElementsAre("1", "1 gone", "2"));
}

// Bug it must catch: a controller that takes a device for free makes two jobs share it.
TEST_F(DaemonTest, ADeviceThatAnotherJobUsesIsRefusedAndThatJobGoesOn) {
  daemon_->StartRanks(Order("job", 1, {"print:begins", "wait"}));
  ASSERT_TRUE(heard_->AwaitLog("begins"));
  daemon_->StartRanks(Order("other", 1, {"wait"}));
  const auto refused = heard_->Await({"other", 1, 0}, RankState::kExited);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->cause, ExitCause::kOther);
  EXPECT_THAT(refused->message, HasSubstr("device 0 is used by job.1.0"));
  EXPECT_EQ(daemon_->num_live_ranks(), 1u);
  daemon_->StopRanks({"job", 1, StopMode::kKill});
  ASSERT_TRUE(heard_->Await(id_, RankState::kExited));
  daemon_->StartRanks(Order("other", 2, {"print:its turn", "wait"}));
  EXPECT_TRUE(heard_->AwaitLog("its turn"));
}

TEST_F(DaemonTest, ASupersededEpochIsNotStarted) {
  daemon_->StartRanks(Order("job", 2, {"wait"}));
  daemon_->StartRanks(Order("job", 1, {"wait"}));
  const auto refused = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message, HasSubstr("superseded by 2"));
  EXPECT_EQ(daemon_->num_live_ranks(), 1u);
}

TEST_F(DaemonTest, OrdersThatCannotBeCarriedOutAreReportedAsExits) {
  StartOrder order = Order("job", 1, {});
  order.ranks = {{0, 9}};
  daemon_->StartRanks(order);
  auto refused = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message, HasSubstr("device 9 of a worker with 2"));
  order = Order("other", 1, {});
  order.job_config = "not json";
  daemon_->StartRanks(order);
  refused = heard_->Await({"other", 1, 0}, RankState::kExited);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message, HasSubstr("not a JSON object"));
}

TEST_F(DaemonTest, AKilledSupervisorIsAnExitBySignal) {
  daemon_->StartRanks(Order("job", 1, {"fork", "wait"}));
  ASSERT_TRUE(heard_->AwaitLog("grandchild"));
  ::kill(SupervisorOf(id_).pid, SIGKILL);
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kSignal);
  EXPECT_EQ(exited->signal, SIGKILL);
  EXPECT_EQ(KillMarked(RankDirectory::Marker(DirectoryOf(id_).path())), 0);
}

// Bug it must catch: a rank that hangs and that nobody waits for, running for ever. Stopped, it is
// silent; in an endless wait it beats and gets nowhere.
TEST_F(DaemonTest, ARankThatMakesNoProgressIsEndedAsHung) {
  clock_ = &fake_clock_;
  options_.patience = channel::Patience(absl::Minutes(1));
  Restart();
  uint64_t epoch = 0;
  for (const char* how : {"kill:19", "wait"}) {
    const RankId id = {"job", ++epoch, 0};
    daemon_->StartRanks(Order("job", epoch, {"ready", "step:3", "flush", how}));
    ASSERT_TRUE(heard_->Await(id, RankState::kReady)) << how;
    ASSERT_TRUE(WaitFor([&] {
      fake_clock_.Advance(absl::Seconds(1));
      return daemon_->num_live_ranks() == 0;
    })) << how;
    const auto exited = heard_->Await(id, RankState::kExited);
    ASSERT_TRUE(exited) << how;
    EXPECT_EQ(exited->cause, ExitCause::kHung);
    EXPECT_THAT(exited->message, HasSubstr("no progress for"));
    // A later daemon says the same.
    EXPECT_EQ(ReadExitReport(DirectoryOf(id).File("exit_report.json"))->cause, ExitCause::kHung);
  }
}

TEST_F(DaemonTest, RanksOfOneMachineFindEachOtherAndTheControllerHearsOfIt) {
  StartOrder order = Order("job", 1, {"set:address/0=here", "get:address/0", "exit:0"});
  order.world = 2;
  order.ranks = {{0, 0}, {1, 1}};
  daemon_->StartRanks(order);
  ASSERT_TRUE(heard_->Await({"job", 1, 0}, RankState::kExited));
  ASSERT_TRUE(heard_->Await({"job", 1, 1}, RankState::kExited));
  EXPECT_THAT(LogText(DirectoryOf({"job", 1, 1}).path()), HasSubstr("got here"));
  bool set = false;
  for (const Notice& notice : heard_->notices()) {
    set |= std::holds_alternative<RendezvousSet>(notice);
  }
  EXPECT_TRUE(set);
}

TEST_F(DaemonTest, AValueOfTheControllerReachesTheRankThatWaitsForIt) {
  daemon_->StartRanks(Order("job", 1, {"print:asks", "get:address/7", "exit:0"}));
  ASSERT_TRUE(heard_->AwaitLog("asks"));
  const auto asked = [&] {
    daemon_->Connected();  // After a reconnect an open question is asked again.
    Listener now(daemon_->outbox());
    return now.Await(id_, RankState::kStarting) &&
           std::any_of(now.notices().begin(), now.notices().end(),
                       [](const Notice& n) { return std::holds_alternative<RendezvousGet>(n); });
  };
  ASSERT_TRUE(WaitFor(asked));
  daemon_->Answer({"job", 1, "address/7", "there"});
  ASSERT_TRUE(heard_->Await(id_, RankState::kExited));
  EXPECT_THAT(LogText(DirectoryOf(id_).path()), HasSubstr("got there"));
}

TEST_F(DaemonTest, ARunningRankIsAdopted) {
  daemon_->StartRanks(
      Order("job", 1, {"ready:4", "step:5", "wait_stop", "step:9", "flush", "report:stopped:"}));
  ASSERT_TRUE(heard_->AwaitSteps(5));
  const ProcessIdentity supervisor = SupervisorOf(id_);
  Restart();
  const std::vector<RankStatus> running = daemon_->Register();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].Name(), id_.Name());
  EXPECT_EQ(running[0].state, RankState::kReady);
  EXPECT_EQ(running[0].resumed->step, 4u) << "what it resumed from is kept, too";
  EXPECT_TRUE(*IsRunning(supervisor));
  EXPECT_FALSE(HearsThisProcess());
  daemon_->StopRanks({"job", 1, StopMode::kCheckpoint});
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kStopped);
  // Those that the first daemon took and nobody acknowledged are among them.
  std::set<uint64_t> steps;
  for (const StepReport& report : heard_->steps()) steps.insert(report.step.step);
  EXPECT_EQ(steps, (std::set<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

// Bugs it must catch: a rank that runs is taken for one that has ended, or is heard no more,
// because one bit of its supervisor's identity is another.
TEST_F(DaemonTest, ARankWhoseSupervisorsFileIsDamagedIsAdopted) {
  daemon_->StartRanks(
      Order("job", 1, {"ready", "step:5", "wait_stop", "step:9", "flush", "report:stopped:"}));
  ASSERT_TRUE(heard_->AwaitSteps(5));
  const ProcessIdentity supervisor = SupervisorOf(id_);
  Damage("supervisor.json", "\"pid\"");
  Restart();
  EXPECT_TRUE(*IsRunning(supervisor));
  daemon_->StopRanks({"job", 1, StopMode::kCheckpoint});
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kStopped);
  EXPECT_EQ(heard_->steps().back().step.step, 9u);
}

TEST_F(DaemonTest, ARankWhoseLaunchFileIsDamagedKeepsItsDevice) {
  StartOrder order = Order("job", 1, {"ready", "step:5", "wait"});
  order.ranks[0].device = 1;
  daemon_->StartRanks(order);
  ASSERT_TRUE(heard_->AwaitSteps(5));
  Damage("launch.json", "\"device\"");
  Restart();
  const std::vector<RankStatus> running = daemon_->Register();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].state, RankState::kReady);
  EXPECT_EQ(running[0].device, 1u);
}

// Bug it must catch: it is taken for the rank of device 0, and another rank gets its device.
TEST_F(DaemonTest, ARankWhoseDeviceNobodyKnowsIsEnded) {
  daemon_->StartRanks(Order("job", 1, {"ready", "step:5", "wait"}));
  ASSERT_TRUE(heard_->AwaitSteps(5));
  const ProcessIdentity supervisor = SupervisorOf(id_);
  Damage("launch.json", "\"device\"");
  ASSERT_TRUE(WriteFileAtomic(DirectoryOf(id_).File("config.json"), "{").ok());
  Restart();
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kOther);
  EXPECT_THAT(exited->message, HasSubstr("nobody knows on which device"));
  EXPECT_FALSE(*IsRunning(supervisor));
}

// Bug it must catch: a job that has succeeded is run again.
TEST_F(DaemonTest, AnExitReportThatIsLostIsReplacedByTheTrainers) {
  daemon_->StartRanks(Order("job", 1, {"wait_stop", "report:bad_input:no such file", "exit:1"}));
  (void)SupervisorOf(id_);
  daemon_->StopRanks({"job", 1, StopMode::kCheckpoint});
  const std::string path = DirectoryOf(id_).File("exit_report.json");
  ASSERT_TRUE(WaitFor([&] { return Exists(path); }));
  for (const bool damaged : {true, false}) {
    if (damaged) {
      Damage("exit_report.json", "\"exit_code\"");
    } else {
      daemon_.reset();
      ASSERT_EQ(::unlink(path.c_str()), 0);
    }
    for (int restart = 0; restart < 2; ++restart) {
      Restart();
      const auto exited = heard_->Await(id_, RankState::kExited);
      ASSERT_TRUE(exited);
      EXPECT_EQ(exited->cause, ExitCause::kBadInput) << exited->message;
    }
    EXPECT_TRUE(ReadExitReport(path).ok()) << "written again";
  }
}

// Bug it must catch: an overflow of steps that takes a checkpoint with it, which then nobody loads.
TEST_F(DaemonTest, ACheckpointOutlivesTheDaemonHoweverManyStepsFollow) {
  options_.spool_bytes = 10'000;
  Restart();
  daemon_->StartRanks(Order("job", 1, {"ready", "step:1", "checkpoint:1", "step:1000", "wait"}));
  ASSERT_TRUE(heard_->AwaitSteps(1000));
  Restart();
  ASSERT_TRUE(heard_->AwaitCheckpoints(1));
  EXPECT_EQ(heard_->checkpoints()[0].checkpoint.path, "/data/step-1");
  EXPECT_LT(heard_->steps().size(), 1000u);
  EXPECT_EQ(heard_->steps().back().step.step, 1000u);
}

TEST_F(DaemonTest, AnAdoptedRankCanBeKilled) {
  daemon_->StartRanks(Order("job", 1, {"print:up", "wait"}));
  ASSERT_TRUE(heard_->AwaitLog("up"));
  Restart();
  daemon_->StopRanks({"job", 1, StopMode::kKill});
  ASSERT_TRUE(heard_->Await(id_, RankState::kExited));
}

TEST_F(DaemonTest, AnExitWhileNoDaemonRanIsReportedByTheNext) {
  daemon_->StartRanks(Order("job", 1, {"wait_stop", "report:bad_input:no such file", "exit:1"}));
  const ProcessIdentity supervisor = SupervisorOf(id_);
  daemon_->StopRanks({"job", 1, StopMode::kCheckpoint});
  daemon_.reset();
  if (!DirectoryOf(id_).Has("exit_report.json")) ::kill(supervisor.pid, SIGTERM);
  ASSERT_TRUE(WaitFor([&] { return DirectoryOf(id_).Has("exit_report.json"); }));
  Restart();
  EXPECT_THAT(daemon_->Register(), ::testing::SizeIs(1));
  EXPECT_TRUE(heard_->Await(id_, RankState::kExited));
}

// A rank that did its last steps without a daemon, and ended: they come before its end. The rank of
// an older daemon keeps them elsewhere.
class UnsentTest : public DaemonTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(OfThisAndOfAnOlderDaemon, UnsentTest, ::testing::Bool());

TEST_P(UnsentTest, WhatARankLeftUnsentIsToldBeforeItsExit) {
  daemon_->StartRanks(Order("job", 1, {"wait"}));
  const ProcessIdentity supervisor = SupervisorOf(id_);
  daemon_.reset();
  ::kill(supervisor.pid, SIGTERM);
  ASSERT_TRUE(WaitFor([&] { return DirectoryOf(id_).Has("exit_report.json"); }));
  if (GetParam()) {
    ASSERT_TRUE(RemoveTree(DirectoryOf(id_).File("trainer")).ok());
  }
  channel::Step seventh, eighth;
  seventh.step = 7;
  eighth.step = 8;
  channel::Checkpoint saved;
  saved.step = 8;
  ASSERT_TRUE(WriteFileAtomic(
                  DirectoryOf(id_).TrainersFile(channel::kUnsentName),
                  absl::StrCat(channel::Encode({seventh, 1}), "\n", channel::Encode({eighth, 2}),
                               "\n", channel::Encode({saved, 3}), "\n{\"type\":\"step\",\"torn"))
                  .ok());
  Restart();
  ASSERT_TRUE(heard_->Await(id_, RankState::kExited));
  ASSERT_EQ(heard_->kinds(), (std::vector<std::string>{"step", "step", "checkpoint", "status"}));
  EXPECT_EQ(heard_->steps().back().step.step, 8u);
}

// Bug it must catch: supervisor and daemon wait at a pipe for a writer, the daemon with its lock.
TEST_F(DaemonTest, ARankThatLeavesAPipeHoldsNobodyUp) {
  daemon_->StartRanks(Order("job", 1, {"print:here", "wait"}));
  ASSERT_TRUE(heard_->AwaitLog("here"));
  const std::string unsent = DirectoryOf(id_).TrainersFile(channel::kUnsentName);
  ASSERT_EQ(::mkfifo(unsent.c_str(), 0644), 0);
  daemon_->StopRanks({"job", 1, StopMode::kKill});
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_THAT(exited->message, HasSubstr("ended by signal")) << "the supervisor's own report";
  EXPECT_EQ(daemon_->num_live_ranks(), 0u);
}

// The other ranks wait for no more than a part of it.
TEST_F(DaemonTest, ALotThatWasLeftUnsentIsToldInParts) {
  daemon_->StartRanks(Order("job", 1, {"wait"}));
  const ProcessIdentity supervisor = SupervisorOf(id_);
  daemon_.reset();
  ::kill(supervisor.pid, SIGTERM);
  ASSERT_TRUE(WaitFor([&] { return DirectoryOf(id_).Has("exit_report.json"); }));
  constexpr uint64_t kSteps = 30'000;
  std::string lines;
  channel::Step step;
  while (++step.step <= kSteps) absl::StrAppend(&lines, channel::Encode({step, step.step}), "\n");
  ASSERT_GT(lines.size(), 2u << 20);
  const std::string unsent = DirectoryOf(id_).TrainersFile(channel::kUnsentName);
  ASSERT_TRUE(WriteFileAtomic(unsent, lines).ok());
  Restart();
  ASSERT_TRUE(heard_->Await(id_, RankState::kExited));
  ASSERT_EQ(heard_->steps().size(), kSteps);
  for (uint64_t i = 0; i < kSteps; ++i) ASSERT_EQ(heard_->steps()[i].step.step, i + 1);
  EXPECT_FALSE(Exists(unsent));
}

TEST_F(DaemonTest, AnAcknowledgedExitIsNotReportedAgain) {
  daemon_->StartRanks(Order("job", 1, {"report:completed:"}));
  ASSERT_TRUE(heard_->Await(id_, RankState::kExited));
  daemon_->Acknowledge(heard_->last_sequence());
  Restart();
  EXPECT_THAT(daemon_->Register(), IsEmpty());
}

TEST_F(DaemonTest, ADaemonThatDrainsStopsItsRanksAndTakesNoNewOnes) {
  daemon_->StartRanks(Order("job", 1, {"wait_stop", "report:stopped:"}));
  daemon_->Drain();
  daemon_->StartRanks(Order("late", 1, {"wait"}));
  const auto refused = heard_->Await({"late", 1, 0}, RankState::kExited);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message, HasSubstr("draining"));
  const auto exited = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kStopped);
}

TEST_F(DaemonTest, OldRankDirectoriesAreRemovedTheNewestStay) {
  daemon_.reset();
  options_.ended_ranks = 2;
  Restart();
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
    daemon_->StartRanks(Order("job", epoch, {"report:completed:"}));
    ASSERT_TRUE(heard_->Await({"job", epoch, 0}, RankState::kExited));
    daemon_->Acknowledge(heard_->last_sequence());
  }
  EXPECT_TRUE(WaitFor([&] { return ListDirectory(directory_.path() + "/ranks")->size() == 2; }));
  EXPECT_TRUE(WaitFor([&] { return daemon_->Register().empty(); }));
}

}  // namespace
}  // namespace trainyard
