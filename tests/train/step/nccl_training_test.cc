// Proves that a job whose GPUs are connected by NCCL trains as one on CPUs, however its streams run
// beside each other, without connecting any ranks within a step, and that what a step leaves behind
// that lost a peer is no record and no checkpoint.

#include <gmock/gmock.h>

#include <future>
#include <string>
#include <vector>

#include "kernels/collective/nccl.h"
#include "kernels/cuda/failure_text.h"
#include "tests/kernels/call.h"
#include "tests/kernels/collective/rendezvous_fakes.h"
#include "tests/testing/cuda_emulation/nccl.h"
#include "tests/testing/cuda_emulation/streams.h"
#include "tests/train/step/run_job.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

RunOptions Nccl(int ranks, Rendezvous& rendezvous, absl::Duration timeout = absl::Minutes(5)) {
  const auto world = [ranks, &rendezvous, timeout](int rank) {
    return CreateNcclWorld({.rank = rank,
                            .size = ranks,
                            .device = rank,
                            .timeout = timeout,
                            .with_failure = cuda::WithFailure},
                           rendezvous);
  };
  return {.ranks = ranks, .backend = &TestedBackend(), .tensors = world};
}

struct NcclCase {
  std::string name;
  ParallelismConfig parallelism;
  int ranks = 2;
  const Optimizer* optimizer = &AdamWOptimizer();
};

JobConfig JobOf(const ParallelismConfig& parallelism, const std::string& directory,
                const Optimizer& optimizer = AdamWOptimizer()) {
  JobConfig job = TinyJob(FreshDirectory("nccl_" + directory));
  job.parallelism = parallelism;
  job.optimizer.options = {optimizer, {{"learning_rate", 1e-2}, {"epsilon", 1e-3}}};
  job.validation = ValidationConfig{.every_steps = 2, .batches = 1};
  job.steps = 3;
  return job;
}

class NcclTraining : public ::testing::TestWithParam<NcclCase> {};

TEST_P(NcclTraining, StepsAndCheckpointAreTheCpus) {
  const auto& [name, parallelism, ranks, optimizer] = GetParam();
  const JobConfig on_cpu = JobOf(parallelism, name + "_cpu", *optimizer);
  const auto cpu = RunJob(on_cpu, {.ranks = ranks});
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late ? "late" : "at once");
    std::optional<cuda_emulation::Late> streams_are_late;
    if (late) streams_are_late.emplace();
    const JobConfig on_gpu = JobOf(parallelism, name + "_gpu", *optimizer);
    MemoryRendezvous rendezvous;
    const auto gpu = RunJob(on_gpu, Nccl(ranks, rendezvous));
    for (size_t rank = 0; rank < gpu.size(); ++rank) {
      ASSERT_TRUE(gpu[rank].status.ok()) << gpu[rank].status;
      ASSERT_EQ(gpu[rank].records.size(), 3u);
      for (size_t i = 0; i < 3; ++i) {
        const StepRecord &mine = gpu[rank].records[i], &theirs = cpu[rank].records[i];
        EXPECT_NEAR(mine.loss, theirs.loss, 1e-11 * theirs.loss);
        EXPECT_NEAR(mine.grad_norm, theirs.grad_norm, 1e-11 * theirs.grad_norm);
      }
    }
    EXPECT_LT(LargestDifference(Newest(on_gpu.checkpoint->directory),
                                Newest(on_cpu.checkpoint->directory)),
              1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, NcclTraining,
    ::testing::Values(NcclCase{"zero_full", {.zero = Zero::kFull}},
                      NcclCase{"tensor", {.tensor = 2}}, NcclCase{"pipeline", {.pipeline = 2}},
                      NcclCase{"rings", {.pipeline = 2, .context = 2}, 4},
                      NcclCase{"muon", {.tensor = 2, .zero = Zero::kFull}, 4, &MuonOptimizer()}),
    [](const auto& info) { return info.param.name; });

// Rank 1 leaves the second step to rank 0, which has a record and a checkpoint of the first alone.
void ExpectNothingOfTheSecondStep(const RunOptions& options, const std::string& why) {
  JobConfig job = JobOf({.tensor = 2}, "lost");
  job.validation.reset();
  job.checkpoint->every_steps = 1;
  const auto runs = RunJob(job, options);
  EXPECT_EQ(runs[0].records.size(), 1u);
  EXPECT_EQ(Newest(job.checkpoint->directory).state().step, 1);
  EXPECT_THAT(runs[0].thrown, HasSubstr(" of group tensor of 0, rank 0 of 2 (world rank 0): "));
  EXPECT_THAT(runs[0].thrown, HasSubstr(why));
}

TEST(NcclTrainingLoss, OfAPeerThatNeverComesEndsTheStep) {
  MemoryRendezvous rendezvous;
  nccl_emulation::TellPeers(false);
  std::promise<void> over;
  RunOptions options = Nccl(2, rendezvous, absl::Seconds(3));
  options.before_attempt = [&](int rank, int64_t step, int, StepState&) {
    if (rank == 1 && step == 2) over.get_future().wait();
  };
  options.ended = [&](int rank) {
    if (rank == 0) over.set_value();
  };
  ExpectNothingOfTheSecondStep(options, "no word from all ranks within 3s");
  nccl_emulation::TellPeers(true);
}

TEST(NcclTrainingLoss, OfAPeerThatDiesEndsTheStep) {
  MemoryRendezvous rendezvous;
  RunOptions options = Nccl(2, rendezvous);
  options.before_attempt = [&](int rank, int64_t step, int, StepState&) {
    if (rank == 1 && step == 2) throw DeviceError(DeviceError::Kind::kDevice, "dies");
  };
  ExpectNothingOfTheSecondStep(options, "NCCL: remote process exited");
}

}  // namespace
}  // namespace trainyard::testing
