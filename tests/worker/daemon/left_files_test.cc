// What a daemon does with the files that an earlier daemon, a supervisor and a trainer left for a
// rank that has ended, if the disk fails. What cannot be read for a moment is waited for, and
// nothing that was not read is removed. What is damaged or missing is counted and never believed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/process.h"
#include "prometheus/text_serializer.h"
#include "tests/testing/read_faults.h"
#include "tests/worker/daemon/testing.h"
#include "worker/channel/unsent.h"
#include "worker/daemon/spool.h"
#include "worker/daemon/state_directory.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSpooled = 40;  // Steps 1 to 40 are in the spool, the next ten are unsent.
constexpr uint64_t kSteps = 50;
constexpr uint64_t kSpoolBytes = 64'000;  // A file has 4,000 bytes.
const char* const kFiles[] = {"launch.json",      "supervisor.json", "ready",
                              "steps.0",          "steps.1",         "checkpoints.0",
                              "exit_report.json", "unsent.jsonl",    "log.000000000000",
                              "log_position",     "job.1.0"};

class LeftFilesTest : public ::testing::Test {
 protected:
  LeftFilesTest() {
    options_.spool_bytes = kSpoolBytes;
    options_.read_patience = absl::Seconds(6);
    Leave();
  }

  channel::Step Step(uint64_t number) const {
    channel::Step step;
    step.step = number;
    step.loss = 1.0 / double(number);
    return step;
  }

  std::string Path(const std::string& name) const { return directory_.path() + "/ranks/" + name; }

  // What a rank leaves that has ended while no daemon was there.
  void Leave() {
    const RankDirectory rank(directory_.path(), id_);
    ASSERT_TRUE(RemoveTree(rank.path()).ok());
    ASSERT_TRUE(MakeDirectories(rank.File("trainer")).ok());
    Launch launch;
    launch.trainer = "/trainer";
    ASSERT_TRUE(WriteLaunch(rank, launch).ok());
    ASSERT_TRUE(WriteSupervisor(rank.File("supervisor.json"), {999'999'999, 1}).ok());
    std::ofstream(rank.File("ready")) << channel::WithChecksum(channel::Encode({channel::Ready{}}));
    std::ofstream(rank.File("log.000000000000")) << "its last words\n";
    std::ofstream(rank.File("log_position")) << 0;
    Spool steps(rank.path(), "steps", kSpoolBytes), checkpoints(rank.path(), "checkpoints");
    for (uint64_t i = 1; i <= kSpooled; ++i) steps.Append(Step(i), i);
    channel::Checkpoint saved;
    saved.step = kSpooled;
    checkpoints.Append(saved, kSpooled);
    channel::UnsentFile unsent(rank.File("trainer/unsent.jsonl"));
    for (uint64_t i = kSpooled + 1; i <= kSteps; ++i) unsent.Append(channel::Encode({Step(i), i}));
    ASSERT_TRUE(WriteExitReport(rank.File("exit_report.json"),
                                {.cause = ExitCause::kCompleted, .message = "done"})
                    .ok());
  }

  // A daemon adopts the rank, and tells its end.
  void Adopt() {
    auto daemon = Daemon::Create(options_, metrics_, RealClock());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    daemon_->Connected();
    heard_ = std::make_unique<Listener>(daemon_->outbox());
    exited_ = heard_->Await(id_, RankState::kExited);
    ASSERT_TRUE(exited_);
    // Whatever was told, was told as it was.
    told_.clear();
    for (const StepReport& report : heard_->steps()) {
      ASSERT_EQ(report.step.loss, Step(report.step.step).loss) << report.step.step;
      told_.insert(report.step.step);
    }
    EXPECT_EQ(heard_->kinds().back(), "status") << "the end comes last";
  }

  double Lost(const std::string& kind) const {
    const std::string page = prometheus::TextSerializer().Serialize(metrics_.registry()->Collect());
    const std::string series = absl::StrCat("trainyard_reports_lost_total{kind=\"", kind, "\"} ");
    const size_t at = page.find(series);
    return at == page.npos ? -1 : std::stod(page.substr(at + series.size()));
  }
  double AllLost() const {
    return Lost("damaged_line") + Lost("missing_line") + Lost("unreadable_file");
  }

  bool HasFile(const std::string& name) const {
    return Exists(Path(absl::StrCat("job.1.0/", name)));
  }

  const RankId id_ = {"job", 1, 0};
  TemporaryDirectory directory_;
  DaemonOptions options_ = TestOptions(directory_.path());
  WorkerMetrics metrics_{"host"};
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Listener> heard_;
  std::optional<RankStatus> exited_;
  std::set<uint64_t> told_;
};

