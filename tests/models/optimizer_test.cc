// Proves what the declarations of the optimizers promise, and that a step updates each parameter by
// the optimizer's formula, with its options and with no more memory than it declares.

#include "models/program/optimizer/optimizer.h"

#include <cmath>
#include <set>

#include "common/interval.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using ::testing::IsSubsetOf;

TEST(Optimizers, DeclareLegalDefaultsAndWhatEveryOptimizerHas) {
  std::set<std::string> names;
  for (const Optimizer* const optimizer : Optimizers()) {
    SCOPED_TRACE(optimizer->name);
    EXPECT_TRUE(names.insert(optimizer->name).second);
    EXPECT_EQ(FindOptimizer(optimizer->name), optimizer);
    std::set<std::string> options;
    for (const OptimizerOption& option : optimizer->options) {
      EXPECT_TRUE(options.insert(option.name).second) << option.name;
      const bool required = std::string(option.name) == "learning_rate";
      EXPECT_NE(option.legal.Holds(option.standard), required) << option.name;
    }
    EXPECT_THAT((std::set<std::string>{"learning_rate", "weight_decay"}), IsSubsetOf(options));
    EXPECT_THAT(optimizer->states, IsSubsetOf(kStateBuffers));
  }
  EXPECT_EQ(FindOptimizer("adam"), nullptr);
}

TEST(OptimizerOptions, AreTheDefaultsUnlessTheyAreGiven) {
  EXPECT_STREQ(OptimizerOptions().optimizer().name, "adamw");
  OptimizerOptions options = {{"beta1", 0.5}};
  EXPECT_EQ(options["beta1"], 0.5);
  EXPECT_EQ(options["beta2"], 0.95);
  EXPECT_NE(options, OptimizerOptions());
  EXPECT_DEATH(options["momentum"], "adamw has no option momentum");
}

// The state of the optimizer in a plan, by buffer.
TEST(Optimizers, HaveMemoryForTheStateThatTheyDeclareAndForNoOther) {
  for (const Optimizer* const optimizer : Optimizers()) {
    const Program program = RecordTraining(
        *CreateModel(TinyLlama()), {.record = {.precision = Precision::BF16(), .sequence = 4},
                                    .optimizer = OptimizerOptions(*optimizer)});
    for (const FlatBuffer state : kStateBuffers) {
      const auto declared = std::count(optimizer->states.begin(), optimizer->states.end(), state);
      EXPECT_EQ(program.BytesOf(state), size_t(declared * 4 * program.shard_elements))
          << optimizer->name << ", buffer " << int(state);
    }
  }
}

std::vector<double> All(const Executable& executable, FlatBuffer buffer) {
  return ReadFlat(executable, buffer, {.elements = executable.program().flat_elements});
}

// Algorithm 2 of arXiv:2302.06675 with the gradients that backward has left, for three steps.
// Catches: options that do not reach the kernel, decay of gains, moments that are not zero at
// first.
TEST(LionUpdate, IsThePapersWithTheOptionsOfTheJob) {
  constexpr double kBeta1 = 0.7, kBeta2 = 0.8, kDecay = 0.25, kRate = 0.01;
  const ModelConfig config = TinyGpt3();
  const auto executable = Bind(RecordTraining(
      *CreateModel(config),
      {.record = {.precision = Precision::F64(), .micro_batch = 2, .sequence = 6},
       .optimizer = {LionOptimizer(),
                     {{"beta1", kBeta1}, {"beta2", kBeta2}, {"weight_decay", kDecay}}}}));
  std::vector<double> m(size_t(executable->program().flat_elements));
  for (int step = 1; step <= 3; ++step) {
    std::vector<double> want = All(*executable, FlatBuffer::kMaster);
    executable->WriteInput("tokens", 0, Tokens(12, 13, uint64_t(step)));
    executable->WriteInput("targets", 0, Tokens(12, 13, uint64_t(step) + 100));
    executable->WriteStepState(
        {.step = step, .learning_rate = kRate, .loss_scale = 1.0 / 12, .clip_norm = 0.1});
    executable->Run(Action::kForward);
    executable->Run(Action::kBackward);
    executable->Run(Action::kOptimizer);
    const StepState state = executable->ReadStepState();
    ASSERT_LT(state.clip_factor, 1);
    const std::vector<double> gradient = All(*executable, FlatBuffer::kGradient);
    for (const ParameterBox& box : executable->program().Parameters()) {
      const double decay = box.shape.rank() == 1 ? 0 : kDecay;
      for (size_t i = size_t(box.flat.offset); i < size_t(box.flat.end()); ++i) {
        const double g = gradient[i] * state.clip_factor;
        const double c = kBeta1 * m[i] + (1 - kBeta1) * g;
        want[i] -= kRate * (double(c > 0) - double(c < 0) + decay * want[i]);
        m[i] = kBeta2 * m[i] + (1 - kBeta2) * g;
      }
    }
    const std::vector<double> got = All(*executable, FlatBuffer::kMaster);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-15) << i;
  }
}

}  // namespace
}  // namespace trainyard::testing
