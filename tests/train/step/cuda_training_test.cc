// Proves that a job trains on a GPU as on a CPU, step for step: every architecture, every axis,
// from initial values to the checkpoint, which either device then goes on from. Catches kernels
// that do not do as the CPU's, and whatever the engine leaves to chance because a CPU has done what
// it was given when the call returns.

#include <gmock/gmock.h>

#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "kernels/device/fault.h"
#include "models/arch/registry.h"
#include "tests/kernels/call.h"
#include "tests/models/tiny.h"
#include "tests/testing/npy.h"
#include "tests/train/step/run_job.h"
#include "train/data/arrays.h"

namespace trainyard::testing {
namespace {

struct Case {
  std::string name;
  std::string family = "llama";
  ParallelismConfig parallelism = {};
  int ranks = 1;
  const Optimizer* optimizer = &AdamWOptimizer();
};

// Forty images of two channels, 8 by 8, of three classes.
ArraysData Images() {
  constexpr int64_t kImages = 40;
  std::vector<float> latents;
  std::vector<int8_t> labels;
  for (int64_t n = 0; n < kImages; ++n) {
    labels.push_back(int8_t(n % 3));
    for (int64_t i = 0; i < 2 * 8 * 8; ++i) latents.push_back(std::sin(float(i * (1 + n % 3))));
  }
  const std::string directory = FreshDirectory("images");
  CHECK(MakeDirectories(directory).ok());
  const ArraysData data{.latents = directory + "/latents.npy",
                        .labels = directory + "/labels.npy",
                        .label_dropout = 0.2,
                        .validation_fraction = 0.25};
  CHECK(WriteFileAtomic(data.latents, Npy("<f4", {kImages, 2, 8, 8}, latents)).ok());
  CHECK(WriteFileAtomic(data.labels, Npy("|i1", {kImages}, labels)).ok());
  return data;
}

JobConfig JobOf(const Case& c, const std::string& directory, PrecisionName precision) {
  JobConfig job = TinyJob(FreshDirectory(absl::StrCat(c.name, "_", directory)));
  auto& [family, fields] = *job.model.architecture;
  family = c.family;
  const ModelConfig& defaults = FindFamily(family)->defaults;
  if (FactsOf(defaults).experts) {
    fields["moe.experts"] = 4, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 8;
    fields["moe.aux_loss"] = 0.01;
  }
  if (c.name == "expert") {  // Two sequences at once, each with a loss of its own.
    fields["moe.aux_loss_scope"] = "SEQUENCE";
    job.batch.micro = 2;
  }
  for (const auto& [field, value] : CaseOf(family).emulated) fields[field] = value;
  if (c.name == "nf4") {  // Whole blocks on each rank, of random bytes.
    fields["hidden"] = 64, fields["ffn"] = 128, fields["head_dim"] = 32;
    job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2, .base = LoraBase::kNf4}};
  }
  if (c.name == "nf4_experts") {
    fields["hidden"] = fields["moe.expert_ffn"] = 64, fields["head_dim"] = 32;
    job.adapter = AdapterConfig{.lora = LoraConfig{.rank = 2,
                                                   .targets = {"all-linear", "*.experts.*"},
                                                   .base = LoraBase::kNf4}};
  }
  std::erase_if(fields, [&](const auto& field) { return !HasField(defaults, field.first); });
  if (FactsOf(defaults).one_sequence) {
    job.batch.sequence = 16;
    job.data = Images();
  }
  job.parallelism = c.parallelism;
  job.precision = precision;
  job.optimizer.options = {*c.optimizer, {{"learning_rate", 1e-2}, {"epsilon", 1e-3}}};
  job.validation = ValidationConfig{.every_steps = 2, .batches = 1};
  job.steps = 3;
  return job;
}

void ExpectAllRan(const std::vector<RankRun>& runs) {
  for (const RankRun& run : runs) {
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_EQ(run.result.outcome, Outcome::kCompleted) << run.result.message;
  }
}

void ExpectSameSteps(const RankRun& gpu, const RankRun& cpu, double tolerance) {
  ASSERT_EQ(gpu.records.size(), cpu.records.size());
  for (size_t i = 0; i < gpu.records.size(); ++i) {
    const StepRecord &mine = gpu.records[i], &theirs = cpu.records[i];
    EXPECT_NEAR(mine.loss, theirs.loss, tolerance * std::abs(theirs.loss)) << mine.step;
    EXPECT_NEAR(mine.grad_norm, theirs.grad_norm, tolerance * theirs.grad_norm) << mine.step;
    ASSERT_EQ(mine.validation_loss.has_value(), theirs.validation_loss.has_value());
    if (mine.validation_loss) {
      EXPECT_NEAR(*mine.validation_loss, *theirs.validation_loss, tolerance) << mine.step;
    }
  }
}

class CudaTraining : public ::testing::TestWithParam<Case> {};

