// Proves that a plan beyond its device's memory is refused with sizes in one unit and with the
// fields that can make it fit, and that such a job fails on all ranks without a trace.

#include "train/step/memory_limit.h"

#include <gmock/gmock.h>

#include "models/arch/decoder_config.h"
#include "tests/train/step/run_job.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using testing::FreshDirectory;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RankRun;
using testing::RunJob;
using testing::TinyJob;

constexpr size_t kGiB = size_t{1} << 30;

MemoryPlan Plan(size_t parameters, size_t activations) {
  MemoryPlan plan;
  plan.flat_bytes[0] = parameters;
  plan.scratch_bytes = activations;
  return plan;
}

ModelConfig Dense() { return {"llama", DecoderConfig{.layers = 4}}; }

// 8 GiB of it are for a plan.
constexpr DeviceMemory kGpu{.kind = DeviceKind::kCuda, .bytes = 11 * kGiB};

std::string Refusal(const MemoryPlan& plan, const JobConfig& job, const ModelConfig& model) {
  const absl::Status status = CheckMemory(plan, kGpu, job, model);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(status.message());
}

TEST(CheckMemory, SaysWhatWasWantedForWhatAndFound) {
  EXPECT_TRUE(CheckMemory(Plan(7 * kGiB, kGiB), kGpu, {}, Dense()).ok());
  EXPECT_THAT(Refusal(Plan(7 * kGiB, kGiB + 1), {}, Dense()),
              HasSubstr("memory: wanted 8.00 GiB (parameters, gradients and optimizer state "
                        "7.00 GiB, activations 1.00 GiB), found 8.00 GiB for it, of the 11.0 GiB "
                        "on the rank's device"));
}

TEST(DeviceMemory, KeepsSomeForWhatIsNotPlanned) {
  constexpr DeviceMemory kCpu{.bytes = 100 * kGiB}, kSmallGpu{DeviceKind::kCuda, 2 * kGiB};
  EXPECT_EQ(kGpu.for_plan(), 8 * kGiB);
  EXPECT_EQ(kSmallGpu.for_plan(), 0);
  EXPECT_EQ(kCpu.for_plan(), 96 * kGiB);
}

TEST(CheckMemory, NamesOnlyTheFieldsThatCanMakeItFit) {
  const ModelConfig model("qwen3_moe", DecoderConfig{.layers = 4, .moe = MoeConfig()});
  JobConfig job;
  job.batch.micro = 4;
  const auto for_activations =
      AllOf(HasSubstr("batch.micro less than 4"), HasSubstr("recompute.blocks more than 0"),
            HasSubstr("parallelism.context more than 1"));
  const auto for_parameters =
      AllOf(HasSubstr("parallelism.pipeline more than 1"),
            HasSubstr("parallelism.expert more than 1"), HasSubstr("zero FULL"));
  const auto for_both = HasSubstr("parallelism.tensor more than 1");
  EXPECT_THAT(Refusal(Plan(6 * kGiB, 6 * kGiB), job, model),
              AllOf(for_activations, for_both, for_parameters));
  EXPECT_THAT(Refusal(Plan(9 * kGiB, 9 * kGiB), job, model),
              AllOf(for_activations, for_both, for_parameters));
  EXPECT_THAT(Refusal(Plan(kGiB, 9 * kGiB), job, model),
              AllOf(for_activations, for_both, Not(HasSubstr("pipeline")), Not(HasSubstr("FULL"))));
  EXPECT_THAT(
      Refusal(Plan(9 * kGiB, kGiB), job, model),
      AllOf(Not(HasSubstr("batch")), Not(HasSubstr("recompute")), for_both, for_parameters));
}

TEST(CheckMemory, NamesDeterminismWhereItCostsMemory) {
  MemoryPlan plan = Plan(7 * kGiB, kGiB);
  JobConfig job;
  plan.workspace_bytes = kGiB;
  EXPECT_THAT(Refusal(plan, job, Dense()),
              HasSubstr("less is wanted with deterministic false, or"));
  plan.workspace_bytes = 512;  // Above a limit, attention in one order keeps nothing.
  EXPECT_THAT(Refusal(plan, job, Dense()), Not(HasSubstr("deterministic")));
  plan.workspace_bytes = kGiB;
  job.deterministic = false;
  EXPECT_THAT(Refusal(plan, job, Dense()), Not(HasSubstr("deterministic")));
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), {}, Dense()), Not(HasSubstr("deterministic")));
}

