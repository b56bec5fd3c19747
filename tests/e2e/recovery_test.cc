// Proves that whatever dies in the middle of a run, the run ends as if nothing had happened: the
// checkpoint's digest is that of an undisturbed run. Catches state that is not in a checkpoint
// (data position, moments, step), checkpoints that are used half-written, ranks that two attempts
// run at once, and jobs that a restart forgets.

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files.h"
#include "tests/e2e/service.h"
#include "tests/e2e/tiny_chats.h"
#include "tests/testing/npy.h"

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

  // `trainyard watch`, which writes to watch.out and watch.err.
  ProcessOptions Watching(const std::string& id) {
    return {.argv = {absl::StrCat(std::getenv("TRAINYARD_BIN"), "/trainyard"), "watch", id,
                     "--controller", service_.address()},
            .directory = service_.directory(),
            .environment = {},
            .output = service_.directory() + "/watch.out",
            .errors = service_.directory() + "/watch.err"};
  }

  void ExpectEndsLikeAnUndisturbedRun(const std::string& id) {
    EXPECT_EQ(service_.WaitForEnd(id), "SUCCEEDED");
    const auto steps = service_.Steps(id);
    ASSERT_EQ(steps.size(), 300u);
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].at("step"), i + 1);
    EXPECT_EQ(service_.Digest("runs/disturbed"), UndisturbedDigest());
  }

 private:
  // Of the same run in peace: once for all tests, because it depends on the spec alone.
  const std::string& UndisturbedDigest() {
    static const std::string* const kDigest = [this] {
      const std::string id = service_.Submit(Job("undisturbed"));
      EXPECT_EQ(service_.WaitForEnd(id), "SUCCEEDED");
      EXPECT_EQ(service_.Job(id).at("restarts"), 0);
      return new std::string(service_.Digest("runs/undisturbed"));
    }();
    return *kDigest;
  }

 protected:
  Service service_{{.workers = 2, .devices_per_worker = 1}};
};

TEST_F(Recovery, ARankThatIsKilledIsRunAgainFromTheLastCheckpoint) {
  const std::string id = SubmitAndReachTheMiddle();
  const auto trainers = service_.Trainers(id);
  ASSERT_EQ(trainers.size(), 2u);
  Kill(trainers[1].pid, SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return service_.Job(id).at("restarts") == 1; }));
  ExpectEndsLikeAnUndisturbedRun(id);
  EXPECT_EQ(service_.Job(id).at("restarts"), 1);
  EXPECT_THAT(service_.Trainyard({"events", id}).output, ::testing::HasSubstr("signal 9"));
}

// Bug it must catch: between a kill and the next attempt, the speed of the dead one is shown as
// progress; then the count of steps jumps back without a word, and the validation loss stays that
// of a step which is lost.
TEST_F(Recovery, WhatIsShownOfAnAttemptThatGoesBackIsItsOwn) {
  TestJob job = Job("disturbed");
  job.checkpoint_every = 100;
  job.more = "validation: {every_steps: 90}";
  const std::string id = service_.Submit(job);
  Process watch(Watching(id));
  ASSERT_TRUE(service_.WaitForStep(id, 181));
  const auto trainers = service_.Trainers(id);
  ASSERT_EQ(trainers.size(), 2u) << "too fast to be disturbed";
  Kill(trainers[1].pid, SIGKILL);
  std::map<uint64_t, double> validated;  // By the step at which it was shown.
  const auto ended = [&] {
    const nlohmann::json seen = service_.Job(id), progress = seen.at("progress");
    const std::string state = seen.at("state");
    if (absl::StrContains(state, "STARTING") || absl::StrContains(state, "RECOVERING")) {
      EXPECT_EQ(progress.value("tokens_per_second", 0.0), 0) << seen;
      EXPECT_EQ(progress.value("eta_seconds", 0.0), 0) << seen;
    }
    if (seen.at("epoch") == 2 && seen.contains("resumed_step")) {
      validated[progress.at("step")] = progress.value("validation_loss", 0.0);
    }
    return absl::StrContains(state, "SUCCEEDED") || absl::StrContains(state, "FAILED");
  };
  ASSERT_TRUE(WaitUntil(ended));
  EXPECT_EQ(watch.Wait(absl::Seconds(60)), 0);
  EXPECT_THAT(ReadFile(service_.directory() + "/watch.out").value(),
              ::testing::ContainsRegex("attempt 2 goes on after step [12]00"));
  const auto steps = service_.Steps(id);
  ASSERT_EQ(steps.size(), 300u);
  for (const auto& [step, loss] : validated) {
    if (loss == 0) continue;
    uint64_t last = step;  // Every step may stand for itself: runs are the same to the bit.
    while (last > 0 && !steps[last - 1].contains("validation_loss")) --last;
    ASSERT_GT(last, 0u) << step;
    EXPECT_EQ(loss, steps[last - 1].at("validation_loss").get<double>()) << "at step " << step;
  }
}

