#include "bench/side_by_side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>

#include "bench/step_case.h"
#include "kernels/cuda/cuda.h"
#include "models/arch/registry.h"
#include "models/program/op.h"
#include "tests/models/tiny.h"
#include "train/config/resolve_model.h"

namespace trainyard::bench {
namespace {

JobConfig TinyJob(const std::string& family, PrecisionName precision) {
  JobConfig job;
  GivenModel model = {family,
                      {{"layers", 1},
                       {"hidden", 64},
                       {"heads", 2},
                       {"head_dim", 32},
                       {"vocab", 96},
                       {"max_seq", 32}}};
  GivenFields& fields = model.fields;
  const ModelConfig& defaults = FindFamily(family)->defaults;
  if (FactsOf(defaults).experts) {
    fields["kv_heads"] = 1;
    fields["moe.experts"] = 4, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 32;
  } else {
    fields["ffn"] = 128;
  }
  for (const auto& [field, value] : testing::CaseOf(family).measured) fields[field] = value;
  std::erase_if(fields,
                [&](const auto& field) { return !testing::HasField(defaults, field.first); });
  job.batch = {.global = 2, .micro = 2, .sequence = 32};
  if (FactsOf(defaults).one_sequence) job.batch.sequence = 16;
  job.model.architecture = model;
  job.precision = precision;
  job.devices = 1;
  return job;
}

std::vector<ComparedOp> Compare(const JobConfig& job, const RankPlan& plan, const Backend& tested) {
  const StepState state =
      InitialState({.step = 1, .learning_rate = 1e-3, .clip_norm = 1, .tokens = 64, .seed = 3});
  return *RunSideBySide(
      plan, state, BatchOf(job, *CreateModel(*ResolveModel(job.model)), 1, 1).front(),
      {.reference = CpuBackend(), .tested = tested, .threads = 1, .timing = 1e-6});
}

RankPlan PlanOf(const JobConfig& job) {
  return *PlanRank(job, *ResolveModel(job.model), 0, DeviceKind::kCuda);
}

using Case = std::tuple<std::string, PrecisionName>;
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
                         ::testing::Combine(::testing::ValuesIn(FamilyNames()),
                                            ::testing::Values(PrecisionName::kBF16,
                                                              PrecisionName::kF32)));

INSTANTIATE_TEST_SUITE_P(EightBits, SideBySideTest,
                         ::testing::Combine(::testing::Values("llama"),
                                            ::testing::Values(PrecisionName::kFP8Delayed,
                                                              PrecisionName::kFP8Current,
                                                              PrecisionName::kFP8Blockwise,
                                                              PrecisionName::kFP8Rowwise)));

using Spoil = void (*)(std::span<float>);

// The emulated GPU, but what it reads back of a tensor of so many bytes is spoilt.
class WrongBackend final : public Backend {
 public:
  WrongBackend(size_t bytes, Spoil spoil)
      : Backend(**CudaBackend()), gpu_(**CudaBackend()), bytes_(bytes), spoil_(spoil) {}
  Exec NewExec(int threads) const override { return gpu_.NewExec(threads); }
  std::unique_ptr<Event> NewEvent() const override { return gpu_.NewEvent(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes) const override { return gpu_.Allocate(bytes); }
  size_t MemoryInUse() const override { return gpu_.MemoryInUse(); }
  void CopyToDevice(const Exec& exec, void* device, const void* host, size_t bytes) const override {
    gpu_.CopyToDevice(exec, device, host, bytes);
  }
  void CopyToHost(const Exec& exec, void* host, const void* device, size_t bytes) const override {
    gpu_.CopyToHost(exec, host, device, bytes);
    if (bytes == bytes_) spoil_({static_cast<float*>(host), bytes / sizeof(float)});
  }
  void Synchronize(const Exec& exec) const override { gpu_.Synchronize(exec); }

 private:
  const Backend& gpu_;
  const size_t bytes_;
  const Spoil spoil_;
};

// Gate and up of all tokens; a weight has as many.
constexpr size_t kGateAndUp = size_t{64} * 2 * 128 * sizeof(float);

std::vector<std::string> FailedWith(Spoil spoil, const std::string& where) {
  const JobConfig job = TinyJob("llama", PrecisionName::kF32);
  const RankPlan plan = PlanOf(job);
  std::vector<std::string> failed;
  for (const ComparedOp& op : Compare(job, plan, WrongBackend(kGateAndUp, spoil))) {
    if (!op.failed()) continue;
    failed.emplace_back(op.instance->op->name());
    EXPECT_THAT(op.where, ::testing::HasSubstr(where));
  }
  return failed;
}

// Who makes them and who reads them: an input must be as it was, too.
const auto kAllOfThem = ::testing::IsSupersetOf({"matmul", "swiglu", "swiglu_backward"});

TEST(SideBySide, AWrongResultIsNamed) {
  const Spoil doubled = [](std::span<float> values) {
    for (size_t i = 0; i < values.size(); i += 10) values[i] *= 2;
  };
  EXPECT_THAT(FailedWith(doubled, "] by 0."), kAllOfThem);
}

TEST(SideBySide, WhatIsNoNumberIsWrong) {
  const Spoil none = [](std::span<float> values) {
    values.back() = std::numeric_limits<float>::quiet_NaN();
  };
  EXPECT_THAT(FailedWith(none, "] by inf"), kAllOfThem);
}

// Little in the norm of all: a part of a row.
TEST(SideBySide, AFewWrongValuesAreWrong) {
  const Spoil few = [](std::span<float> values) {
    for (float& value : values.first(16)) value *= 1.05F;
  };
  EXPECT_THAT(FailedWith(few, "] by 0.0"), kAllOfThem);
}

}  // namespace
}  // namespace trainyard::bench
