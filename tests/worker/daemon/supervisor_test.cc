// A supervisor says how its trainer ended, whatever way that was, and leaves no process behind.
// Runs the real program, `trainyard-worker --supervise`, over the fake trainer.

#include "worker/daemon/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/files.h"
#include "nlohmann/json.hpp"
#include "tests/worker/daemon/testing.h"
#include "worker/daemon/log_files.h"
#include "worker/daemon/processes.h"
#include "worker/daemon/rank_directory.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() : rank_(directory_.path(), {"job", 1, 0}) {
    CHECK(MakeDirectories(rank_.path()).ok());
    launch_.trainer = FakeTrainer();
    launch_.working_directory = directory_.path();
    launch_.environment = {"PATH=/usr/bin:/bin", marker()};
    environment_ = {marker()};
  }
  ~SupervisorTest() override {
    if (supervisor_ > 0) {
      KillMarked(marker());
      ::waitpid(supervisor_, nullptr, 0);
    }
  }

  std::string marker() const { return RankDirectory::Marker(rank_.path()); }

  void Start(const std::vector<std::string>& actions) {
    const nlohmann::json config = {{"job", {{"do", actions}}},
                                   {"rank",
                                    {{"job_id", "job"},
                                     {"epoch", 1},
                                     {"rank", 0},
                                     {"socket", rank_.File("socket")},
                                     {"exit_report", rank_.File("trainer_exit.json")}}}};
    ASSERT_TRUE(WriteFileAtomic(rank_.File("config.json"), config.dump()).ok());
    ASSERT_TRUE(WriteLaunch(rank_, launch_).ok());
    ASSERT_TRUE(ReserveRoomForReport(rank_.File("exit_report.json")).ok());
    const auto pid = SpawnSession({.arguments = {WorkerProgram(), "--supervise", rank_.path()},
                                   .environment = environment_,
                                   .output = rank_.File("supervisor.log")});
    ASSERT_TRUE(pid.ok()) << pid.status();
    supervisor_ = *pid;
  }

  RankExit AwaitExit() {
    ::waitpid(supervisor_, nullptr, 0);
    const auto report = ReadExitReport(rank_.File("exit_report.json"));
    EXPECT_TRUE(report.ok()) << report.status()
                             << ReadFile(rank_.File("supervisor.log")).value_or("");
    EXPECT_EQ(KillMarked(marker()), 0);
    supervisor_ = 0;
    return report.value_or(RankExit{});
  }

  void AwaitOutput(const std::string& text) {
    EXPECT_TRUE(WaitFor([&] { return absl::StrContains(LogText(rank_.path()), text); })) << text;
  }

  // The number behind `word` in the log.
  pid_t LoggedPid(const std::string& word) {
    AwaitOutput(word + " ");
    pid_t pid = 0;
    for (absl::string_view line : absl::StrSplit(LogText(rank_.path()), '\n')) {
      if (absl::ConsumePrefix(&line, word + " ") && !absl::SimpleAtoi(line, &pid)) pid = -1;
    }
    return pid;
  }

  TemporaryDirectory directory_;
  RankDirectory rank_;
  Launch launch_;
  std::vector<std::string> environment_;  // The supervisor's own.
  pid_t supervisor_ = 0;
};

TEST_F(SupervisorTest, ReportsTheTrainersOwnWords) {
  Start({"report:bad_input:cannot open /data/corpus.txt", "exit:1"});
  const RankExit exit = AwaitExit();
  EXPECT_EQ(exit.cause, ExitCause::kBadInput);
  EXPECT_EQ(exit.exit_code, 1);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(exit.message, "cannot open /data/corpus.txt");
}

TEST_F(SupervisorTest, ACompletedTrainerIsCompleted) {
  Start({"report:completed:", "exit:0"});
  const RankExit exit = AwaitExit();
  EXPECT_EQ(exit.cause, ExitCause::kCompleted);
  EXPECT_EQ(exit.message, "");
}