TEST_F(LeftFilesTest, AllIsToldIfNothingFails) {
  Adopt();
  EXPECT_EQ(told_.size(), kSteps);
  EXPECT_EQ(heard_->checkpoints().size(), 1u);
  EXPECT_EQ(exited_->cause, ExitCause::kCompleted);
  EXPECT_EQ(AllLost(), 0);
  EXPECT_TRUE(HasFile("steps.0")) << "nobody has acknowledged it";
}

// Bug it must catch: a spool that could not be read was removed, and the job's history has a hole.
TEST_F(LeftFilesTest, WhatCannotBeReadForAMomentIsToldAllTheSame) {
  constexpr ReadFault kFaults[] = {ReadFault::kEio, ReadFault::kEmfile, ReadFault::kEacces,
                                   ReadFault::kShort};
  const auto check = [&] {
    EXPECT_EQ(told_.size(), kSteps);
    EXPECT_EQ(heard_->checkpoints().size(), 1u);
    EXPECT_EQ(exited_->cause, ExitCause::kCompleted) << exited_->message;
    EXPECT_TRUE(heard_->AwaitLog("its last words"));
    EXPECT_EQ(AllLost(), 0);
  };
  for (const char* file : kFiles) {
    for (const ReadFault fault : kFaults) {
      SCOPED_TRACE(absl::StrCat(file, " with fault ", int(fault)));
      Leave();
      const FaultyReads faulty(fault, file, 2);
      Adopt();
      EXPECT_GT(faulty.met(), 0);
      check();
    }
  }
  std::mt19937 random(43);
  const auto below = [&](size_t count) { return size_t(random() % count); };
  for (int round = 0; round < 30; ++round) {
    Leave();
    std::vector<std::unique_ptr<FaultyReads>> faulty;
    std::string what;
    for (int i = 0; i < 4; ++i) {
      const char* file = kFiles[below(std::size(kFiles))];
      const size_t fault = below(std::size(kFaults));
      faulty.push_back(std::make_unique<FaultyReads>(kFaults[fault], file, 1 + i));
      absl::StrAppend(&what, file, " with fault ", fault, " ", 1 + i, " times; ");
    }
    SCOPED_TRACE(what);
    Adopt();
    check();
  }
}