TEST(CheckMemory, NamesCompactStateWhereTheJobCanHaveIt) {
  const auto compact = HasSubstr("optimizer.adamw.state COMPACT");
  JobConfig job;
  job.precision = PrecisionName::kBF16;
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), job, Dense()), compact);
  EXPECT_THAT(Refusal(Plan(kGiB, 9 * kGiB), job, Dense()), Not(compact));
  job.optimizer.options =
      OptimizerOptions(AdamWOptimizer(), {{"state", double(OptimizerState::kCompact)}});
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), job, Dense()), Not(compact));
  job.optimizer.options = OptimizerOptions(LionOptimizer());
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), job, Dense()), Not(HasSubstr("COMPACT")));
  job.optimizer.options = OptimizerOptions(AdamWOptimizer());
  job.precision = PrecisionName::kF32;
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), job, Dense()), Not(compact));
}

TEST(CheckMemory, NamesOffloadWhereTheJobCanHaveIt) {
  const auto offload = HasSubstr("optimizer.offload true");
  JobConfig job;
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), job, Dense()), offload);
  EXPECT_THAT(Refusal(Plan(kGiB, 9 * kGiB), job, Dense()), Not(offload));
  const DeviceMemory cpu{.bytes = 8 * kGiB};
  EXPECT_THAT(std::string(CheckMemory(Plan(9 * kGiB, kGiB), cpu, job, Dense()).message()),
              Not(offload));
  job.optimizer.offload = true;
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), job, Dense()), Not(offload));
  job.optimizer.offload = false;
  job.adapter = AdapterConfig{.lora = LoraConfig{.base = LoraBase::kNf4}};
  EXPECT_THAT(Refusal(Plan(9 * kGiB, kGiB), job, Dense()), Not(offload));
}

TEST(CheckHostMemory, SaysWhatWasWantedForWhatAndFound) {
  MemoryPlan plan = Plan(kGiB, kGiB);
  JobConfig job;
  job.precision = PrecisionName::kBF16;
  plan.host_bytes[0] = 5 * kGiB;
  plan.host_bytes[1] = 4 * kGiB;
  EXPECT_TRUE(CheckHostMemory(plan, 10 * kGiB, job).ok());
  ++plan.host_bytes[1];
  const absl::Status status = CheckHostMemory(plan, 10 * kGiB, job);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("memory of the host: wanted 9.00 GiB for the optimizer's state, which "
                        "optimizer.offload keeps there, found 9.00 GiB for it, of the 10.0 GiB "
                        "that are the rank's part of its machine; less is wanted with "
                        "optimizer.adamw.state COMPACT, or more devices, or "));
}

TEST(CheckMemory, NamesNoFieldThatIsAtItsLimit) {
  const ModelConfig dense = Dense();
  JobConfig job;
  job.batch.micro = 1;
  job.recompute.blocks = 2;
  job.parallelism.pipeline = 2;
  job.parallelism.zero = Zero::kFull;
  EXPECT_THAT(Refusal(Plan(6 * kGiB, 6 * kGiB), job, dense),
              AllOf(Not(HasSubstr("batch.micro")), Not(HasSubstr("recompute")),
                    Not(HasSubstr("expert")), Not(HasSubstr("FULL"))));
}

TEST(MemoryLimit, OfOneRankFailsTheJobOnAllBeforeItClaimsItsDirectory) {
  const std::string directory = FreshDirectory("memory_limit");
  const auto memory = [](int rank) { return rank == 1 ? 1000 : int64_t(kGiB); };
  for (const RankRun& run : RunJob(TinyJob(directory), {.ranks = 2, .memory_bytes = memory})) {
    EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition) << run.status;
    EXPECT_THAT(std::string(run.status.message()), HasSubstr("of the 1000 B on"));
  }
  EXPECT_FALSE(Exists(directory));
}

}  // namespace
}  // namespace trainyard
