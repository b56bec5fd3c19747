// Proves the replay: a step allocates nothing; what balances experts is updated as it says; a lost
// peer surfaces where the gradients are waited for; what does not fit says by how much; a step that
// is not finite changes nothing.
#include "models/program/executable.h"

#include <cmath>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/collective/local.h"
#include "tests/models/tiny.h"
#include "tests/testing/allocations.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSequence = 6;

TrainingOptions Options(const Precision& precision, int64_t micro_batch, int data = 1) {
  return {.record = {.precision = precision,
                     .micro_batch = micro_batch,
                     .sequence = kSequence,
                     .mesh = {.data = data}},
          // AdamW amplifies rounding where gradients are near zero.
          .optimizer = {{"epsilon", 1e-3}},
          .bucket_bytes = 2048};
}

// One step on sequences [begin, end) of a global batch of `batch`, `per_micro` at a time.
struct Part {
  int64_t begin, end, batch, per_micro;
};
StepState Step(Executable& executable, const Part& part, int64_t step) {
  const int64_t vocab = 13;
  const auto tokens = Tokens(part.batch * kSequence, vocab, uint64_t(step));
  const auto targets = Tokens(part.batch * kSequence, vocab, uint64_t(step) + 100);
  executable.WriteStepState({.step = step,
                             .learning_rate = 0.01,
                             .loss_scale = 1.0 / double(part.batch * kSequence),
                             .clip_norm = 0.5});
  for (int64_t at = part.begin; at < part.end; at += part.per_micro) {
    const MicroBatch micro{.first = at == part.begin, .last = at + part.per_micro == part.end};
    const size_t from = size_t(at * kSequence), count = size_t(part.per_micro * kSequence);
    executable.WriteInput("tokens", 0, std::span(tokens).subspan(from, count));
    executable.WriteInput("targets", 0, std::span(targets).subspan(from, count));
    executable.Run(Action::kForward, micro);
    executable.Run(Action::kBackward, micro);
  }
  executable.Run(Action::kOptimizer);
  return executable.ReadStepState();
}

std::vector<double> Weights(const Executable& executable) {
  return ReadFlat(executable, FlatBuffer::kMaster,
                  {.elements = executable.program().flat_elements});
}

// In f64, where all code is ours: f32 and bf16 products go through oneDNN, which makes small
// argument lists of its own.
void ExpectAStepAllocatesNothing(const ModelConfig& config) {
  const auto executable = Bind(RecordTraining(*CreateModel(config), Options(Precision::F64(), 1)));
  const std::vector<int32_t> tokens(size_t(kSequence), 3);
  const auto step = [&] {
    executable->WriteStepState({.step = 1, .learning_rate = 1e-3, .loss_scale = 0.1});
    for (int k : {0, 1}) {
      executable->WriteInput("tokens", 0, tokens);
      executable->WriteInput("targets", 0, tokens);
      executable->Run(Action::kForward, {.first = k == 0, .last = k == 1});
      executable->Run(Action::kBackward, {.first = k == 0, .last = k == 1});
    }
    executable->Run(Action::kOptimizer);
  };
  step();  // The OpenMP runtime may prepare on first use.
  const int64_t before = Allocations();
  step();
  EXPECT_EQ(Allocations() - before, 0) << config.family();
}

// A loss that counts nothing has no gradient: what is left is the bias that balances the experts.
TEST(ExecutableTest, TheBalancingBiasMovesByItsRateAndIsNoPartOfTheNorm) {
  ModelConfig config = TinyMoe();
  AsDecoder(config).moe->expert_bias = true;
  AsDecoder(config).moe->bias_update_rate = 0.25;
  TrainingOptions options = Options(Precision::F64(), 1);
  options.optimizer["weight_decay"] = 0.5;
  const auto executable = Bind(RecordTraining(*CreateModel(config), options));
  const std::vector<double> before = Weights(*executable);
  executable->WriteStepState({.step = 1, .learning_rate = 0.1, .clip_norm = 1e-3});
  executable->WriteInput("tokens", 0, Tokens(kSequence, AsDecoder(config).vocab, 1));
  executable->WriteInput("targets", 0, std::vector<int32_t>(size_t(kSequence), 3));
  executable->Run(Action::kForward);
  executable->Run(Action::kBackward);
  executable->Run(Action::kOptimizer);
  EXPECT_EQ(executable->ReadStepState().grad_norm, 0);
  const std::vector<double> after = Weights(*executable);
  int moved = 0;
  for (const ParameterBox& box : executable->program().Parameters()) {
    if (!box.state) continue;
    const std::vector<double> above = ReadFlat(*executable, FlatBuffer::kGradient, box.flat);
    EXPECT_EQ(std::accumulate(above.begin(), above.end(), 0.0), 0) << "not about their mean";
    for (size_t i = 0; i < above.size(); ++i) {
      const size_t at = size_t(box.flat.offset) + i;
      EXPECT_EQ(after[at] - before[at], above[i] > 0 ? -0.25 : above[i] < 0 ? 0.25 : 0);
      moved += after[at] != before[at];
    }
  }
  EXPECT_GT(moved, 0);
}

