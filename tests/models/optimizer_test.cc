// Proves what the declarations of the optimizers promise, and that a step updates each parameter by
// the optimizer's formula, with its options and with no more memory than it declares.

#include "models/program/optimizer/optimizer.h"

#include <cmath>
#include <set>

#include "common/interval.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/muon.h"
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
    if (optimizer->matrices != nullptr) continue;  // Below.
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

OptimizerOptions Muon() {
  return {MuonOptimizer(), {{"momentum", 0.8}, {"epsilon", 1e-3}, {"weight_decay", 0.25}}};
}

// Catches: second moments that no kernel reads, which are a quarter of a model's training state.
TEST(Muon, KeepsSecondMomentsOfWhatAdamWUpdatesAlone) {
  const Program program =
      RecordTraining(*CreateModel(TinyLlama()), {.record = {.sequence = 4}, .optimizer = Muon()});
  int64_t matrices = 0, all = 0;
  for (const ParameterBox& box : program.OwnedParameters()) {
    const bool matrix = box.name.find("proj") != std::string::npos;
    EXPECT_EQ(program.place(FlatBuffer::kSecondMoment).Find(box.flat).has_value(), !matrix)
        << box.name;
    EXPECT_TRUE(program.place(FlatBuffer::kFirstMoment).Find(box.flat)) << box.name;
    (matrix ? matrices : all) += box.shape.elements();
  }
  EXPECT_GT(matrices, all);
}

std::vector<double> All(const Executable& executable, FlatBuffer buffer) {
  return ReadFlat(executable, buffer, {.elements = executable.program().flat_elements});
}

// A direction, made orthogonal.
std::vector<double> Orthogonal(const std::vector<double>& direction, const Shape& shape) {
  const int64_t k = std::min(shape[0], shape[1]);
  std::vector<double> x = direction, y(x.size()), gram(size_t(k * k)), square = gram;
  const auto view = [](std::vector<double>& v, const Shape& of) {
    return Tensor{{v.data(), DType::kF64, of}};
  };
  Exec exec = CpuBackend().NewExec(1);
  CpuBackend().kernel<NewtonSchulzArgs>()(exec, {.x = view(x, shape),
                                                 .y = view(y, shape),
                                                 .gram = view(gram, {k, k}),
                                                 .square = view(square, {k, k})});
  return x;
}

// Two steps from the gradients that backward has left. Catches: query, key and value, which share a
// storage, as one matrix; embeddings and heads as matrices; decay of gains; options that do not
// reach the kernels.
TEST(Muon, UpdatesEachMatrixOfThePublicCheckpointAndTheRestAsAdamW) {
  constexpr double kRate = 0.01, kDecay = 0.25, kMomentum = 0.8, kEpsilon = 1e-3;
  constexpr double kBeta1 = 0.9, kBeta2 = 0.95;
  const auto executable = Bind(
      RecordTraining(*CreateModel(TinyLlama()),
                     {.record = {.precision = Precision::F64(), .micro_batch = 2, .sequence = 6},
                      .optimizer = Muon()}));
  std::vector<double> m(size_t(executable->program().flat_elements)), v = m;
  for (int step = 1; step <= 2; ++step) {
    const std::vector<double> before = All(*executable, FlatBuffer::kMaster);
    executable->WriteInput("tokens", 0, Tokens(12, 13, uint64_t(step)));
    executable->WriteInput("targets", 0, Tokens(12, 13, uint64_t(step) + 100));
    executable->WriteStepState(
        {.step = step, .learning_rate = kRate, .loss_scale = 1.0 / 12, .clip_norm = 0.1});
    executable->Run(Action::kForward);
    executable->Run(Action::kBackward);
    const std::vector<double> gradient = All(*executable, FlatBuffer::kGradient);
    executable->Run(Action::kOptimizer);
    const double clip = executable->ReadStepState().clip_factor;
    ASSERT_LT(clip, 1);
    const std::vector<double> after = All(*executable, FlatBuffer::kMaster);
    int matrices = 0;
    for (const ParameterBox& box : executable->program().Parameters()) {
      const bool matrix = box.name.find("proj") != std::string::npos;
      const double keep = matrix ? kMomentum : kBeta1;
      std::vector<double> update;
      for (size_t i = size_t(box.flat.offset); i < size_t(box.flat.end()); ++i) {
        const double g = gradient[i] * clip;
        m[i] = keep * m[i] + (1 - keep) * g;
        v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
        const double root = std::sqrt(v[i] / (1 - std::pow(kBeta2, step)));
        update.push_back(matrix ? keep * m[i] + (1 - keep) * g
                                : m[i] / (1 - std::pow(kBeta1, step)) / (root + kEpsilon));
      }
      if (matrix) {
        update = Orthogonal(update, box.shape);
        const double size = double(std::max(box.shape[0], box.shape[1]));
        for (double& u : update) u *= 0.2 * std::sqrt(size);
        ++matrices;
      }
      const double decay = box.shape.rank() == 1 ? 0 : kDecay;
      for (size_t i = 0; i < update.size(); ++i) {
        const double w = before[size_t(box.flat.offset) + i];
        ASSERT_NEAR(after[size_t(box.flat.offset) + i], w - kRate * (decay * w + update[i]), 1e-13)
            << box.name << ", step " << step;
      }
    }
    EXPECT_EQ(matrices, 7 * 2);  // Of two layers.
  }
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
