// Proves what a job's profile gives: the chosen ranks' chosen steps and no others, each op within
// the action that it belongs to, and the same training with it as without.

#include "train/trainer/profiler.h"

#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "tests/train/step/run_job.h"
#include "tests/train/step/trace.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using testing::FreshDirectory;
using testing::NewestDigest;
using testing::ReadTrace;
using testing::RunJob;
using testing::RunWorlds;
using testing::SpansOf;
using testing::TinyJob;
using Json = nlohmann::json;

std::vector<std::string> NamesOf(const std::vector<Json>& spans) {
  std::vector<std::string> names;
  for (const Json& span : spans) names.push_back(span["name"]);
  return names;
}

bool Within(const Json& inner, const Json& outer) {
  constexpr double kSlack = 1e-3;  // Microseconds: what is written.
  const double begin = outer["ts"], end = begin + double(outer["dur"]);
  return double(inner["ts"]) >= begin - kSlack &&
         double(inner["ts"]) + double(inner["dur"]) <= end + kSlack;
}

std::vector<std::string> FilesIn(const std::string& directory) { return *ListDirectory(directory); }

// Two data-parallel ranks, four micro-batches each.
JobConfig Job(const std::string& name) {
  JobConfig job = TinyJob(FreshDirectory(name));
  job.devices = 2;
  job.steps = 4;
  return job;
}

TEST(ProfilerTest, TheChosenRankWritesTheChosenSteps) {
  JobConfig job = Job("profile");
  const std::string traces = FreshDirectory("profile_traces");
  job.profile = {.directory = traces, .start_step = 2, .steps = 2, .ranks = {1}};
  for (const auto& run : RunJob(job, {.ranks = 2})) ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_THAT(FilesIn(traces), ElementsAre("j-1-epoch-1-rank-1-step-2.json"));
  const Json trace = ReadTrace(traces + "/j-1-epoch-1-rank-1-step-2.json");

  const std::vector<Json> steps = SpansOf(trace, Track::kSteps);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["args"]["step"], 2);
  EXPECT_EQ(steps[1]["args"]["step"], 3);
  std::vector<std::string> want;
  for (int step = 0; step < 2; ++step) {
    for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
      want.insert(want.end(), {"forward", "backward"});
    }
    want.push_back("optimizer");
  }
  const std::vector<Json> actions = SpansOf(trace, Track::kActions);
  EXPECT_EQ(NamesOf(actions), want);
  EXPECT_EQ(actions[2]["args"]["micro_batch"], 1);

  const std::vector<Json> ops = SpansOf(trace, Track::kCompute);
  size_t action = 0;
  for (const Json& op : ops) {
    while (action < actions.size() && !Within(op, actions[action])) ++action;
    ASSERT_LT(action, actions.size()) << op << " is not within an action after those before";
  }
  EXPECT_EQ(actions[action]["name"], "optimizer");
  EXPECT_THAT(NamesOf(ops), ::testing::IsSupersetOf({"embedding", "attention_backward", "adamw"}));
  EXPECT_THAT(NamesOf(SpansOf(trace, Track::kCommunication)),
              ::testing::Contains("scatter_bucket"));
  EXPECT_EQ(trace["traceEvents"][0]["pid"], 1);
}

TEST(ProfilerTest, TrainingIsTheSame) {
  JobConfig job = Job("profile_plain");
  job.parallelism.zero = Zero::kFull;
  RunJob(job, {.ranks = 2});
  const std::string want = NewestDigest(job.checkpoint->directory);
  job.checkpoint->directory = FreshDirectory("profile_traced");
  job.profile = {
      .directory = FreshDirectory("traces"), .start_step = 1, .steps = 4, .ranks = {0, 1}};
  RunJob(job, {.ranks = 2});
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), want);
  EXPECT_EQ(FilesIn(job.profile->directory).size(), 2u);
}

TEST(ProfilerTest, AJobThatEndsFirstWritesWhatThereWas) {
  JobConfig job = Job("profile_short");
  job.profile = {.directory = FreshDirectory("short"), .start_step = 4, .steps = 10, .ranks = {}};
  RunJob(job, {.ranks = 2});
  ASSERT_THAT(FilesIn(job.profile->directory), ElementsAre("j-1-epoch-1-rank-0-step-4.json"));
  EXPECT_EQ(
      SpansOf(ReadTrace(job.profile->directory + "/j-1-epoch-1-rank-0-step-4.json"), Track::kSteps)
          .size(),
      1u);
}

TEST(ProfilerTest, ATraceThatCannotBeWrittenIsNoFailure) {
  JobConfig job = Job("profile_lost");
  const std::string traces = FreshDirectory("lost");
  job.profile = {.directory = traces, .start_step = 2, .steps = 1, .ranks = {}};
  const auto lose = [&](int rank, int64_t step, int, StepState&) {
    if (rank == 0 && step == 2) std::filesystem::remove_all(traces);
  };
  for (const auto& run : RunJob(job, {.ranks = 2, .before_attempt = lose})) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.result.step, 4);
  }
}