// Bug it must catch: a daemon that had no descriptor for a moment killed a rank that ran.
TEST_F(LeftFilesTest, ARankThatRunsIsNotTakenForOneThatHasEnded) {
  for (const ReadFault fault : {ReadFault::kEio, ReadFault::kEmfile, ReadFault::kEacces}) {
    Leave();
    ASSERT_TRUE(std::filesystem::remove(Path("job.1.0/exit_report.json")));
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    const RankDirectory rank(directory_.path(), id_);
    ASSERT_TRUE(WriteSupervisor(rank.File("supervisor.json"), ReadProcess(child)->identity).ok());
    const FaultyReads faulty(fault, absl::StrCat("/proc/", child, "/stat"), 4);
    auto daemon = Daemon::Create(options_, metrics_, RealClock());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    daemon_->Connected();
    heard_ = std::make_unique<Listener>(daemon_->outbox());
    EXPECT_TRUE(WaitFor([&] { return faulty.met() == 4; }));
    EXPECT_TRUE(WaitFor([&] { return HasFile("socket"); })) << "the rank can be heard";
    EXPECT_EQ(daemon_->num_live_ranks(), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    exited_ = heard_->Await(id_, RankState::kExited);
    ASSERT_TRUE(exited_);
    EXPECT_EQ(exited_->cause, ExitCause::kSignal);
    daemon_.reset();
  }
}

TEST_F(LeftFilesTest, AWorkerKeepsItsNameThoughItCannotBeReadForAMoment) {
  const std::string name = (*StateDirectory::Open(directory_.path()))->worker_id();
  for (const ReadFault fault : {ReadFault::kEio, ReadFault::kEmfile, ReadFault::kEacces}) {
    const FaultyReads faulty(fault, "worker_id", 2);
    EXPECT_EQ((*StateDirectory::Open(directory_.path()))->worker_id(), name);
    EXPECT_EQ(faulty.met(), 2);
  }
}

// Bug it must catch: once the exit was acknowledged, the directory was removed with unread files.
TEST_F(LeftFilesTest, WhatIsNeverReadStaysForALaterDaemonAndIsCounted) {
  options_.read_patience = absl::Milliseconds(100);
  options_.ended_ranks = 0;
  for (const char* file : {"steps.0", "steps.1", "checkpoints.0", "trainer/unsent.jsonl"}) {
    for (const ReadFault fault : {ReadFault::kEio, ReadFault::kEmfile, ReadFault::kEacces}) {
      SCOPED_TRACE(absl::StrCat(file, " with fault ", int(fault)));
      Leave();
      const double before = Lost("unreadable_file");
      {
        const FaultyReads faulty(fault, file);
        Adopt();
        EXPECT_LT(told_.size() + heard_->checkpoints().size(), kSteps + 1);
        EXPECT_EQ(Lost("unreadable_file"), before + 1);
        EXPECT_EQ(exited_->cause, ExitCause::kCompleted);
        daemon_->Acknowledge(heard_->last_sequence());
        EXPECT_FALSE(HasFile("reported"));
        daemon_.reset();
      }
      ASSERT_TRUE(HasFile(file));
      Adopt();
      if (std::string(file) == "trainer/unsent.jsonl") {
        EXPECT_TRUE(told_.contains(kSteps));
      }
      EXPECT_TRUE(!told_.empty() || !heard_->checkpoints().empty()) << "a later daemon told it";
    }
  }
}

// Bug it must catch: a daemon that had lost its patience never read the file again.
TEST_F(LeftFilesTest, WhatIsReadLateIsToldByTheSameDaemon) {
  options_.read_patience = absl::Milliseconds(100);
  options_.ended_ranks = 0;
  for (const char* file : {"steps.0", "steps.1", "checkpoints.0", "exit_report.json",
                           "trainer/unsent.jsonl", "job.1.0"}) {
    SCOPED_TRACE(file);
    Leave();
    const double before = AllLost();
    auto faulty = std::make_unique<FaultyReads>(ReadFault::kEmfile, file);
    Adopt();
    const double counted = AllLost() - before;
    daemon_->Acknowledge(heard_->last_sequence());
    const uint64_t exit = heard_->last_sequence();
    const int met = faulty->met();
    EXPECT_TRUE(WaitFor([&] { return faulty->met() > met + 3; })) << "it is read again";
    EXPECT_EQ(AllLost() - before, counted) << "and counted once";
    faulty.reset();
    // The exit is told again, last, and what it stands for has been told before.
    EXPECT_TRUE(WaitFor([&] {
      heard_->Await(id_, RankState::kExited);
      return heard_->last_sequence() > exit && heard_->kinds().back() == "status";
    }));
    for (const StepReport& report : heard_->steps()) told_.insert(report.step.step);
    EXPECT_EQ(told_.size(), kSteps);
    EXPECT_EQ(heard_->checkpoints().size(), 1u);
    EXPECT_EQ(heard_->statuses().back().cause, ExitCause::kCompleted);
    EXPECT_FALSE(daemon_->idle());
    daemon_->Acknowledge(heard_->last_sequence());
    EXPECT_TRUE(WaitFor([&] { return daemon_->idle() && !Exists(Path("job.1.0")); }));
  }
}

// Bug it must catch: a file that was acknowledged beside an unread one was counted as lost.
TEST_F(LeftFilesTest, AnUnreadFileMakesNoOtherSeemLost) {
  const std::string path = directory_.path() + "/spool";
  uint64_t sequence = 0;
  std::set<uint64_t> steps;
  const auto recover = [&](Spool& spool) {
    sequence = 0;
    steps.clear();
    absl::Duration left;
    return spool.Recover(
        [&](const channel::Message& message) {
          steps.insert(std::get<channel::Step>(message).step);
          return ++sequence;
        },
        left);
  };
  const auto no_lines = [](const Spool::Lost& lost) { return lost.damaged + lost.missing == 0; };
  // Never read; read after the others were acknowledged; read before.
  enum Late { kNever, kAfter, kBefore };
  for (const Late late_read : {kNever, kAfter, kBefore}) {
    for (const char* file : {"steps.0", "steps.1", "steps.2", "/spool"}) {
      SCOPED_TRACE(absl::StrCat(file, ", ", int(late_read)));
      ASSERT_TRUE(RemoveTree(path).ok());
      ASSERT_TRUE(MakeDirectories(path).ok());
      {
        Spool spool(path, "steps", kSpoolBytes);
        for (uint64_t i = 1; !Exists(path + "/steps.2") || i % 5 != 0; ++i) {
          spool.Append(Step(i), i);
        }
      }
      const uint64_t first = 1000;
      {
        auto faulty = std::make_unique<FaultyReads>(ReadFault::kEmfile, file);
        Spool spool(path, "steps", kSpoolBytes);
        EXPECT_TRUE(no_lines(recover(spool)));
        EXPECT_TRUE(spool.unread());
        const uint64_t read = sequence;
        spool.Append(Step(first), ++sequence);
        spool.Append(Step(first + 1), ++sequence);
        if (late_read != kBefore) spool.Acknowledge(read);
        faulty.reset();
        if (late_read != kNever) {
          uint64_t late = sequence;
          absl::Duration left;
          EXPECT_TRUE(no_lines(spool.Recover([&](const auto&) { return ++late; }, left)));
          EXPECT_FALSE(spool.unread());
          EXPECT_GT(late, sequence);
          if (late_read == kBefore) spool.Acknowledge(read);
        }
        spool.Append(Step(first + 2), sequence + 1000);
      }
      {
        Spool spool(path, "steps", kSpoolBytes);
        EXPECT_TRUE(no_lines(recover(spool)));
        EXPECT_GT(steps.size(), 3u) << "and what was not read";
        const uint64_t read = sequence;
        spool.Append(Step(first + 3), ++sequence);
        spool.Acknowledge(read - 3);
      }
      Spool spool(path, "steps", kSpoolBytes);
      EXPECT_TRUE(no_lines(recover(spool)));
      for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(steps.contains(first + i)) << i;
    }
  }
}

TEST_F(LeftFilesTest, AFileThatIsMissingBetweenTwoIsCounted) {
  const std::string path = directory_.path() + "/spool";
  ASSERT_TRUE(MakeDirectories(path).ok());
  {
    Spool spool(path, "steps", kSpoolBytes);
    for (uint64_t i = 1; !Exists(path + "/steps.2"); ++i) spool.Append(Step(i), i);
  }
  ASSERT_EQ(::unlink((path + "/steps.1").c_str()), 0);
  uint64_t sequence = 0;
  absl::Duration left;
  Spool spool(path, "steps", kSpoolBytes);
  EXPECT_GT(spool.Recover([&](const auto&) { return ++sequence; }, left).missing, 0u);
}

// Bug it must catch: new reports went into a file with old ones that nobody had read.
TEST_F(LeftFilesTest, ADirectoryThatIsNeverListedLosesNothing) {
  options_.read_patience = absl::Milliseconds(100);
  {
    const FaultyReads faulty(ReadFault::kEmfile, "job.1.0");
    Adopt();  // The unsent reports go into files of their own.
    EXPECT_LT(told_.size(), kSteps);
    daemon_->Acknowledge(heard_->last_sequence());
    daemon_.reset();
  }
  Adopt();
  EXPECT_EQ(told_.size(), kSteps);
}

// Bug it must catch: a minute for each file of each rank, while the ranks waited for their daemon.
TEST_F(LeftFilesTest, AllFilesOfAllRanksShareOnePatience) {
  std::filesystem::copy(Path("job.1.0"), Path("job.1.1"), std::filesystem::copy_options::recursive);
  std::vector<std::unique_ptr<FaultyReads>> faulty;
  for (const char* file : kFiles) {
    faulty.push_back(std::make_unique<FaultyReads>(ReadFault::kEmfile, file));
  }
  options_.read_patience = absl::Seconds(2);
  const absl::Duration before = RealClock().Monotonic();
  ASSERT_TRUE(Daemon::Create(options_, metrics_, RealClock()).ok());
  EXPECT_LT(RealClock().Monotonic() - before, 2 * options_.read_patience);
}

// Bug it must catch: a rank whose supervisor was not known in time was killed.
TEST_F(LeftFilesTest, ARankThatRunsIsFoundEvenAfterTheStart) {
  Adopt();
  const RankId runs = {"runs", 1, 0};
  daemon_->StartRanks(Order("runs", 1, {"ready", "wait_stop", "report:stopped:"}));
  ASSERT_TRUE(heard_->Await(runs, RankState::kReady));
  daemon_.reset();
  options_.read_patience = absl::Seconds(2);
  auto faulty = std::make_unique<FaultyReads>(ReadFault::kEmfile, "runs.1.0/supervisor.json");
  Adopt();
  EXPECT_TRUE(WaitFor([&, met = faulty->met()] { return faulty->met() > met; }));
  faulty.reset();
  EXPECT_TRUE(WaitFor([&] {
    daemon_->StopRanks({"runs", 1, StopMode::kCheckpoint});  // Until the rank has a channel.
    const auto statuses = daemon_->Register();
    return std::any_of(statuses.begin(), statuses.end(), [](const RankStatus& status) {
      return status.job_id == "runs" && status.state == RankState::kExited;
    });
  }));
  const auto exited = heard_->Await(runs, RankState::kExited);
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->cause, ExitCause::kStopped) << exited->message;
}