// What the user is told when nothing is left to try: the rank, and the collective and the group
// that it left its peer in. Catches ranks that wait for a dead one until a deadline passes.
TEST_F(Recovery, TheReasonOfAFailureNamesRankCollectiveAndGroup) {
  TestJob job = Job("disturbed");
  job.more = "max_restarts: 0";
  const std::string id = service_.Submit(job);
  ASSERT_TRUE(service_.WaitForStep(id, 90));
  const auto trainers = service_.Trainers(id);
  ASSERT_EQ(trainers.size(), 2u) << "too fast to be disturbed";
  const absl::Time killed = absl::Now();
  Kill(trainers[1].pid, SIGKILL);
  EXPECT_EQ(service_.WaitForEnd(id), "FAILED");
  EXPECT_LT(absl::Now() - killed, absl::Seconds(30));
  const std::string said =
      "rank 1 on [^ ]+ .*was killed by signal 9 .* \\(rank 0 on [^ ]+ .* lost a peer: [a-z_]+ "
      "[0-9]+ of group [^:]*rank 0 of 2 \\(world rank 0\\): .*world rank 1.*\\); no restart left";
  EXPECT_THAT(service_.Job(id).at("state_reason").get<std::string>(),
              ::testing::ContainsRegex(said));
  EXPECT_THAT(service_.Trainyard({"events", id}).output, ::testing::ContainsRegex(said));
  EXPECT_THAT(service_.Trainyard({"logs", id, "--rank", "0"}).output,
              ::testing::ContainsRegex("warning collective group=.* operation=.*not left"));
}

// Catches events that claim a resume from a checkpoint which the gang could not use.
TEST_F(Recovery, DamagedCheckpointsAreRefusedAndTheEventsSaySo) {
  const std::string id = SubmitAndReachTheMiddle();
  const auto trainers = service_.Trainers(id);
  ASSERT_EQ(trainers.size(), 2u);
  for (const Found& trainer : trainers) Kill(trainer.pid, SIGSTOP);  // Nothing is saved meanwhile.
  std::map<int, std::filesystem::path> by_step;
  const std::string runs = service_.directory() + "/runs/disturbed/epoch-1";
  for (const auto& entry : std::filesystem::directory_iterator(runs)) {
    const std::string name = entry.path().filename().string();
    if (std::filesystem::exists(entry.path() / "manifest.json")) {
      by_step[std::stoi(name.substr(name.find('-') + 1))] = entry.path();
    }
  }
  ASSERT_GE(by_step.size(), 2u);
  const int oldest = by_step.begin()->first;
  for (const auto& [step, path] : by_step) {
    if (step != oldest) std::filesystem::resize_file(path / "rank-0.bin", 100);
  }
  for (const Found& trainer : trainers) Kill(trainer.pid, SIGKILL);
  ExpectEndsLikeAnUndisturbedRun(id);
  const std::string events = service_.Trainyard({"events", id}).output;
  // Of the newest in the directory, whether the ranks had reported it or not.
  const int newest = by_step.rbegin()->first;
  EXPECT_THAT(events, ::testing::ContainsRegex(
                          absl::StrCat("checkpoint refused: [^ ]*/step-", newest, "/rank-0.bin")));
  EXPECT_THAT(events, ::testing::HasSubstr(absl::StrCat(
                          "every rank is ready; resuming from the checkpoint of step ", oldest)));
  const nlohmann::json job = service_.Job(id);
  for (const auto& checkpoint : job.at("checkpoints")) {
    EXPECT_TRUE(std::filesystem::exists(std::string(checkpoint.at("path"))));
  }
}