TEST_P(CudaTraining, StepsAndCheckpointAreTheCpus) {
  const Case& c = GetParam();
  const JobConfig on_gpu = JobOf(c, "gpu", PrecisionName::kF64);
  const JobConfig on_cpu = JobOf(c, "cpu", PrecisionName::kF64);
  const auto gpu = RunJob(on_gpu, {.ranks = c.ranks, .backend = &TestedBackend()});
  const auto cpu = RunJob(on_cpu, {.ranks = c.ranks});
  ExpectAllRan(gpu);
  ExpectAllRan(cpu);
  for (size_t i = 0; i < gpu.size(); ++i) ExpectSameSteps(gpu[i], cpu[i], 1e-11);
  EXPECT_LT(
      LargestDifference(Newest(on_gpu.checkpoint->directory), Newest(on_cpu.checkpoint->directory)),
      1e-10);
}

class CudaTrainingRounded : public CudaTraining {};

TEST_P(CudaTrainingRounded, StepsAreTheCpusAsFarAsRoundingLets) {
  const Case& c = GetParam();
  for (const auto& [precision, tolerance] :
       {std::pair(PrecisionName::kF32, 1e-4), std::pair(PrecisionName::kBF16, 0.05)}) {
    const auto job_of = [&](const std::string& directory) {
      JobConfig job = JobOf(c, directory, precision);
      // Emulated experts are slow. Each rank has two micro-batches or more, and the second step
      // reads what the first has updated.
      job.batch.global = 4;
      job.steps = 2;
      return job;
    };
    const auto gpu = RunJob(job_of("rounded_gpu"), {.ranks = c.ranks, .backend = &TestedBackend()});
    const auto cpu = RunJob(job_of("rounded_cpu"), {.ranks = c.ranks});
    ExpectAllRan(gpu);
    ExpectAllRan(cpu);
    ExpectSameSteps(gpu[0], cpu[0], tolerance);
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {.name = "dit_tensor", .family = "dit", .parallelism = {.tensor = 2}, .ranks = 2},
      {.name = "tensor", .parallelism = {.tensor = 2}, .ranks = 2},
      {.name = "pipeline", .parallelism = {.pipeline = 2}, .ranks = 2},
      {.name = "context", .parallelism = {.context = 2}, .ranks = 2},
      {.name = "dropout", .family = "gpt3", .parallelism = {.context = 2}, .ranks = 2},
      {.name = "zero_full", .parallelism = {.zero = Zero::kFull}, .ranks = 2},
      {.name = "nf4", .parallelism = {.tensor = 2}, .ranks = 2},
      {.name = "nf4_experts", .family = "qwen3_moe", .parallelism = {.expert = 2}, .ranks = 2},
      {.name = "expert", .family = "qwen3_moe", .parallelism = {.expert = 2}, .ranks = 2},
      {.name = "muon", .parallelism = {.tensor = 2}, .ranks = 4, .optimizer = &MuonOptimizer()}};
  for (const std::string& family : FamilyNames()) {
    cases.push_back({.name = family, .family = family});
  }
  return cases;
}

// The ops of mixtral are those of qwen3_moe, and emulated experts are slow.
std::vector<Case> RoundedCases() {
  std::vector<Case> cases = Cases();
  std::erase_if(cases, [](const Case& c) { return c.family == "mixtral"; });
  return cases;
}

const auto kNameOf = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Cases, CudaTraining, ::testing::ValuesIn(Cases()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Cases, CudaTrainingRounded, ::testing::ValuesIn(RoundedCases()), kNameOf);

struct InEightBits {
  std::string name;
  ParallelismConfig parallelism = {};
  int ranks = 1;
};

class CudaTrainingInEightBits
    : public ::testing::TestWithParam<std::tuple<PrecisionName, InEightBits>> {};

// All dims are multiples of 16, so that the products are cuBLASLt's.
TEST_P(CudaTrainingInEightBits, StepsAreTheCpusAsFarAsRoundingLets) {
  const auto& [precision, c] = GetParam();
  const auto job_of = [&](const std::string& directory) {
    JobConfig job =
        JobOf({.name = absl::StrCat(c.name, Name(precision)), .parallelism = c.parallelism},
              directory, precision);
    auto& fields = job.model.architecture->fields;
    fields["hidden"] = fields["ffn"] = 64;
    fields["head_dim"] = 16;
    fields["kv_heads"] = 4;
    fields["max_seq"] = job.batch.sequence = 64;
    job.batch.global = 4;
    job.steps = 2;  // The second reads what the first has noted of greatest values.
    return job;
  };
  ::testing::internal::CaptureStderr();
  const auto gpu = RunJob(job_of("gpu"), {.ranks = c.ranks, .backend = &TestedBackend()});
  const std::string log = ::testing::internal::GetCapturedStderr();
  const auto cpu = RunJob(job_of("cpu"), {.ranks = c.ranks});
  EXPECT_THAT(log, ::testing::Not(::testing::HasSubstr("scaled_matmul_without_cublaslt")));
  ExpectAllRan(gpu);
  ExpectAllRan(cpu);
  for (size_t i = 0; i < gpu.size(); ++i) ExpectSameSteps(gpu[i], cpu[i], 0.05);
}

