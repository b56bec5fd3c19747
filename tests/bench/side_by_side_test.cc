#include "bench/side_by_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "bench/step_case.h"
#include "kernels/cuda/cuda.h"
#include "models/program/op.h"
#include "train/config/resolve_model.h"

namespace trainyard::bench {
namespace {

JobConfig TinyJob(const std::string& family, PrecisionName precision) {
  JobConfig job;
  ModelFields model{.family = family,
                    .layers = 1,
                    .hidden = 64,
                    .heads = 2,
                    .head_dim = 32,
                    .vocab = 96,
                    .max_seq = 32};
  if (family == "qwen3_moe") {
    model.kv_heads = 1;
    model.moe = MoeFields{.experts = 4, .top_k = 2, .expert_ffn = 32};
  } else {
    model.ffn = 128;
  }
  job.model.architecture = model;
  job.precision = precision;
  job.batch = {.global = 2, .micro = 2, .sequence = 32};
  job.devices = 1;
  return job;
}

std::vector<ComparedOp> Compare(const JobConfig& job, const RankPlan& plan, const Backend& tested) {
  const StepState state =
      InitialState({.step = 1, .learning_rate = 1e-3, .clip_norm = 1, .tokens = 64, .seed = 3});
  return *RunSideBySide(
      plan, state, BatchOf(job, 96, 1).front(),
      {.reference = CpuBackend(), .tested = tested, .threads = 1, .timing = 1e-6});
}

RankPlan PlanOf(const JobConfig& job) {
  return *PlanRank(job, *ResolveModel(job.model), 0, DeviceKind::kCuda);
}

using Case = std::tuple<const char*, PrecisionName>;
class SideBySideTest : public ::testing::TestWithParam<Case> {};

TEST_P(SideBySideTest, EveryOpOfTheCudaBackendAgrees) {
  const auto [family, precision] = GetParam();
  const JobConfig job = TinyJob(family, precision);
  const RankPlan plan = PlanOf(job);
  const std::vector<ComparedOp> ops = Compare(job, plan, **CudaBackend());
  EXPECT_GT(ops.size(), 40u);
  for (const ComparedOp& op : ops) {
    EXPECT_FALSE(op.failed()) << op.instance->op->name() << ": " << op.where;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SideBySideTest,
                         ::testing::Combine(::testing::Values("llama", "gpt3", "qwen3_moe"),
                                            ::testing::Values(PrecisionName::kBF16,
                                                              PrecisionName::kF32)));

// The CPU, but what it reads back of a tensor of so many bytes has one value in ten doubled.
class WrongBackend final : public Backend {
 public:
  explicit WrongBackend(size_t bytes) : Backend(CpuBackend()), bytes_(bytes) {}
  Exec NewExec(int threads) const override { return CpuBackend().NewExec(threads); }
  std::unique_ptr<Event> NewEvent() const override { return CpuBackend().NewEvent(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes) const override {
    return CpuBackend().Allocate(bytes);
  }
  size_t MemoryInUse() const override { return CpuBackend().MemoryInUse(); }
  void CopyToDevice(const Exec&, void* device, const void* host, size_t bytes) const override {
    std::memcpy(device, host, bytes);
  }
  void CopyToHost(const Exec&, void* host, const void* device, size_t bytes) const override {
    std::memcpy(host, device, bytes);
    if (bytes != bytes_) return;
    float* const values = static_cast<float*>(host);
    for (size_t i = 0; i < bytes / sizeof(float); i += 10) values[i] *= 2;
  }
  void Synchronize(const Exec&) const override {}

 private:
  const size_t bytes_;
};

TEST(SideBySide, AWrongResultIsNamed) {
  const JobConfig job = TinyJob("llama", PrecisionName::kF32);
  const RankPlan plan = PlanOf(job);
  const WrongBackend wrong(size_t{64} * 2 * 128 * sizeof(float));  // Gate and up of all tokens.
  std::vector<std::string> failed;
  for (const ComparedOp& op : Compare(job, plan, wrong)) {
    if (!op.failed()) continue;
    failed.emplace_back(op.instance->op->name());
    EXPECT_THAT(op.where, ::testing::HasSubstr("f32[64, 256] by 0."));
  }
  // Who makes them and who reads them: an input must be as it was, too.
  EXPECT_THAT(failed, ::testing::IsSupersetOf({"matmul", "swiglu", "swiglu_backward"}));
}

}  // namespace
}  // namespace trainyard::bench