// A model that is not the plain one, on two ranks.
struct Variant {
  const char* name;
  const char* model;  // Empty: the plain one.
  const char* more;
  const char* data = "synthetic: {}";
  bool has_base = false;  // The first attempt writes what is frozen, which the second one loads.
  bool is_tuned = false;  // Begins with the weights of runs/first.
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class KilledVariant : public ::testing::TestWithParam<Variant> {};

// Forty latents [2, 16, 16] of three classes, in which a class is a wave of its own length.
void WriteLatents(Service& service) {
  constexpr int64_t kSamples = 40, kElements = 2 * 16 * 16;
  std::vector<float> latents;
  std::vector<int8_t> labels;
  for (int64_t n = 0; n < kSamples; ++n) {
    labels.push_back(int8_t(n % 3));
    for (int64_t i = 0; i < kElements; ++i) {
      latents.push_back(float(std::sin(double(i * (1 + n % 3)) + 0.1 * double(n))));
    }
  }
  service.Write("latents.npy", Npy("<f4", {kSamples, 2, 16, 16}, latents));
  service.Write("labels.npy", Npy("|i1", {kSamples}, labels));
}

TEST_P(KilledVariant, EndsLikeAnUndisturbedRun) {
  Service service({.workers = 2, .devices_per_worker = 1});
  const auto job = [](const std::string& name) {
    TestJob job = Job(name);
    job.model = GetParam().model;
    job.more = GetParam().more;
    job.data = GetParam().data;
    return job;
  };
  WriteLatents(service);
  WriteTinyChats(service);
  if (GetParam().is_tuned) {
    TestJob first = {.name = "first", .steps = 1, .checkpoint_every = 1, .directory = "runs/first"};
    first.model = GetParam().model;
    EXPECT_EQ(service.WaitForEnd(service.Submit(first)), "SUCCEEDED");
  }
  EXPECT_EQ(service.WaitForEnd(service.Submit(job("calm"))), "SUCCEEDED");
  const std::string id = service.Submit(job("killed"));
  ASSERT_TRUE(service.WaitForStep(id, 90));
  const auto trainers = service.Trainers(id);
  ASSERT_EQ(trainers.size(), 2u) << "too fast to be disturbed";
  Kill(trainers[1].pid, SIGKILL);
  EXPECT_EQ(service.WaitForEnd(id), "SUCCEEDED");
  EXPECT_EQ(service.Job(id).at("restarts"), 1);
  EXPECT_EQ(service.Digest("runs/killed"), service.Digest("runs/calm"));
  const std::string runs = service.directory() + "/runs/killed";
  EXPECT_EQ(std::filesystem::exists(runs + "/epoch-1/base/manifest.json"), GetParam().has_base);
  EXPECT_FALSE(std::filesystem::exists(runs + "/epoch-2/base"));
  const std::string shown = service.Trainyard({"checkpoint", "inspect", runs}).output;
  EXPECT_EQ(absl::StrContains(shown, "base_size_bytes"), GetParam().has_base) << shown;
  EXPECT_EQ(absl::StrContains(shown, "  frozen "), GetParam().has_base) << shown;
}

INSTANTIATE_TEST_SUITE_P(
    All, KilledVariant,
    ::testing::Values(
        Variant{.name = "frozen",
                .model = "",
                .more = "frozen: ['model.layers.0.*', model.embed_tokens.weight]",
                .has_base = true},
        Variant{.name = "gpt_oss",
                .model = "preset: gpt-oss-20b, overrides: {layers: 2, hidden: 32, heads: 4, "
                         "kv_heads: 2, head_dim: 8, vocab: 256, max_seq: 64, window: 20, "
                         "yarn_original_max_seq: 32, "
                         "moe: {experts: 4, top_k: 2, expert_ffn: 24}}",
                .more = "parallelism: {pipeline: 2}"},
        // Context ranks tell each other the states of Mamba-2.
        Variant{.name = "nemotron_h",
                .model = "preset: nemotron3-super-120b, overrides: {hybrid_pattern: 'ME*-', "
                         "hidden: 32, ffn: 48, heads: 4, kv_heads: 2, head_dim: 8, vocab: 256, "
                         "max_seq: 64, mamba_heads: 8, mamba_head_dim: 6, mamba_groups: 2, "
                         "mamba_state: 10, moe_latent: 12, "
                         "moe: {experts: 4, top_k: 2, expert_ffn: 24}}",
                .more = "parallelism: {context: 2}"},
        // Every epoch of forty samples has noise, times and dropped labels of its own.
        Variant{.name = "dit",
                .model = "preset: dit-s-2, overrides: {layers: 2, hidden: 32, heads: 4, "
                         "in_channels: 2, sample_size: 16, num_classes: 3, num_timesteps: 50}",
                .more = "parallelism: {pipeline: 2}",
                .data = "arrays: {latents: latents.npy, labels: labels.npy, label_dropout: 0.2, "
                        "prediction_type: V_PREDICTION}"},
        // Packed conversations, in an order of their own in each epoch.
        Variant{
            .name = "chats", .model = "", .more = "parallelism: {context: 2}", .data = kTinyChats},
        // The reference is that of the first attempt.
        Variant{.name = "dpo",
                .model = "",
                .more = "preference: {method: DPO, beta: 0.5}",
                .data = kTinyPairs},
        // The base in NF4 is quantised once.
        Variant{
            .name = "qlora",
            .model = "preset: llama3-8b, overrides: {layers: 2, hidden: 64, ffn: 128, heads: 4, "
                     "kv_heads: 4, head_dim: 16, vocab: 256, max_seq: 64}",
            .more = "init_from: runs/first\nparallelism: {zero: FULL}\n"
                    "adapter: {lora: {rank: 4, alpha: 8, base: NF4, dropout: 0.1}}",
            .data = kTinyChats,
            .has_base = true,
            .is_tuned = true}),
    [](const auto& info) { return std::string(info.param.name); });

// Catches a hung rank that nobody notices, and peers that are blamed for waiting for it.
TEST(Hang, ARankThatIsStoppedIsFoundNamedAndRunAgain) {
  // A tenth of the patience without a heartbeat: enough for a machine that is busy.
  Service service({.devices_per_worker = 2, .worker_flags = {"--patience", "60"}});
  const std::string id = service.Submit(Job("disturbed"));
  ASSERT_TRUE(service.WaitForStep(id, 90));
  const auto trainers = service.Trainers(id);
  ASSERT_EQ(trainers.size(), 2u);
  Kill(trainers[1].pid, SIGSTOP);
  ASSERT_TRUE(WaitUntil([&] { return service.Job(id).at("restarts") == 1; }));
  EXPECT_EQ(service.WaitForEnd(id), "SUCCEEDED");
  const std::string events = service.Trainyard({"events", id}).output;
  EXPECT_THAT(events, ::testing::ContainsRegex("rank 1 on [^ ]+ .*hung: no progress for"));
  EXPECT_THAT(events, ::testing::Not(::testing::HasSubstr("rank 0 hung")));
}

// Catches an upgrade of a daemon that costs its ranks a restart, or loses what they did meanwhile.
TEST(HandOver, ADaemonHandsItsRanksToItsSuccessorBeyondTheLease) {
  Service service({.devices_per_worker = 2, .worker_flags = {"--detach", "600"}});
  TestJob job = Job("handed-over");
  job.steps = 100'000;  // It is cancelled once enough is seen.
  const std::string id = service.Submit(job);
  ASSERT_TRUE(service.WaitForStep(id, 90));
  const auto before = service.Trainers(id);
  Process& worker = service.part("worker");
  worker.Signal(SIGUSR2);
  EXPECT_EQ(worker.Wait(absl::Seconds(10)), 0);
  absl::SleepFor(absl::Seconds(8));  // Longer than the lease: that is what is being tested.
  EXPECT_EQ(service.State(id), "RUNNING");
  service.StartAgain("worker");
  const auto after = service.Trainers(id);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].pid, before[i].pid);
  // What the ranks did without a daemon arrives, and so does what they do now.
  EXPECT_TRUE(service.WaitForStep(id, service.Step(id) + 100));
  EXPECT_EQ(service.Trainyard({"cancel", id}).exit_code, 0);
  EXPECT_EQ(service.WaitForEnd(id), "CANCELLED");
  EXPECT_EQ(service.Job(id).at("restarts"), 0);
  const auto steps = service.Steps(id);
  for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i].at("step"), i + 1);
}