TEST(ExecutableTest, AStepAllocatesNothing) {
  ExpectAStepAllocatesNothing(TinyLlama());
  ExpectAStepAllocatesNothing(TinyMoe());
}

TEST(ExecutableTest, TheComputeCopyFollowsTheMaster) {
  const auto executable =
      Bind(RecordTraining(*CreateModel(TinyLlama()), Options(Precision::BF16(), 2)));
  const FlatRange all{.elements = executable->program().flat_elements};
  const auto copy_is_rounded = [&] {
    const auto master = ReadFlat(*executable, FlatBuffer::kMaster, all);
    const auto copy = ReadFlat(*executable, FlatBuffer::kCompute, all);
    for (size_t i = 0; i < master.size(); ++i) {
      if (copy[i] != double(float(bf16(float(master[i]))))) return false;
    }
    return true;
  };
  EXPECT_TRUE(copy_is_rounded());
  const auto before = Weights(*executable);
  Step(*executable, {0, 2, 2, 2}, 1);
  EXPECT_NE(Weights(*executable), before);
  EXPECT_TRUE(copy_is_rounded());
}

TEST(ExecutableTest, TheGradientNormIsThatOfEveryParameter) {
  const auto executable =
      Bind(RecordTraining(*CreateModel(TinyGpt3()), Options(Precision::F64(), 2)));
  const StepState state = Step(*executable, {0, 2, 2, 2}, 1);
  double squares = 0;
  for (const ParameterBox& box : executable->program().Parameters()) {
    for (double g : ReadFlat(*executable, FlatBuffer::kGradient, box.flat)) squares += g * g;
  }
  EXPECT_NEAR(state.grad_norm, std::sqrt(squares), 1e-12);
}

// Without gradients, decay is all that is left of AdamW.
TEST(ExecutableTest, MatricesDecayAndGainsAndBiasesDoNot) {
  const auto executable =
      Bind(RecordTraining(*CreateModel(TinyGpt3()), Options(Precision::F64(), 1)));
  const std::vector<double> before = Weights(*executable);
  const std::vector<int32_t> tokens(size_t(kSequence), 3);
  executable->WriteInput("tokens", 0, tokens);
  executable->WriteInput("targets", 0, tokens);
  executable->WriteStepState({.step = 1, .learning_rate = 0.5, .loss_scale = 0});
  executable->Run(Action::kForward);
  executable->Run(Action::kBackward);
  executable->Run(Action::kOptimizer);
  const std::vector<double> after = Weights(*executable);
  for (const ParameterBox& box : executable->program().Parameters()) {
    const double factor = box.shape.rank() == 1 ? 1 : 1 - 0.5 * 0.1;
    for (int64_t i = box.flat.offset; i < box.flat.end(); ++i) {
      ASSERT_NEAR(after[size_t(i)], factor * before[size_t(i)], 1e-15) << box.name;
    }
  }
}

