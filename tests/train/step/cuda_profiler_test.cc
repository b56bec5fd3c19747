// Proves what a profiler of the GPU is told of a job with a profile: to record the chosen ranks'
// chosen steps and no others, between moments at which the device has nothing to do, and what runs
// there by names that nest: step, action, block, op. Only an emulated GPU says what it was told.

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/kernels/call.h"
#include "tests/testing/cuda_emulation/profiler.h"
#include "tests/testing/cuda_emulation/streams.h"
#include "tests/train/step/run_job.h"
#include "tests/train/step/trace.h"

namespace trainyard::testing {
namespace {

using cuda_emulation::ProfilerCall;
using cuda_emulation::TakeProfilerCalls;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two micro-batches a rank.
JobConfig Job(const std::string& name, int ranks) {
  JobConfig job = TinyJob(FreshDirectory(name));
  job.steps = 4;
  job.batch.global = 2 * ranks;
  job.profile = {.directory = FreshDirectory(name + "_traces"), .start_step = 2, .steps = 2};
  TakeProfilerCalls();
  return job;
}

using Calls = std::vector<ProfilerCall>;

std::map<std::thread::id, Calls> ByThread(const Calls& calls) {
  std::map<std::thread::id, Calls> by_thread;
  for (const ProfilerCall& call : calls) by_thread[call.thread].push_back(call);
  return by_thread;
}

int64_t CountOf(const Calls& calls, ProfilerCall::Kind kind) {
  return std::count_if(calls.begin(), calls.end(), [&](const auto& c) { return c.kind == kind; });
}

// A thread's ranges as they begin, each after those that it lies in: "step 2/forward 0/block 1".
std::vector<std::string> PathsOf(const Calls& calls) {
  std::vector<std::string> paths, open;
  for (const ProfilerCall& call : calls) {
    if (call.kind == ProfilerCall::kBeginRange) {
      open.push_back(call.name);
      paths.push_back(absl::StrJoin(open, "/"));
    } else if (call.kind == ProfilerCall::kEndRange) {
      EXPECT_THAT(open, ::testing::Not(IsEmpty())) << "after " << paths.back();
      if (!open.empty()) open.pop_back();
    } else {
      EXPECT_THAT(open, IsEmpty());
    }
  }
  EXPECT_THAT(open, IsEmpty());
  return paths;
}

// The names at one depth, below what begins with `above`.
std::vector<std::string> NamesBelow(const std::vector<std::string>& paths,
                                    const std::string& above) {
  std::vector<std::string> names;
  for (absl::string_view path : paths) {
    if (!absl::ConsumePrefix(&path, above + "/")) continue;
    if (!absl::StrContains(path, '/')) names.emplace_back(path);
  }
  return names;
}

// As the trace has them.
std::vector<std::string> TracedNames(const JobConfig& job, int rank, Track track) {
  std::vector<std::string> names;
  const auto trace =
      ReadTrace(absl::StrCat(job.profile->directory, "/j-1-epoch-1-rank-", rank, "-step-2.json"));
  for (const auto& span : SpansOf(trace, track)) {
    names.push_back(absl::StrCat(std::string(span["name"]), " ", std::string(span["cat"])));
    if (track == Track::kCommunication) {
      absl::StrAppend(&names.back(), " block ", int(span["args"]["block"]));
    }
  }
  return names;
}

void ExpectRan(const std::vector<RankRun>& runs) {
  for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
}

TEST(CudaProfilerTest, TheProfiledStepsAreRecordedAndNamedDownToTheirOps) {
  JobConfig job = Job("gpu_profile", 1);
  job.validation = ValidationConfig{.every_steps = 1, .batches = 1};  // Which is of no step.
  ExpectRan(RunJob(job, {.backend = &TestedBackend()}));
  const Calls calls = TakeProfilerCalls();
  ASSERT_THAT(ByThread(calls), SizeIs(1));
  ASSERT_EQ(calls.front().kind, ProfilerCall::kStart);
  ASSERT_EQ(calls.back().kind, ProfilerCall::kStop);
  EXPECT_TRUE(calls.front().idle) << "of the step before, something is left to do";
  EXPECT_TRUE(calls.back().idle);
  EXPECT_EQ(CountOf(calls, ProfilerCall::kStart), 1);
  EXPECT_EQ(CountOf(calls, ProfilerCall::kStop), 1);

  const std::vector<std::string> paths = PathsOf(calls);
  std::vector<std::string> ops;
  for (const std::string step : {"step 2", "step 3"}) {
    EXPECT_THAT(NamesBelow(paths, step),
                ElementsAre("forward 0", "backward 0", "forward 1", "backward 1", "optimizer"));
    EXPECT_THAT(NamesBelow(paths, step + "/forward 1"),
                ElementsAre("block 0", "block 1", "block 2", "block 3"));
    EXPECT_THAT(NamesBelow(paths, step + "/backward 1"),
                ElementsAre("block 3", "block 2", "block 1", "block 0"));
    EXPECT_THAT(NamesBelow(paths, step + "/forward 0/block 2"),
                ::testing::IsSupersetOf({"rms_norm attention", "matmul mlp"}));
    EXPECT_THAT(NamesBelow(paths, step + "/optimizer"), Contains("adamw optimizer"));
  }
  for (const std::string& path : paths) {
    const std::vector<std::string> names = absl::StrSplit(path, '/');
    EXPECT_THAT(names.front(), ::testing::AnyOf("step 2", "step 3"));
    const bool of_optimizer = names.size() == 3 && names[1] == "optimizer";
    if (names.size() == 4 || of_optimizer) ops.push_back(names.back());
  }
  EXPECT_THAT(ops, ElementsAreArray(TracedNames(job, 0, Track::kCompute)));
}

TEST(CudaProfilerTest, OnlyTheChosenRankIsRecordedItsCommunicationOnAThreadOfItsOwn) {
  JobConfig job = Job("gpu_profile_rank", 2);
  job.parallelism.zero = Zero::kFull;
  job.profile->ranks = {1};
  std::thread::id chosen;
  const auto note = [&](int rank, int64_t, int, StepState&) {
    if (rank == 1) chosen = std::this_thread::get_id();
  };
  ExpectRan(RunJob(job, {.ranks = 2, .backend = &TestedBackend(), .before_attempt = note}));
  const auto by_thread = ByThread(TakeProfilerCalls());
  ASSERT_THAT(by_thread, SizeIs(2));
  for (const auto& [thread, calls] : by_thread) {
    const bool computes = thread == chosen;
    EXPECT_EQ(CountOf(calls, ProfilerCall::kStart), int(computes));
    EXPECT_EQ(CountOf(calls, ProfilerCall::kStop), int(computes));
    if (!computes) {
      EXPECT_THAT(PathsOf(calls), ElementsAreArray(TracedNames(job, 1, Track::kCommunication)));
    }
  }
  ASSERT_TRUE(by_thread.contains(chosen));
  EXPECT_EQ(by_thread.at(chosen).back().kind, ProfilerCall::kStop);
}

// Bug it must catch: a profiler that goes on, and ranges that stay open, when a step fails within.
TEST(CudaProfilerTest, ItStopsOnEveryRankWhenAStepFails) {
  JobConfig job = Job("gpu_profile_failed", 2);
  job.profile->ranks = {0, 1};
  std::map<int, std::thread::id> threads;
  std::mutex mutex;
  const auto fail = [&](int rank, int64_t step, int, StepState&) {
    const std::lock_guard lock(mutex);
    threads[rank] = std::this_thread::get_id();
    if (rank == 1 && step == 3) throw DeviceError(DeviceError::Kind::kDevice, "planted");
  };
  RunJob(job, {.ranks = 2, .backend = &TestedBackend(), .before_attempt = fail});
  const auto by_thread = ByThread(TakeProfilerCalls());
  for (const auto& [thread, calls] : by_thread) PathsOf(calls);
  for (const auto& [rank, thread] : threads) {
    SCOPED_TRACE(rank);
    const Calls& calls = by_thread.at(thread);
    EXPECT_EQ(CountOf(calls, ProfilerCall::kStart), 1);
    EXPECT_EQ(CountOf(calls, ProfilerCall::kStop), 1);
    EXPECT_EQ(calls.back().kind, ProfilerCall::kStop);
    EXPECT_THAT(PathsOf(calls), Contains("step 3"));
  }
}

// Bug it must catch: a trace of when the host told the device of its communication.
TEST(TimelineTest, CommunicationIsWhenTheDeviceWasAtIt) {
  const Backend& backend = TestedBackend();
  const Exec compute = backend.NewExec(1), communication = backend.NewExec(1);
  Timeline timeline;
  timeline.Attach(backend, compute, &communication);
  const cuda_emulation::Late nothing_runs_before_it_is_waited_for;
  Timeline::Note(&timeline, Track::kCommunication, {.name = "all_gather"}, [] {});
  const int64_t given = Timeline::Now();
  timeline.Detach();
  ASSERT_THAT(timeline.spans(Track::kCommunication), SizeIs(1));
  EXPECT_GE(timeline.spans(Track::kCommunication)[0].begin_ns, given);
}

TEST(CudaProfilerTest, WithoutAProfileItIsToldNothing) {
  JobConfig job = Job("gpu_no_profile", 1);
  job.profile.reset();
  ExpectRan(RunJob(job, {.backend = &TestedBackend()}));
  EXPECT_THAT(TakeProfilerCalls(), IsEmpty());
}

TEST(CudaProfilerTest, OneThatDoesNotStartIsNoFailure) {
  const JobConfig job = Job("gpu_profile_refused", 1);
  cuda_emulation::SetProfilerError(cudaErrorInvalidValue);
  const std::vector<RankRun> runs = RunJob(job, {.backend = &TestedBackend()});
  cuda_emulation::SetProfilerError(cudaSuccess);
  ExpectRan(runs);
  EXPECT_THAT(TracedNames(job, 0, Track::kCompute), Contains("adamw optimizer"));
}

}  // namespace
}  // namespace trainyard::testing