TEST_F(LeftFilesTest, AnExitReportThatIsNeverReadIsNamed) {
  options_.read_patience = absl::Milliseconds(100);
  const FaultyReads faulty(ReadFault::kEio, "exit_report.json");
  Adopt();
  EXPECT_EQ(exited_->cause, ExitCause::kSignal);
  EXPECT_THAT(exited_->message, HasSubstr("exit_report.json: Input/output error"));
}

// A rank that has run here is not started again because its report cannot be read.
TEST_F(LeftFilesTest, AnExitThatCannotBeReadIsNoReasonToStartTheRank) {
  Adopt();
  daemon_->Acknowledge(heard_->last_sequence());
  ASSERT_TRUE(WaitFor([&] { return daemon_->idle(); }));
  const FaultyReads faulty(ReadFault::kEio, "exit_report.json");
  daemon_->StartRanks(Order("job", 1, {"exit:0"}));
  heard_ = std::make_unique<Listener>(daemon_->outbox());
  const auto again = heard_->Await(id_, RankState::kExited);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cause, ExitCause::kStopped);
  EXPECT_THAT(again->message, HasSubstr("exit_report.json"));
}

// Flips, cuts, zeroes or removes. Returns what it did.
std::string Damage(const std::string& path, std::mt19937& random) {
  if (random() % 4 == 0) {
    std::filesystem::remove(path);
    return path + " removed; ";
  }
  std::string text = ReadFile(path).value();
  const size_t at = random() % text.size(), kind = random() % 3;
  if (kind == 0) text[at] = char(text[at] ^ (1 << random() % 8));
  if (kind == 1) text.resize(at);
  for (size_t i = at; kind == 2 && i < std::min(text.size(), at + 700); ++i) text[i] = '\0';
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return absl::StrCat(path, " damaged at ", at, " in the way ", kind, "; ");
}