// Bug it must catch: waiting for communication that has failed, in a destructor.
TEST(ProfilerTest, ARankThatLosesItsPeerEndsAsWithoutAProfileAndWritesWhatThereWas) {
  JobConfig job = Job("profile_peer");
  job.profile = {
      .directory = FreshDirectory("peer"), .start_step = 1, .steps = 10, .ranks = {0, 1}};
  std::array<std::string, 2> lost;
  RunWorlds(2, [&](CollectiveWorld& world) {
    RankConfig rank;
    rank.job_id = "lost", rank.epoch = 1, rank.world = 2, rank.rank = world.rank();
    TrainerCallbacks callbacks;
    callbacks.before_attempt = [&](int64_t step, int, StepState&) {
      if (step == 3 && world.rank() == 1) throw DeviceError(DeviceError::Kind::kPeerLost, "gone");
    };
    try {
      const auto trainer = Trainer::Create(job, rank, CpuBackend(), world, std::move(callbacks));
      const auto result = (*trainer)->Run();
    } catch (const DeviceError& error) {
      lost[size_t(world.rank())] = error.what();
      throw;
    }
  });
  EXPECT_NE(lost[0], "");
  EXPECT_THAT(lost[1], ::testing::StartsWith("gone; rank 1 of 2, "));
  EXPECT_THAT(FilesIn(job.profile->directory),
              ElementsAre("lost-epoch-1-rank-0-step-1.json", "lost-epoch-1-rank-1-step-1.json"));
}

TEST(ProfilerTest, TracesMayLieBelowTheCheckpoints) {
  JobConfig job = Job("profile_below");
  job.profile = {.directory = job.checkpoint->directory + "/traces", .start_step = 1, .ranks = {}};
  for (const auto& run : RunJob(job, {.ranks = 2})) ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(FilesIn(job.profile->directory).size(), 1u);
}

// As of a later attempt: what remains of the range.
TEST(ProfilerTest, AnAttemptThatResumesTracesTheRest) {
  JobConfig job = Job("profile_resumed");
  job.profile = {.directory = FreshDirectory("resumed"), .start_step = 2, .steps = 3, .ranks = {}};
  RunJob(job, {.ranks = 2, .stop = [](int, int64_t step) { return step == 2; }});
  RunJob(job, {.ranks = 2, .epoch = 2, .resume = true});
  EXPECT_THAT(FilesIn(job.profile->directory),
              ElementsAre("j-1-epoch-1-rank-0-step-2.json", "j-1-epoch-2-rank-0-step-3.json"));
}

// What a stage waits for lies within its actions, too.
TEST(ProfilerTest, StagesShowWhatTheyWaitFor) {
  JobConfig job = Job("profile_stages");
  job.parallelism.pipeline = 2;
  job.profile = {.directory = FreshDirectory("stages"), .start_step = 1, .ranks = {1}};
  for (const auto& run : RunJob(job, {.ranks = 2})) ASSERT_TRUE(run.status.ok()) << run.status;
  const Json trace = ReadTrace(job.profile->directory + "/j-1-epoch-1-rank-1-step-1.json");
  const std::vector<std::string> ops = NamesOf(SpansOf(trace, Track::kCompute));
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "receive"), 8);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "wait_send"), 8);
}

// Bug it must catch: times since 1970, of which a viewer's double has a quarter of a microsecond.
TEST(ProfilerTest, ADoubleHoldsTimesToTheNanosecondAndRanksShareAnOrigin) {
  const int64_t now = Timeline::Now();
  const auto unix_seconds = [] { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); };
  const double before = unix_seconds();
  Timeline timeline;
  for (int64_t i = 0; i < 100; ++i) {
    timeline.Add(Track::kCompute, {.name = "op", .begin_ns = now + i, .end_ns = now + i + 1});
  }
  const Json trace = Json::parse(ToChromeTrace(timeline, 3));
  const std::vector<Json> spans = SpansOf(trace, Track::kCompute);
  const double first = spans[0]["ts"];
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_NEAR(double(spans[i]["ts"]) - first, double(i) * 1e-3, 1e-4) << i;
  }
  const int64_t origin = trace["otherData"]["origin_unix_seconds"];
  EXPECT_EQ(origin % (24 * 3600), 0);
  EXPECT_NEAR(double(origin) + first * 1e-6, before, 60);
}

TEST(ProfilerTest, RangesAreNamedByWhatTellsThemApart) {
  EXPECT_EQ(RangeName(Track::kSteps, {.name = "step", .index = 12}), "step 12");
  EXPECT_EQ(RangeName(Track::kActions, {.name = "optimizer"}), "optimizer");
  Span span{.name = "backward", .label = "mlp", .block = 5, .chunk = 0, .index = 3};
  EXPECT_EQ(RangeName(Track::kActions, span), "backward 3");
  EXPECT_EQ(RangeName(Track::kCompute, span), "backward mlp");
  EXPECT_EQ(RangeName(Track::kCommunication, span), "backward mlp block 5");
  span.chunk = 1;
  EXPECT_EQ(RangeName(Track::kActions, span), "backward 3 chunk 1");
}

TEST(ProfilerTest, TimesAreWrittenToTheNanosecond) {
  Timeline timeline;
  timeline.Add(Track::kCompute, {.name = "op", .label = "mlp", .begin_ns = 5, .end_ns = 1'002'003});
  EXPECT_THAT(ToChromeTrace(timeline, 3), ::testing::HasSubstr(R"("dur":1001.998,)"));
}

}  // namespace
}  // namespace trainyard