// Bug it must catch: after a power cut a rank has completed, and its last steps are nowhere.
TEST_F(SupervisorTest, WhatTheRankReportedIsSyncedBeforeItsEndIsWritten) {
  const std::string log = directory_.path() + "/sync.log";
  const std::vector<std::string> reports = {"steps.0", "steps.1", "checkpoints.0", "ready",
                                            "unsent.jsonl"};
  for (const std::string& name : reports) rank_.Mark(name);
  // As one that a daemon removes after the directory was listed.
  ASSERT_EQ(::symlink("nowhere", rank_.File("checkpoints.00").c_str()), 0);
  environment_.push_back(absl::StrCat("LD_PRELOAD=", SyncShim()));
  environment_.push_back("SYNC_LOG=" + log);
  environment_.push_back("ASAN_OPTIONS=verify_asan_link_order=0");
  Start({"report:completed:", "exit:0"});
  EXPECT_EQ(AwaitExit().cause, ExitCause::kCompleted);
  const std::string calls = ReadFile(log).value_or("");
  const size_t told = calls.find(absl::StrCat("rename ", rank_.File("exit_report.json")));
  ASSERT_NE(told, calls.npos) << calls;
  for (const std::string& name : reports) {
    EXPECT_LT(calls.find(absl::StrCat("sync ", rank_.File(name), "\n")), told) << name << calls;
  }
  EXPECT_LT(calls.find(absl::StrCat("sync ", rank_.path(), "\n")), told) << calls;
}

// Bug it must catch: success taken from the exit code alone, of a trainer that never reported.
TEST_F(SupervisorTest, AnExitWithoutReportIsNotSuccessAndQuotesTheOutput) {
  Start({"print:assertion failed: x > 0", "exit:0"});
  const RankExit exit = AwaitExit();
  EXPECT_EQ(exit.cause, ExitCause::kOther);
  EXPECT_THAT(exit.message, HasSubstr("assertion failed: x > 0"));
}

// A file of this name can then not be replaced, as on a full disk.
void Obstruct(const std::string& path) { ASSERT_TRUE(MakeDirectories(path + ".tmp").ok()); }

// Bug it must catch: a job that has completed is taken for killed, because the disk is full.
TEST_F(SupervisorTest, AReportThatTheDiskDoesNotTakeGoesIntoTheReservedRoom) {
  Obstruct(rank_.File("exit_report.json"));
  Start({"report:completed:", "exit:0"});
  EXPECT_EQ(AwaitExit().cause, ExitCause::kCompleted);
}

TEST_F(SupervisorTest, ASupervisorThatCannotNameItselfBlamesTheHost) {
  Obstruct(rank_.File("supervisor.json"));
  Start({"exit:0"});
  const RankExit exit = AwaitExit();
  EXPECT_EQ(exit.cause, ExitCause::kStorage);
  EXPECT_THAT(exit.message, HasSubstr("could not be started: cannot write"));
}

// Of the signals of a crash the one that no sanitizer catches in the trainer's stead.
TEST_F(SupervisorTest, ReportsTheSignal) {
  Start({"kill:6"});
  const RankExit exit = AwaitExit();
  EXPECT_EQ(exit.cause, ExitCause::kSignal);
  EXPECT_EQ(exit.signal, SIGABRT);
  EXPECT_THAT(exit.message, HasSubstr("Aborted"));
}

TEST_F(SupervisorTest, AMissingTrainerIsNamed) {
  launch_.trainer = "/nonexistent/trainer";
  Start({});
  const RankExit exit = AwaitExit();
  EXPECT_EQ(exit.exit_code, 127);
  EXPECT_THAT(exit.message, HasSubstr("/nonexistent/trainer: No such file"));
}

TEST_F(SupervisorTest, ABrokenLaunchFileIsReported) {
  launch_.trainer = "";
  Start({});
  EXPECT_THAT(AwaitExit().message, HasSubstr("names no trainer"));
}

TEST_F(SupervisorTest, SigtermReachesTheTrainer) {
  Start({"print:up", "wait"});
  AwaitOutput("up");
  ::kill(supervisor_, SIGTERM);
  const RankExit exit = AwaitExit();
  EXPECT_EQ(exit.signal, SIGTERM);
  EXPECT_THAT(exit.message, HasSubstr("after an order to stop"));
}