// The bug it must catch: lines that were damaged were skipped, or believed, without a word.
TEST_F(LeftFilesTest, DamageIsCountedAndNeverBelieved) {
  std::mt19937 random(44);
  int holes = 0;
  for (int round = 0; round < 60; ++round) {
    Leave();
    std::string what;
    for (int i = 0; i <= round % 2; ++i) {
      // The end of the last file of each kind may be cut off unnoticed: nothing follows it.
      const char* file = i == 0 ? "steps.0" : "trainer/unsent.jsonl";
      what += Damage(Path(absl::StrCat("job.1.0/", file)), random);
    }
    SCOPED_TRACE(what);
    const double before = AllLost();
    Adopt();
    EXPECT_EQ(exited_->cause, ExitCause::kCompleted);
    // A first file that is missing, or empty, may have been acknowledged.
    bool hole = false;
    for (uint64_t step = *told_.begin(); step <= kSpooled; ++step) hole |= !told_.contains(step);
    holes += hole;
    if (hole) {
      EXPECT_GT(AllLost(), before);
    }
  }
  EXPECT_GT(holes, 10) << "or the test shows nothing";
}

// Bug it must catch: a rank whose `ready` was damaged had gone on from step 0, it said.
TEST_F(LeftFilesTest, ADamagedStartIsNotBelieved) {
  const std::string path = Path("job.1.0/ready");
  channel::Ready ready;
  ready.step = 40;
  const std::string good = channel::WithChecksum(channel::Encode({ready}));
  for (size_t at = 0; at < good.size(); ++at) {
    Leave();
    std::string text = good;
    text[at] = char(text[at] ^ 1);
    std::ofstream(path) << text;
    Adopt();
    bool resumed = false;
    for (const RankStatus& status : heard_->statuses()) {
      if (!status.resumed) continue;
      resumed = true;
      EXPECT_EQ(status.resumed->step, 40u) << at << " of " << text;
    }
    EXPECT_TRUE(resumed || at + 1 < good.size()) << "only the line break is damaged";
    daemon_.reset();
  }
}

TEST_F(LeftFilesTest, TheSpoolOfTheLastReleaseIsRead) {
  const std::string path = Path("job.1.0/steps.0");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (uint64_t i = 1; i <= 20; ++i) file << channel::Encode({Step(i)}) << "\n";
  file.close();
  Adopt();
  for (uint64_t i = 1; i <= 20; ++i) EXPECT_TRUE(told_.contains(i)) << i;
  EXPECT_EQ(AllLost(), 0);
}

}  // namespace
}  // namespace trainyard
