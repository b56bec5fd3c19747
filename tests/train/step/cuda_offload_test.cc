// Proves that a job whose optimizer state lies in the memory of a GPU's host trains to the bit as
// one whose state lies on the GPU: every optimizer, both forms of state, ZeRO, and layouts whose
// masters lie partly on the device. Catches copies and kernels that take the host's memory for the
// device's, and the other way round.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/call.h"
#include "tests/models/tiny.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

struct OffloadCase {
  std::string name;
  std::string family = "llama";
  PrecisionName precision = PrecisionName::kBF16;
  ParallelismConfig parallelism = {};
  int ranks = 1;
  const Optimizer* optimizer = &AdamWOptimizer();
  OptimizerState state = OptimizerState::kF32;
  bool lora = false;
};

JobConfig OffloadJob(const OffloadCase& c, const std::string& directory, bool offload) {
  JobConfig job = TinyJob(FreshDirectory(absl::StrCat("offload_", c.name, "_", directory)));
  auto& [family, fields] = *job.model.architecture;
  family = c.family;
  const ModelConfig& defaults = FindFamily(family)->defaults;
  if (FactsOf(defaults).experts) {
    fields["moe.experts"] = 4, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 8;
  }
  for (const auto& [field, value] : CaseOf(family).emulated) fields[field] = value;
  std::erase_if(fields, [&](const auto& field) { return !HasField(defaults, field.first); });
  if (c.lora) job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2}};
  job.parallelism = c.parallelism;
  job.precision = c.precision;
  job.optimizer.options = {*c.optimizer, {{"learning_rate", 1e-2}}};
  if (c.state == OptimizerState::kCompact) job.optimizer.options["state"] = double(c.state);
  job.optimizer.offload = offload;
  job.checkpoint->every_steps = 1;
  job.steps = 3;
  return job;
}

void ExpectAllCompleted(const std::vector<RankRun>& runs) {
  for (const RankRun& run : runs) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_EQ(run.thrown, "");
    ASSERT_EQ(run.result.outcome, Outcome::kCompleted) << run.result.message;
  }
}

std::vector<RankRun> Train(const JobConfig& job, const OffloadCase& c, const Backend& backend) {
  return RunJob(job, {.ranks = c.ranks, .backend = &backend});
}

class CudaOffload : public ::testing::TestWithParam<OffloadCase> {};

TEST_P(CudaOffload, TrainsToTheBitAsWithoutIt) {
  const OffloadCase& c = GetParam();
  const JobConfig with = OffloadJob(c, "with", true), without = OffloadJob(c, "without", false);
  const auto moved = Train(with, c, TestedBackend()), whole = Train(without, c, TestedBackend());
  ExpectAllCompleted(moved);
  ExpectAllCompleted(whole);
  for (size_t rank = 0; rank < moved.size(); ++rank) {
    for (size_t step = 0; step < moved[rank].records.size(); ++step) {
      const StepRecord &mine = moved[rank].records[step], &theirs = whole[rank].records[step];
      EXPECT_EQ(mine.loss, theirs.loss);
      EXPECT_EQ(mine.grad_norm, theirs.grad_norm);
      if (c.precision != PrecisionName::kF32) {
        EXPECT_LT(mine.memory_planned_bytes, theirs.memory_planned_bytes);
      }
    }
  }
  EXPECT_EQ(NewestDigest(with.checkpoint->directory), NewestDigest(without.checkpoint->directory));
}

std::vector<OffloadCase> OffloadCases() {
  const OptimizerState compact = OptimizerState::kCompact;
  return {{.name = "adamw"},
          {.name = "compact", .state = compact},
          {.name = "lion", .parallelism = {.tensor = 2}, .ranks = 2, .optimizer = &LionOptimizer()},
          {.name = "muon", .parallelism = {.tensor = 2}, .ranks = 4, .optimizer = &MuonOptimizer()},
          {.name = "f32", .precision = PrecisionName::kF32},
          {.name = "f32_zero_full",
           .precision = PrecisionName::kF32,
           .parallelism = {.zero = Zero::kFull},
           .ranks = 2},
          {.name = "zero", .parallelism = {.zero = Zero::kOptimizer}, .ranks = 2},
          {.name = "compact_zero_full",
           .parallelism = {.zero = Zero::kFull},
           .ranks = 2,
           .state = compact},
          {.name = "pipeline", .parallelism = {.pipeline = 2}, .ranks = 2},
          {.name = "experts",
           .family = "deepseek_v3",
           .parallelism = {.expert = 2, .zero = Zero::kOptimizer},
           .ranks = 2},
          {.name = "histories", .precision = PrecisionName::kFP8Delayed},
          {.name = "lora", .lora = true}};
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaOffload, ::testing::ValuesIn(OffloadCases()),
                         [](const auto& info) { return info.param.name; });

// A run may go on with its state in the other memory.
TEST(CudaOffloadResume, GoesOnToTheBitWithAndWithoutIt) {
  for (const OptimizerState state : {OptimizerState::kF32, OptimizerState::kCompact}) {
    const OffloadCase c = {.name = "resume", .state = state};
    const JobConfig whole = OffloadJob(c, "whole", false);
    ExpectAllCompleted(Train(whole, c, TestedBackend()));
    JobConfig parts = OffloadJob(c, "parts", true);
    const auto stop = [](int, int64_t finished) { return finished == 1; };
    const auto first = RunJob(parts, {.backend = &TestedBackend(), .stop = stop});
    ASSERT_EQ(first[0].result.outcome, Outcome::kStopped);
    parts.optimizer.offload = false;
    const auto second =
        RunJob(parts, {.backend = &TestedBackend(), .epoch = 2, .resume = true, .stop = stop});
    ASSERT_EQ(second[0].result.outcome, Outcome::kStopped);
    parts.optimizer.offload = true;
    ExpectAllCompleted(RunJob(parts, {.backend = &TestedBackend(), .epoch = 3, .resume = true}));
    EXPECT_EQ(NewestDigest(whole.checkpoint->directory), NewestDigest(parts.checkpoint->directory));
  }
}

// Before the first step, with the numbers and what to do.
TEST(CudaOffloadLimit, IsRefusedWhereTheHostHasLessMemory) {
  const OffloadCase c = {.name = "too_much"};
  const auto runs = RunJob(OffloadJob(c, "with", true),
                           {.backend = &TestedBackend(), .host_memory_bytes = 10'000});
  EXPECT_EQ(runs[0].status.code(), absl::StatusCode::kFailedPrecondition) << runs[0].status;
  EXPECT_NE(runs[0].status.message().find("memory of the host: wanted "), std::string::npos)
      << runs[0].status;
  EXPECT_TRUE(runs[0].records.empty());
  const auto on_device = RunJob(OffloadJob(c, "without", false),
                                {.backend = &TestedBackend(), .host_memory_bytes = 10'000});
  ExpectAllCompleted(on_device);
}

// A CPU rank has one memory.
TEST(CpuOffload, ChangesNothing) {
  const OffloadCase c = {.name = "cpu"};
  const JobConfig with = OffloadJob(c, "with", true), without = OffloadJob(c, "without", false);
  const auto moved = Train(with, c, CpuBackend()), whole = Train(without, c, CpuBackend());
  ExpectAllCompleted(moved);
  ExpectAllCompleted(whole);
  EXPECT_EQ(moved[0].records[0].memory_planned_bytes, whole[0].records[0].memory_planned_bytes);
  EXPECT_EQ(NewestDigest(with.checkpoint->directory), NewestDigest(without.checkpoint->directory));
}

}  // namespace
}  // namespace trainyard::testing