TEST_F(SupervisorTest, ATrainerThatIgnoresSigtermIsKilled) {
  Start({"ignore_sigterm", "print:up", "wait"});
  AwaitOutput("up");
  ::kill(supervisor_, SIGTERM);
  EXPECT_EQ(AwaitExit().signal, SIGKILL);
}

// Bug it must catch: grandchildren, or their children, that hold the device after the rank counts
// as gone. AwaitExit looks for all of them.
TEST_F(SupervisorTest, DescendantsInSessionsOfTheirOwnAreReaped) {
  Start({"fork", "report:completed:", "exit:0"});
  AwaitExit();
  const pid_t grandchild = LoggedPid("grandchild");
  ASSERT_GT(grandchild, 0);
  EXPECT_FALSE(ReadProcess(grandchild).has_value());
}

TEST_F(SupervisorTest, TheTrainerDiesWithItsSupervisor) {
  Start({"ignore_sigterm", "fork", "wait"});
  const pid_t grandchild = LoggedPid("grandchild");
  const pid_t trainer = ReadProcess(grandchild)->parent;
  ::kill(supervisor_, SIGKILL);
  EXPECT_TRUE(WaitFor([&] {
    const auto process = ReadProcess(trainer);
    return !process || process->dead;
  }));
  // The grandchild is what a daemon finds by its marker.
  EXPECT_GE(KillMarked(marker()), 1);
  EXPECT_TRUE(WaitFor([&] { return KillMarked(marker()) == 0; }));
  EXPECT_FALSE(Exists(rank_.File("exit_report.json")));
}

// Who becomes another user loses the wish to die with its parent.
TEST_F(SupervisorTest, ATrainerInTheSandboxDiesWithItsSupervisor) {
  launch_.sandbox = Sandbox{.writable = {rank_.path()}};
  if (::geteuid() == 0) {
    launch_.sandbox->user = RankUser{.name = "x", .uid = 54321, .gid = 54322, .groups = {54322}};
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  }
  Start({"ignore_sigterm", "fork", "wait"});
  const pid_t trainer = ReadProcess(LoggedPid("grandchild"))->parent;
  const std::string status = *ReadFile(absl::StrCat("/proc/", trainer, "/status"));
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_EQ(absl::StrContains(status, "Uid:\t54321\t54321"), launch_.sandbox->user.has_value());
  ::kill(supervisor_, SIGKILL);
  EXPECT_TRUE(WaitFor([&] {
    const auto process = ReadProcess(trainer);
    return !process || process->dead;
  }));
}

TEST_F(SupervisorTest, WithoutTheSandboxThatWasWantedNoTrainerStarts) {
  launch_.sandbox = Sandbox{};
  const std::string path = rank_.File("launch.json");
  const nlohmann::json user = {{"name", "x"}, {"uid", 7}, {"gid", 8}, {"groups", {8}}};
  const nlohmann::json right = {{"writable", {"/a"}}, {"hidden", {"/b"}}, {"readable", {"/c"}},
                                {"made", {"/a/d"}},   {"landlock", true}, {"user", user}};
  const auto read = [&](const nlohmann::json& sandbox) {
    nlohmann::json launch = nlohmann::json::parse(
        R"({"version": 1, "trainer": "/bin/true", "working_directory": "/", "environment": [],
            "device": 0})");
    launch["sandbox"] = sandbox;
    EXPECT_TRUE(WriteFileAtomic(path, launch.dump()).ok());
    return ReadLaunch(path);
  };
  ASSERT_TRUE(read(right).ok()) << read(right).status();
  EXPECT_TRUE(absl::IsDataLoss(read(1).status()));
  for (const auto& [key, value] : right.items()) {
    nlohmann::json without = right, wrong = right;
    wrong[key] =
        key == "user" ? nlohmann::json(nlohmann::json::array()) : nlohmann::json({"/b", 1});
    without.erase(key);
    EXPECT_TRUE(absl::IsDataLoss(read(wrong).status())) << wrong;
    // A rank of an older worker has nothing made.
    const bool needless = key == "user" || key == "made";
    EXPECT_EQ(read(without).ok(), needless) << without;
  }
  for (const char* key : {"uid", "gid", "groups"}) {
    nlohmann::json without = right, wrong = right;
    wrong["user"][key] = uint64_t{1} << 32;  // Root's, where its low half is taken.
    if (key == std::string("groups")) wrong["user"][key] = {uint64_t{1} << 32};
    without["user"].erase(key);
    EXPECT_TRUE(absl::IsDataLoss(read(wrong).status())) << wrong;
    EXPECT_TRUE(absl::IsDataLoss(read(without).status())) << without;
  }
  nlohmann::json root = right;
  root["user"]["uid"] = 0;
  EXPECT_TRUE(absl::IsDataLoss(read(root).status()));
  ASSERT_TRUE(WriteLaunch(rank_, launch_).ok());
  EXPECT_TRUE(ReadLaunch(path)->sandbox.has_value());
}