std::string NameOf(const ::testing::TestParamInfo<CudaTrainingInEightBits::ParamType>& info) {
  return absl::StrCat(Name(std::get<0>(info.param)), "_", std::get<1>(info.param).name);
}
INSTANTIATE_TEST_SUITE_P(
    Recipes, CudaTrainingInEightBits,
    ::testing::Combine(
        ::testing::Values(PrecisionName::kFP8Delayed, PrecisionName::kFP8Current,
                          PrecisionName::kFP8Rowwise),
        ::testing::Values(InEightBits{"alone"}, InEightBits{"tensor", {.tensor = 2}, 2},
                          InEightBits{"context", {.context = 2}, 2},
                          InEightBits{"pipeline", {.pipeline = 2}, 2},
                          InEightBits{"zero", {.tensor = 2, .zero = Zero::kFull}, 4})),
    NameOf);
// A rank has whole blocks of the tokens and weights.
INSTANTIATE_TEST_SUITE_P(
    Blocks, CudaTrainingInEightBits,
    ::testing::Combine(::testing::Values(PrecisionName::kFP8Blockwise),
                       ::testing::Values(InEightBits{"alone"},
                                         InEightBits{"pipeline", {.pipeline = 2}, 2},
                                         InEightBits{"zero", {.zero = Zero::kFull}, 2})),
    NameOf);

// Experts are rounded by kernels of ours, with histories of their own or scales of lines.
class CudaTrainingExpertsInEightBits : public ::testing::TestWithParam<PrecisionName> {};

TEST_P(CudaTrainingExpertsInEightBits, StepsAreTheCpusAsFarAsRoundingLets) {
  for (const ParallelismConfig& parallelism :
       {ParallelismConfig{}, ParallelismConfig{.expert = 2, .zero = Zero::kFull}}) {
    const int ranks = int(parallelism.expert);
    const auto job_of = [&](const std::string& directory) {
      JobConfig job =
          JobOf({.name = "experts_8bits", .family = "qwen3_moe", .parallelism = parallelism},
                directory, GetParam());
      auto& fields = job.model.architecture->fields;
      fields["hidden"] = 64;
      fields["head_dim"] = 16;
      fields["kv_heads"] = 4;
      fields["moe.expert_ffn"] = 16;
      fields["max_seq"] = job.batch.sequence = 32;
      job.batch.global = 4;
      job.steps = 2;  // The second reads what the first has noted of greatest values.
      return job;
    };
    const auto gpu = RunJob(job_of("gpu"), {.ranks = ranks, .backend = &TestedBackend()});
    const auto cpu = RunJob(job_of("cpu"), {.ranks = ranks});
    ExpectAllRan(gpu);
    ExpectAllRan(cpu);
    for (size_t i = 0; i < gpu.size(); ++i) ExpectSameSteps(gpu[i], cpu[i], 0.05);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaTrainingExpertsInEightBits,
                         ::testing::Values(PrecisionName::kFP8Delayed, PrecisionName::kFP8Rowwise),
                         [](const auto& info) { return std::string(Name(info.param)); });

// In the third step, after the first forward of the first stage, graphs have been launched.
TEST(CudaTrainingErrors, NameTheGraphThatWasLaunchedLast) {
  const Case c = {.name = "error", .parallelism = {.pipeline = 2}, .ranks = 2};
  int64_t calls = -2;  // Before the first action of a step.
  const auto runs = RunJob(JobOf(c, "graph", PrecisionName::kF64),
                           {.ranks = 2,
                            .backend = &TestedBackend(),
                            .progress = [&](int rank, const char*, int64_t step) {
                              if (rank != 0 || step != 3 || ++calls != 1) return;
                              Exec exec;
                              CpuBackend().kernel<FaultArgs>()(exec, {});
                            }});
  EXPECT_THAT(runs[0].thrown, ::testing::ContainsRegex(
                                  "; rank 0 of 2, at or before a graph of [0-9]+ ops, to forward "
                                  "block [0-9]+ .*f64\\[[0-9]+"));
}

// To the bit, and across a resume: a run in two parts is a run in one.
TEST(CudaTrainingResume, IsExactToTheBit) {
  for (const OptimizerState state : {OptimizerState::kF32, OptimizerState::kCompact}) {
    const Case c = {.name = "resume"};
    JobConfig whole = JobOf(c, "whole", PrecisionName::kBF16);
    JobConfig parts = JobOf(c, "parts", PrecisionName::kBF16);
    whole.optimizer.options["state"] = parts.optimizer.options["state"] = double(state);
    parts.checkpoint->every_steps = 1;
    ExpectAllRan(RunJob(whole, {.backend = &TestedBackend()}));
    const auto first = RunJob(parts, {.backend = &TestedBackend(),
                                      .stop = [](int, int64_t finished) { return finished == 2; }});
    ASSERT_EQ(first[0].result.outcome, Outcome::kStopped);
    ExpectAllRan(RunJob(parts, {.backend = &TestedBackend(), .epoch = 2, .resume = true}));
    EXPECT_EQ(NewestDigest(whole.checkpoint->directory), NewestDigest(parts.checkpoint->directory));
  }
}

}  // namespace
}  // namespace trainyard::testing
