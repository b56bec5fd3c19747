// Proves which state of the optimizer lies in the memory of a device's host, that everything which
// forward, backward and collectives use lies on the device, and that a step computes the same bits
// with both. Catches: masters in the host's memory that forward reads; state that is counted or
// allocated in the wrong one of the two; costs that count it in the wrong one.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/program/memory.h"
#include "models/program/optimizer/optimizer.h"
#include "tests/models/tiny.h"
#include "tests/testing/guarded_backend.h"

namespace trainyard::testing {
namespace {

// A CPU that has two memories, and knows which of them an address is in.
class TwoMemories final : public GuardedBackend {
 public:
  absl::StatusOr<Buffer> Allocate(size_t bytes) const override { return Note(bytes, device_); }
  absl::StatusOr<Buffer> AllocateOnHost(size_t bytes) const override { return Note(bytes, host_); }

  bool OnDevice(const Tensor& tensor) const { return Has(device_, tensor); }
  bool OnHost(const Tensor& tensor) const { return Has(host_, tensor); }
  size_t host_bytes() const {
    size_t bytes = 0;
    for (const auto& [begin, size] : host_) bytes += size;
    return bytes;
  }

 private:
  using Areas = std::vector<std::pair<const std::byte*, size_t>>;
  absl::StatusOr<Buffer> Note(size_t bytes, Areas& areas) const {
    absl::StatusOr<Buffer> buffer = GuardedBackend::Allocate(bytes);
    if (buffer.ok()) areas.emplace_back(buffer->data(), bytes);
    return buffer;
  }
  static bool Has(const Areas& areas, const Tensor& tensor) {
    const auto* const data = static_cast<const std::byte*>(tensor.data);
    return std::any_of(areas.begin(), areas.end(), [&](const auto& area) {
      return data >= area.first && data + tensor.bytes() <= area.first + area.second;
    });
  }