TEST(DeviceFault, IsReportedWithWhatTheDeviceWasAtAndTheJobRecovers) {
  const std::string trainer = FaultyTrainer("device:100");
  Service service({.devices_per_worker = 2, .worker_flags = {"--trainer", trainer}});
  const std::string id = service.Submit(Job("disturbed"));
  EXPECT_EQ(service.WaitForEnd(id), "SUCCEEDED");
  EXPECT_EQ(service.Job(id).at("restarts"), 1);
  const std::string events = service.Trainyard({"events", id}).output;
  EXPECT_THAT(events, ::testing::ContainsRegex(
                          "rank 1 on [^ ]+ .*had a device error: cpu: a fault that was asked for; "
                          "rank 1 of 2, at or before optimizer block [0-9]+ "));
  EXPECT_THAT(events, ::testing::HasSubstr("resuming from the checkpoint of step 80"));
  const std::string peaceful = service.Submit(Job("undisturbed"));
  EXPECT_EQ(service.WaitForEnd(peaceful), "SUCCEEDED");
  EXPECT_EQ(service.Job(peaceful).at("restarts"), 0);
  EXPECT_EQ(service.Digest("runs/disturbed"), service.Digest("runs/undisturbed"));
}

TEST_F(Recovery, TheControllerIsKilledAndNoRankNotices) {
  const std::string id = SubmitAndReachTheMiddle();
  const auto before = service_.Trainers(id);
  const pid_t controller = service_.Find("trainyard-controller", "");
  ASSERT_GT(controller, 1);
  Kill(controller, SIGKILL);
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
  const auto daemon = [this] {
    return service_.Find("trainyard-worker", "/state/worker-0 --devices");
  };
  const pid_t first = daemon();
  ASSERT_GT(first, 1);
  Kill(first, SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return daemon() > 1 && daemon() != first; }));
  const auto after = service_.Trainers(id);
  ASSERT_EQ(after.size(), before.size()) << "too fast to be disturbed";
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].pid, before[i].pid);
  ExpectEndsLikeAnUndisturbedRun(id);
  EXPECT_EQ(service_.Job(id).at("restarts"), 0);
  EXPECT_EQ(service_.Job(id).at("epoch"), 1);
}

