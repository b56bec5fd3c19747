// Proves a gang of trainer processes under daemons (played here by channel servers that relay the
// rendezvous): the same bits as ranks that are threads, records and checkpoints told, a stop for
// one stopping all, a killed rank ending the others with a report, and a missing daemon noticed.

#include <gmock/gmock.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "kernels/device/backend.h"
#include "models/arch/flops.h"
#include "tests/testing/parse_trainer.h"
#include "tests/testing/ranks.h"
#include "tests/worker/trainer/trainer_process.h"
#include "train/checkpoint/load.h"
#include "worker/channel/server.h"
#include "worker/trainer/exit_report.h"
#include "worker/trainer/rank_process.h"

namespace trainyard {
namespace {

using channel::ChannelServer;
using testing::FreshDirectory;
using ::testing::HasSubstr;
using testing::JobYaml;
using testing::TrainerProcess;
using testing::WriteConfig;

// The daemons of a gang: one server a rank, and the relay between them.
class Daemons {
 public:
  Daemons(const std::string& directory, int size) {
    for (int rank = 0; rank < size; ++rank) {
      auto server = ChannelServer::Create(
          {.path = absl::StrCat(directory, "/socket-", rank),
           .job_id = "j-1",
           .epoch = 1,
           .rank = uint32_t(rank)},
          {.ready = [this](const channel::Ready&) { Change([this] { ++ready; }); },
           .step = [this, rank](
                       const channel::Step& step) { Change([&] { steps[rank].push_back(step); }); },
           .checkpoint =
               [this](const channel::Checkpoint& checkpoint) {
                 Change([&] { checkpoints.push_back(checkpoint.path); });
               },
           .set =
               [this](const channel::Set& set) { Change([&] { values_[set.key] = set.value; }); },
           .get = [this, rank](
                      const channel::Get& get) { Change([&] { asked_.emplace(get.key, rank); }); },
           .progress =
               [this, rank](const channel::Progress& now) {
                 Change([&] {
                   channel::Progress& last = beats_[rank];
                   in_collective[rank] =
                       now.waiting && last.count == now.count && now.phase == "step";
                   last = now;
                 });
               }});
      CHECK(server.ok()) << server.status();
      const std::lock_guard lock(mutex_);  // Others serve already.
      servers_.push_back(*std::move(server));
    }
  }
  void SendStop(int rank) { servers_[size_t(rank)]->SendStop(); }
  template <typename Condition>
  bool Wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), condition);
  }

  // What was told so far.
  std::vector<channel::Step> StepsOf(int rank) const {
    const std::lock_guard lock(mutex_);
    return steps.at(rank);
  }
  std::vector<std::string> Checkpoints() const {
    const std::lock_guard lock(mutex_);
    return checkpoints;
  }
  int Ready() const {
    const std::lock_guard lock(mutex_);
    return ready;
  }

  // For conditions of Wait.
  int ready = 0;
  std::map<int, std::vector<channel::Step>> steps;
  std::vector<std::string> checkpoints;
  std::map<int, bool> in_collective;  // In a step, for a second at least.

 private:
  template <typename F>
  void Change(F change) {
    const std::lock_guard lock(mutex_);
    change();
    for (auto it = asked_.begin(); it != asked_.end();) {
      const auto value = values_.find(it->first);
      if (value != values_.end()) servers_[size_t(it->second)]->SendValue(it->first, value->second);
      it = value != values_.end() ? asked_.erase(it) : std::next(it);
    }
    changed_.notify_all();
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::multimap<std::string, int> asked_;
  std::map<int, channel::Progress> beats_;
  std::vector<std::unique_ptr<ChannelServer>> servers_;
};

class Gang : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    directory_ = FreshDirectory(
        absl::StrCat("gang_", ::testing::UnitTest::GetInstance()->current_test_info()->name()));
    daemons_ = std::make_unique<Daemons>(directory_, kRanks);
  }
  std::string RankYaml(int rank) const {
    return absl::StrCat("rank: {job_id: j-1, epoch: 1, rank: ", rank, ", world: ", kRanks,
                        ", threads: 1, socket: ", directory_, "/socket-", rank,
                        ", exit_report: ", directory_, "/exit-", rank,
                        ".json, peak_flops: ", 1e10 * (rank + 1), "}\n");
  }
  void Start(int steps, const std::vector<std::string>& faults = {"", ""}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string path = absl::StrCat(directory_, "/config-", rank, ".yaml");
      WriteConfig(path, JobYaml(directory_, kRanks, steps, fields_ + RankYaml(rank)));
      std::vector<std::string> arguments = {path};
      if (!faults[size_t(rank)].empty()) arguments = {path, "--fault", faults[size_t(rank)]};
      trainers_.push_back(
          std::make_unique<TrainerProcess>(arguments, absl::StrCat(directory_, "/output-", rank)));
    }
  }
  std::string Cause(int rank) const { return Reported(rank, "cause"); }
  std::string Message(int rank) const { return Reported(rank, "message"); }
  std::string Reported(int rank, const char* field) const {
    const auto text = ReadFile(absl::StrCat(directory_, "/exit-", rank, ".json"));
    if (!text.ok()) return "no report";
    return nlohmann::json::parse(*text, nullptr, false).value(field, absl::StrCat("no ", field));
  }
  std::string Digest() const {
    const auto paths = CompleteCheckpoints(directory_ + "/run");
    return Checkpoint::Open(paths->front())->Digest().value();
  }

  // Of five steps that were started.
  void ExpectTheBitsOfThreads();

  std::string fields_;  // More of the job's.
  std::string directory_;
  std::unique_ptr<Daemons> daemons_;
  std::vector<std::unique_ptr<TrainerProcess>> trainers_;
};