TEST(ExecutableTest, InputsStayForAnotherReplay) {
  const auto executable =
      Bind(RecordTraining(*CreateModel(TinyLlama()), Options(Precision::F64(), 1)));
  const std::vector<int32_t> tokens = Tokens(kSequence, 13, 1);
  executable->WriteInput("tokens", 0, tokens);
  executable->WriteInput("targets", 0, tokens);
  std::vector<double> losses;
  for (int i = 0; i < 2; ++i) {
    executable->WriteStepState({.step = 1, .loss_scale = 1});
    executable->Run(Action::kForward);
    executable->Run(Action::kBackward);
    losses.push_back(executable->ReadStepState().loss);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(ExecutableTest, AStepThatIsNotFiniteChangesNothing) {
  const auto executable =
      Bind(RecordTraining(*CreateModel(TinyLlama()), Options(Precision::F32(), 2)));
  const FlatRange one{.offset = executable->program().Parameters()[0].flat.offset, .elements = 1};
  float* weight = executable->flat(FlatBuffer::kMaster, one).as<float>();
  const auto tokens = Tokens(2 * kSequence, 13, 1);
  const int64_t row = tokens[0];
  weight[row * 12] = INFINITY;  // In the embedding of a token of the batch.
  const auto before = Weights(*executable);
  EXPECT_EQ(Step(*executable, {0, 2, 2, 2}, 1).finite, 0);
  EXPECT_EQ(Weights(*executable), before);
  weight[row * 12] = 0;
  EXPECT_EQ(Step(*executable, {0, 2, 2, 2}, 1).finite, 1);
  EXPECT_NE(Weights(*executable), before);
}

std::string LastOf(const Executable& executable, List list) {
  const Program& program = executable.program();
  std::string last;
  for (const Instance& instance : program.instances) {
    if (instance.list == list) last = program.Describe(instance);
  }
  return last;
}

TEST(ExecutableTest, ALostPeerSurfacesAtTheWait) {
  LocalWorld world(2);
  const auto gradients = *world.world(0).Group("gradients", {0, 1});
  const auto scalars = *world.world(0).Group("scalars", {0, 1});
  TrainingOptions options = Options(Precision::F32(), 1, 2);
  const auto executable = Bind(RecordTraining(*CreateModel(TinyLlama()), options), 1, 1,
                               {{{Stream::kCommunication, Axis::kData}, gradients.get()},
                                {{Stream::kCompute, Axis::kData}, scalars.get()}});
  world.world(1).Abort();
  EXPECT_EQ(executable->LastGiven(),
            "rank 0 of 2, at or before " + LastOf(*executable, List::kPrepare));
  EXPECT_THROW(Step(*executable, {0, 1, 2, 1}, 1), DeviceError);
  EXPECT_THAT(
      executable->LastGiven(),
      ::testing::ContainsRegex("^rank 0 of 2, at or before optimizer block .*; communicating "
                               "backward_weight block [0-9]+ .*reduce_bucket.* on the "
                               "communication stream, last micro-batch$"));
}

// A backend without memory: sizes come with the refusal.
class FullBackend final : public Backend {
 public:
  FullBackend() : Backend(DeviceKind::kCpu, "full") {}
  absl::StatusOr<Buffer> Allocate(size_t) const override {
    return absl::ResourceExhaustedError("no memory left");
  }
  size_t MemoryInUse() const override { return 0; }
  void CopyToDevice(const Exec&, void*, const void*, size_t) const override {}
  void CopyToHost(const Exec&, void*, const void*, size_t) const override {}
  void Synchronize(const Exec&) const override {}
  Exec NewExec(int) const override { return {}; }
  std::unique_ptr<Event> NewEvent() const override { return CpuBackend().NewEvent(); }
};

TEST(ExecutableTest, WhatDoesNotFitSaysHowMuchItWanted) {
  const FullBackend backend;
  Program program = RecordTraining(*CreateModel(TinyLlama()), Options(Precision::F32(), 1));
  const MemoryPlan plan = PlanMemory(program);
  const absl::Status status = Executable::Create(std::move(program), plan, backend, 1, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(plan.Summary()), absl::string_view::npos) << status;
}

TEST(ExecutableDeathTest, WrongInputsAreNamed) {
  const auto executable =
      Bind(RecordTraining(*CreateModel(TinyLlama()), Options(Precision::F32(), 1)));
  const std::vector<int32_t> tokens(3);
  EXPECT_DEATH(executable->WriteInput("token", 0, tokens), "no input token");
  EXPECT_DEATH(executable->WriteInput("tokens", 0, tokens), "tokens: 3 elements for i32");
  EXPECT_DEATH(executable->Run(Action::kForward, {.slot = 1}), "slot 1 of 1");
}

TEST(ExecutableDeathTest, AMissingCommunicatorNamesTheAxes) {
  EXPECT_DEATH(Bind(RecordTraining(*CreateModel(TinyLlama()), Options(Precision::F32(), 1, 2))),
               "no communicator for axes .data");
}

}  // namespace
}  // namespace trainyard::testing