  mutable Areas device_, host_;
};

struct Case {
  std::string name;
  ModelConfig config = TinyLlama();
  Precision precision = Precision::BF16();
  const Optimizer* optimizer = &AdamWOptimizer();
  Zero zero = Zero::kNone;
  int ranks = 1;
};

std::vector<Case> Cases() {
  const ModelConfig experts = TinyOf("deepseek_v3");
  const Precision compact = Precision::BF16().WithCompactState();
  return {{.name = "adamw"},
          {.name = "lion", .optimizer = &LionOptimizer()},
          {.name = "muon", .optimizer = &MuonOptimizer()},
          {.name = "compact", .precision = compact},
          {.name = "without_rounding", .precision = Precision::F32()},
          {.name = "experts", .config = experts},
          {.name = "compact_experts", .config = experts, .precision = compact},
          {.name = "experts_zero", .config = experts, .zero = Zero::kOptimizer, .ranks = 2},
          {.name = "zero_full", .zero = Zero::kFull, .ranks = 2},
          {.name = "without_rounding_zero_full",
           .precision = Precision::F32(),
           .zero = Zero::kFull,
           .ranks = 2}};
}

Program Record(const Case& c, bool offload) {
  OptimizerOptions options(*c.optimizer);
  if (c.precision.split_masters) options["state"] = double(OptimizerState::kCompact);
  return RecordTraining(*CreateModel(c.config), {.record = {.precision = c.precision,
                                                            .micro_batch = 2,
                                                            .sequence = 4,
                                                            .mesh = {.data = c.ranks}},
                                                 .optimizer = options,
                                                 .zero = c.zero,
                                                 .offload = offload});
}

class Offload : public ::testing::TestWithParam<Case> {};

TEST_P(Offload, MovesWhatOnlyTheOptimizerReads) {
  const Case& c = GetParam();
  const Program program = Record(c, true);
  const MemoryPlan plan = PlanMemory(program);
  const TwoMemories backend;
  const auto memory = ProgramMemory::Allocate(program, plan, backend);
  ASSERT_TRUE(memory.ok()) << memory.status();
  size_t on_host = 0;
  for (const Bucket& bucket : program.buckets) {
    const bool split = c.precision.split_masters && bucket.copied;
    const auto expect = [&](FlatBuffer buffer, bool host) {
      if (!program.place(buffer).Find(bucket.shard)) return;
      const Tensor tensor = memory->flat(buffer, bucket.shard);
      EXPECT_TRUE(host ? backend.OnHost(tensor) : backend.OnDevice(tensor)) << int(buffer);
      on_host += host ? tensor.bytes() : 0;
    };
    EXPECT_EQ(bucket.copied, !bucket.unrounded);
    expect(FlatBuffer::kFirstMoment, true);
    expect(FlatBuffer::kSecondMoment, true);
    expect(FlatBuffer::kMaster, bucket.copied);
    EXPECT_EQ(program.place(FlatBuffer::kRemainder).Find(bucket.shard).has_value(), split);
    expect(FlatBuffer::kRemainder, true);
    EXPECT_TRUE(backend.OnDevice(memory->flat(FlatBuffer::kGradient, bucket.own)));
  }
  for (const ParameterStorage& storage : program.storages) {
    EXPECT_TRUE(backend.OnDevice(memory->weight(storage.flat)));
  }
  // What some states lack, as Muon's matrices a second moment, has no whole shard.
  if (c.optimizer->matrices == nullptr) {
    EXPECT_EQ(plan.host_total_bytes(), on_host);
  }
  EXPECT_EQ(plan.host_total_bytes(), backend.host_bytes());
}

// Both memories together have as many bytes as one had, but for the copy that forward reads.
TEST_P(Offload, CountsEachByteOnce) {
  const Case& c = GetParam();
  const Program with = Record(c, true), without = Record(c, false);
  const MemoryPlan moved = PlanMemory(with), whole = PlanMemory(without);
  EXPECT_EQ(whole.host_total_bytes(), 0u);
  EXPECT_GT(moved.host_total_bytes(), 0u);
  const size_t copy = with.BytesOf(FlatBuffer::kCompute) - without.BytesOf(FlatBuffer::kCompute);
  EXPECT_EQ(moved.total_bytes() + moved.host_total_bytes(), whole.total_bytes() + copy);
  EXPECT_EQ(copy > 0, c.precision.weight == c.precision.master);
  const Cost cost = with.CostOf(List::kOptimizer), before = without.CostOf(List::kOptimizer);
  EXPECT_EQ(before.host_bytes, 0);
  if (c.precision.weight != c.precision.master) {
    EXPECT_EQ(cost.bytes + 2 * cost.host_bytes, before.bytes);
  }
  // Padding may be updated with the range before it. Biases that balance experts have masters
  // without a copy, and no gradient moves their moments.
  size_t without_padding = 0;
  for (const ParameterBox& box : with.OwnedParameters()) {
    for (const FlatBuffer buffer : {FlatBuffer::kMaster, FlatBuffer::kRemainder,
                                    FlatBuffer::kFirstMoment, FlatBuffer::kSecondMoment}) {
      if (box.state || !with.InHostMemory(buffer, box.flat)) continue;
      without_padding += size_t(box.flat.elements) * SizeOf(with.dtype(buffer));
    }
  }
  EXPECT_GE(cost.host_bytes, double(without_padding));
  EXPECT_LE(cost.host_bytes, double(moved.host_total_bytes()));
}

INSTANTIATE_TEST_SUITE_P(Cases, Offload, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Two steps of a rank. Catches kernels that are given the place of another range.
TEST(OffloadedSteps, HaveTheSameBits) {
  for (const Case& c : Cases()) {
    if (c.ranks > 1) continue;
    SCOPED_TRACE(c.name);
    const auto weights = [&](bool offload) {
      const TwoMemories backend;
      Program program = Record(c, offload);
      const MemoryPlan plan = PlanMemory(program);
      auto made = Executable::Create(std::move(program), plan, backend, 1, {});
      CHECK(made.ok()) << made.status();
      Executable& executable = **made;
      executable.WriteStepState({.seed = 3});
      executable.Run(Action::kInit);
      executable.Run(Action::kPrepare);
      const auto vocab = FactsOf(c.config).vocab;
      for (int step = 1; step <= 2; ++step) {
        executable.WriteInput("tokens", 0, Tokens(8, vocab, uint64_t(step)));
        executable.WriteInput("targets", 0, Tokens(8, vocab, uint64_t(step) + 9));
        executable.WriteStepState(
            {.step = step, .learning_rate = 1e-2, .loss_scale = 1.0 / 8, .clip_norm = 1});
        executable.Run(Action::kForward);
        executable.Run(Action::kBackward);
        executable.Run(Action::kOptimizer);
      }
      executable.Run(Action::kJoin);
      std::vector<double> all;
      for (const ParameterBox& box : executable.program().OwnedParameters()) {
        const Tensor master = executable.master(box.flat);
        DispatchFloat(master.dtype, [&](auto scalar) {
          using T = decltype(scalar);
          const T* const data = master.as<T>();
          for (int64_t i = 0; i < master.elements(); ++i) {
            all.push_back(double(Accumulate<T>(data[i])));
          }
        });
      }
      return all;
    };
    EXPECT_EQ(weights(true), weights(false));
  }
}

TEST(OffloadedPlan, SaysWhatIsTheHosts) {
  const MemoryPlan plan = PlanMemory(Record({.name = "adamw"}, true));
  EXPECT_NE(plan.Summary().find(" of the host (optimizer state)"), std::string::npos)
      << plan.Summary();
  EXPECT_EQ(PlanMemory(Record({.name = "adamw"}, false)).Summary().find("host"), std::string::npos);
}

// docs/precision.md: 8B with masters and moments in f32, one sequence of 8192 tokens.
TEST(OffloadedPlan, HasRoomForLlama8BOnAnH100) {
  const ModelConfig config = FindPreset("llama3-8b")->config;
  const auto plan_of = [&](bool offload) {
    return PlanMemory(RecordTraining(*CreateModel(config),
                                     {.record = {.precision = Precision::BF16().WithRoundedLogits(),
                                                 .micro_batch = 1,
                                                 .sequence = 8192,
                                                 .logits_bytes = int64_t{1} << 30},
                                      .recompute = {.blocks = 32},
                                      .offload = offload}),
                      {.gpu = true});
  };
  const MemoryPlan plan = plan_of(true);
  constexpr double kParameters = 8.03e9;
  EXPECT_NEAR(double(plan.host_total_bytes()), 12 * kParameters, 0.01e9 * 12);
  EXPECT_NEAR(double(plan.parameter_bytes()), 6 * kParameters, 0.01e9 * 6);
  EXPECT_LT(double(plan.total_bytes()), 70e9) << plan.Summary();
  EXPECT_GT(double(plan_of(false).total_bytes()), 140e9);
}

}  // namespace
}  // namespace trainyard::testing