void Gang::ExpectTheBitsOfThreads() {
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(trainers_[size_t(rank)]->Wait(), 0) << trainers_[size_t(rank)]->Output();
    EXPECT_EQ(Cause(rank), "completed");
    ASSERT_EQ(daemons_->StepsOf(rank).size(), 5u);
    EXPECT_EQ(daemons_->StepsOf(rank).back().step, 5u);
    const channel::Step last = daemons_->StepsOf(rank).back();
    EXPECT_EQ(last.peak_flops, 3e10) << "of both";
    EXPECT_EQ(last.mfu, Mfu(last.model_flops, last.seconds, 3e10));
    EXPECT_EQ(daemons_->StepsOf(rank).back().loss, daemons_->StepsOf(0).back().loss);
    EXPECT_EQ(daemons_->StepsOf(rank).back().seconds, daemons_->StepsOf(0).back().seconds);
  }
  EXPECT_EQ(daemons_->Ready(), kRanks);
  ASSERT_EQ(daemons_->Checkpoints().size(), 3u);
  EXPECT_THAT(daemons_->Checkpoints().back(), HasSubstr("/run/epoch-1/step-5"));
  const std::string processes = Digest();

  ASSERT_TRUE(RemoveTree(directory_ + "/run").ok());
  const TrainerConfig config = ParseTrainerConfig(JobYaml(directory_, kRanks, 5, fields_)).value();
  testing::RunWorlds(kRanks, [&](CollectiveWorld& world) {
    RankConfig rank;
    rank.job_id = "j-1", rank.epoch = 1, rank.rank = world.rank(), rank.world = kRanks;
    const auto trainer = Trainer::Create(config.job, rank, CpuBackend(), world, {});
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    EXPECT_TRUE((*trainer)->Run().ok());
  });
  EXPECT_EQ(Digest(), processes);
}

TEST_F(Gang, TrainsToTheSameBitsAsThreadsAndTellsItsDaemons) {
  Start(5);
  ExpectTheBitsOfThreads();
}

// Gathers and sums of ZeRO FULL over sockets: computation goes on beside them.
TEST_F(Gang, TrainsToTheSameBitsAsThreadsUnderZeroFull) {
  fields_ = "  parallelism: {zero: FULL, reduction: BF16}\n";
  Start(5);
  ExpectTheBitsOfThreads();
}

TEST_F(Gang, StopOfOneRankStopsAllWithACheckpointOfThatStep) {
  Start(1'000'000);
  ASSERT_TRUE(daemons_->Wait([&] { return daemons_->steps[0].size() >= 3; }));
  daemons_->SendStop(1);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(trainers_[size_t(rank)]->Wait(), 0) << trainers_[size_t(rank)]->Output();
    EXPECT_EQ(Cause(rank), "stopped");
  }
  EXPECT_EQ(daemons_->StepsOf(0).back().step, daemons_->StepsOf(1).back().step);
  EXPECT_THAT(daemons_->Checkpoints().back(),
              ::testing::EndsWith(absl::StrCat("/step-", daemons_->StepsOf(0).back().step)));
}

TEST_F(Gang, KillOfOneRankEndsTheOtherWithAReport) {
  Start(1'000'000, {"", "kill:4"});
  EXPECT_EQ(trainers_[1]->Wait(), -SIGKILL);
  EXPECT_EQ(Cause(1), "no report");
  EXPECT_EQ(trainers_[0]->Wait(), 1);
  EXPECT_EQ(Cause(0), "peer_lost");
}

// Rank 1 hangs before step 4, so rank 0 waits for it in a collective, and dies there. Catches a
// rank that goes on waiting for a dead one, and a report that does not say where.
TEST_F(Gang, KillOfARankInACollectiveEndsTheOtherWithAReportOfCollectiveAndGroup) {
  Start(1'000'000, {"", "hang:4"});
  ASSERT_TRUE(daemons_->Wait([&] { return daemons_->in_collective[0]; }));
  trainers_[0]->Kill(SIGKILL);
  EXPECT_EQ(trainers_[0]->Wait(), -SIGKILL);
  const absl::Time killed = absl::Now();
  trainers_[1]->Kill(SIGCONT);
  EXPECT_EQ(trainers_[1]->Wait(), 1);
  EXPECT_LT(absl::Now() - killed, absl::Seconds(30)) << "not a deadline that passes";
  EXPECT_EQ(Cause(1), "peer_lost");
  EXPECT_THAT(Message(1),
              ::testing::ContainsRegex("^[a-z_]+ [0-9]+ of group (async )?data of 0, rank 1 of 2 "
                                       "\\(world rank 1\\): .*world rank 0"));
  EXPECT_THAT(
      trainers_[1]->Output(),
      ::testing::ContainsRegex("warning collective group=.group (async )?data of 0, rank 1 of 2 .* "
                               "operation=.[a-z_]+ [0-9]+, [0-9]+ bytes, .*, not left"));
}