// Catches a drain that loses the steps since the last checkpoint, and jobs that only a crash brings
// back.
TEST_F(Recovery, TheWholeServiceIsEndedAndStartedAgain) {
  const std::string id = SubmitAndReachTheMiddle();
  service_.up().Signal(SIGINT);
  EXPECT_EQ(service_.up().Wait(absl::Seconds(60)), 0);
  service_.StartAgain();
  EXPECT_GE(service_.Step(id), 90u);
  ExpectEndsLikeAnUndisturbedRun(id);
  EXPECT_EQ(service_.Job(id).at("restarts_without_progress"), 0);
}

TEST_F(Recovery, WatchingGoesOnThroughAControllersRestart) {
  const std::string id = service_.Submit(Job("disturbed"));
  Process watch(Watching(id));
  ASSERT_TRUE(service_.WaitForStep(id, 50));
  const pid_t controller = service_.Find("trainyard-controller", "");
  ASSERT_GT(controller, 1);
  Kill(controller, SIGKILL);
  EXPECT_EQ(service_.State(id), "RUNNING") << "too fast to be watched through it";
  EXPECT_NE(service_.Find("trainyard-controller", ""), controller);
  EXPECT_EQ(watch.Wait(absl::Seconds(100)), 0);
  EXPECT_EQ(service_.State(id), "SUCCEEDED");
}

}  // namespace
}  // namespace trainyard::testing