// The trainer's directory is the trainer's: what lies there may be a way to what the daemon reads.
TEST_F(SupervisorTest, ATrainersReportIsNoWayToOtherFiles) {
  ASSERT_TRUE(MakeDirectories(rank_.File("trainer")).ok());
  const std::string secret = directory_.path() + "/secret",
                    report = rank_.TrainersFile("trainer_exit.json");
  const char* const text = R"({"version": 1, "cause": "other", "message": "secret"})";
  ASSERT_TRUE(WriteFileAtomic(secret, text).ok());
  ASSERT_EQ(::symlink(secret.c_str(), report.c_str()), 0);
  EXPECT_FALSE(ReadTrainersReport(rank_).ok()) << "a link";
  ASSERT_EQ(::unlink(report.c_str()), 0);
  ASSERT_EQ(::link(secret.c_str(), report.c_str()), 0);
  EXPECT_FALSE(ReadTrainersReport(rank_).ok()) << "another name of the same file";
  ASSERT_EQ(::unlink(report.c_str()), 0);
  ASSERT_EQ(::mkfifo(report.c_str(), 0644), 0);
  EXPECT_FALSE(ReadTrainersReport(rank_).ok()) << "a pipe, at which the daemon would wait";
  ASSERT_EQ(::unlink(report.c_str()), 0);
  ASSERT_TRUE(WriteFileAtomic(report, text).ok());
  EXPECT_EQ(ReadTrainersReport(rank_)->message, "secret");
}

TEST_F(SupervisorTest, TheTrainerSeesTheAllowedEnvironmentAndTheWorkingDirectoryAlone) {
  launch_.trainer = rank_.File("script");
  std::ofstream(launch_.trainer) << "#!/bin/sh\npwd\n/usr/bin/env\n";
  ASSERT_EQ(::chmod(launch_.trainer.c_str(), 0755), 0);
  Start({});
  AwaitExit();
  const std::string log = LogText(rank_.path());
  EXPECT_THAT(log, HasSubstr(directory_.path() + "\n"));
  EXPECT_THAT(log, HasSubstr(marker()));
  EXPECT_FALSE(absl::StrContains(log, "TRAINYARD_BIN")) << log;
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

TEST_F(SupervisorTest, FilesOfTheSupervisorArePrivateAndTheTrainersAsItsUserWants) {
  launch_.umask = 027;
  Start({"print:hello", "report:completed:"});
  AwaitExit();
  EXPECT_EQ(ModeOf(rank_.File("exit_report.json")), 0600u);
  EXPECT_EQ(ModeOf(rank_.File("log.000000000000")), 0600u);
  EXPECT_EQ(ModeOf(rank_.File("trainer_exit.json")), 0640u);
}

TEST_F(SupervisorTest, TheLogIsBoundedHoweverMuchIsWritten) {
  launch_.log_file_bytes = 10'000;
  launch_.log_files = 3;
  Start({"flood:1000000", "print:the end", "exit:0"});
  AwaitExit();
  uint64_t total = 0;
  const auto names = ListDirectory(rank_.path());
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (absl::StartsWith(name, "log.")) total += ReadFile(rank_.File(name))->size();
  }
  EXPECT_LE(total, 60'000u);
  EXPECT_THAT(LogText(rank_.path()), HasSubstr("the end"));
}

}  // namespace
}  // namespace trainyard