// As a worker's order to stop finds a rank whose peer hangs.
TEST_F(Gang, ARankThatCannotSeeASignalToStopLogsWhereItStands) {
  Start(1'000'000, {"", "hang:4"});
  ASSERT_TRUE(daemons_->Wait([&] { return daemons_->in_collective[0]; }));
  trainers_[0]->Kill(SIGTERM);
  EXPECT_TRUE(trainers_[0]->WaitForOutput("not left")) << trainers_[0]->Output();
  EXPECT_THAT(trainers_[0]->Output(),
              HasSubstr("not_stopped_yet phase=step step=4 in_collective=yes"));
  EXPECT_THAT(trainers_[0]->Output(), HasSubstr("data of 0, rank 0 of 2 (world rank 0)"));
}

TEST_F(Gang, NotFiniteIsEveryRanksCause) {
  Start(4, {"nan:3", ""});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(trainers_[size_t(rank)]->Wait(), 1);
    EXPECT_EQ(Cause(rank), "not_finite");
  }
  EXPECT_TRUE(daemons_->StepsOf(1).back().skipped);
}

// On CPUs there is nothing of NCCL's to trace, which the rank's log says.
TEST_F(Gang, TheRankWhoseProfileAsksForNcclsLogTellsNcclAndSaysThatItIsNotUsed) {
  fields_ = absl::StrCat("  profile: {directory: ", directory_,
                         "/traces, start_step: 1, ranks: [1], nccl_trace: true}\n");
  Start(2);
  for (int rank = 0; rank < kRanks; ++rank) {
    const bool wanted = rank == 1;
    EXPECT_EQ(trainers_[size_t(rank)]->Wait(), 0) << trainers_[size_t(rank)]->Output();
    const std::string output = trainers_[size_t(rank)]->Output();
    EXPECT_EQ(absl::StrContains(output, "nccl_trace path="), wanted) << output;
    EXPECT_EQ(absl::StrContains(output, "/traces/j-1-epoch-1-rank-1-nccl.log"), wanted) << output;
    EXPECT_EQ(absl::StrContains(output, "nccl_not_traced"), wanted) << output;
  }
}

TEST_F(Gang, BrokenConfigStillLeavesAReport) {
  const std::string path = directory_ + "/config-0.yaml";
  WriteConfig(path, JobYaml(directory_, 3, 4, RankYaml(0)));  // A global batch of 4 on 3 ranks.
  TrainerProcess trainer({path}, directory_ + "/output-0");
  EXPECT_EQ(trainer.Wait(), 1);
  EXPECT_EQ(Cause(0), "bad_input") << trainer.Output();
}

TEST(RankProcess, WithoutADaemonForTooLongCheckpointsAndStops) {
  const std::string directory = FreshDirectory("no_daemon");
  TrainerConfig config = ParseTrainerConfig(JobYaml(directory, 1, 1'000'000)).value();
  config.rank.emplace();
  config.rank->job_id = "j-1";
  config.rank->epoch = 1;
  config.rank->socket = directory + "/nobody-listens";
  const auto result = RunRankProcess(
      config, RankDevice{.backend = &CpuBackend()},
      {.stop_requested = [] { return false; }, .daemon_patience = absl::Milliseconds(50)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, Outcome::kStopped);
  EXPECT_TRUE(
      Exists(absl::StrCat(directory, "/run/epoch-1/step-", result->step, "/manifest.json")));
}

TEST(ExitReport, CauseFollowsFromTheError) {
  EXPECT_EQ(ReportOf(absl::NotFoundError("x")).cause, ExitCause::kBadInput);
  EXPECT_EQ(ReportOf(absl::DataLossError("x")).cause, ExitCause::kBadInput);
  EXPECT_EQ(ReportOf(absl::DeadlineExceededError("x")).cause, ExitCause::kPeerLost);
  EXPECT_EQ(ReportOf(absl::ResourceExhaustedError("x")).cause, ExitCause::kOther);
  EXPECT_EQ(ReportOf(DeviceError(DeviceError::Kind::kDevice, "x")).cause, ExitCause::kDeviceError);
  EXPECT_EQ(ExitCode({ExitCause::kStopped, ""}), 0);
  EXPECT_EQ(ExitCode({ExitCause::kPeerLost, ""}), 1);
}

}  // namespace
}  // namespace trainyard
