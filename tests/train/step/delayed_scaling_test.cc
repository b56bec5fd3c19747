// Proves that twelve steps of two linear layers under delayed scaling, with the formats of the row
// FP8_DELAYED and a history of its length, and with a short history that forgets, are those of
// Transformer Engine's formulas (tests/golden/make_delayed.py): losses, gradients, weights, and the
// greatest values in the histories. All but the formats of the operands is in f64, so that the two
// agree but for the order of sums.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/program/amax_history.h"
#include "models/program/ops/ops.h"
#include "tests/testing/ranks.h"
#include "tests/train/step/layouts.h"
#include "train/config/precision.h"
#include "train/step/rank_engine.h"
#include "train/step/step_runner.h"

namespace trainyard::testing {
namespace {

using Json = nlohmann::json;

// As in the script.
constexpr int64_t kTokens = 6, kWidth = 8, kLayers = 2;
constexpr double kSizes[] = {1, 4, 0.5, 0.25, 16, 0.125, 0.125, 0.5, 2, 0.0625, 0.0625, 1};

std::vector<float> Pattern(int64_t rows, int64_t factor, int64_t shift, double size = 1) {
  std::vector<float> values(size_t(rows * kWidth));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = float(double((int64_t(i) * factor + shift) % 129 - 64) / 64.0 * size);
  }
  return values;
}

std::string WeightOf(int64_t layer) { return "layer." + std::to_string(layer) + ".weight"; }

class TwoLayers final : public Model {
 public:
  int64_t layers() const override { return kLayers; }
  int64_t max_sequence() const override { return kTokens; }
  std::vector<InputSpec> inputs() const override {
    return {{.name = "x", .kind = InputSpec::Kind::kReal, .shape = {kWidth}},
            {.name = "target", .kind = InputSpec::Kind::kReal, .shape = {kWidth}}};
  }
  Carried Start(Recorder& recorder) const override { return recorder.Read("x"); }
  Carried Block(Recorder& recorder, int64_t layer, const Carried& carried) const override {
    const ParameterSpec weight = {
        .name = WeightOf(layer), .shape = {kWidth, kWidth}, .decay = true};
    return ops::Linear(recorder, carried.only(), recorder.Parameter(weight));
  }
  void Loss(Recorder& recorder, const Carried& carried) const override {
    ops::MeanSquare(recorder, carried.only(), recorder.Read("target"));
  }
  void KeepOutputs(Recorder&, const Carried&) const override {}
};

// The row's formats of operands with a history of `steps`, and all else in f64.
Precision DelayedIn64Bits(int64_t steps) {
  const ProductFormats row = RowOf(PrecisionName::kFP8Delayed).formats.layer;
  const auto with = [&](OperandFormat operand) {
    operand.scaling->history = steps;
    return operand;
  };
  return Precision::F64().WithLayers(with(row[0].a), with(row[0].b), with(row[1].a));
}

class Training {
 public:
  explicit Training(int64_t history) : precision_(DelayedIn64Bits(history)) {
    case_.job.batch = {.global = 1, .micro = 1, .sequence = kTokens};
    OptimizerOptions& options = case_.job.optimizer.options;
    options["beta1"] = 0.9, options["beta2"] = 0.95;
    options["epsilon"] = 1e-3, options["weight_decay"] = 0.1;
  }

  // Calls `after` with the state of each step.
  template <typename After>
  void Train(After&& after) {
    const auto errors = RunWorlds(1, [&](CollectiveWorld& world) {
      auto made =
          RankEngine::Create(case_.job, case_.model, {.precision = &precision_, .model = &model_},
                             CpuBackend(), world);
      CHECK(made.ok()) << made.status();
      engine_ = *std::move(made);
      Executable& executable = engine_->executable();
      executable.WriteStepState({.seed = 7});
      executable.Run(Action::kInit);
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        const std::vector<float> start = Pattern(kWidth, 53, 7 * layer);
        std::copy(start.begin(), start.end(),
                  Of(FlatBuffer::kMaster, WeightOf(layer)).as<double>());
      }
      executable.Run(Action::kPrepare);
      for (int64_t step = 1; step <= int64_t(std::size(kSizes)); ++step) {
        const MicroBatchData data = {{"x", Pattern(kTokens, 37, 11 * step, kSizes[step - 1])},
                                     {"target", Pattern(kTokens, 29, 5 * step)}};
        const StepState begin =
            InitialState({.step = step, .learning_rate = 0.01, .tokens = kTokens, .seed = 7});
        after(step, engine_->runner().Step(begin, {data}, [] {}).state);
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }

  // All elements of one parameter, or of its gradient.
  Tensor Of(FlatBuffer buffer, const std::string& name) const {
    for (const ParameterBox& box : engine_->executable().program().OwnedParameters()) {
      if (box.name == name) return engine_->executable().flat(buffer, box.flat);
    }
    CHECK(false) << "no parameter " << name;
    std::abort();
  }

 private:
  const TwoLayers model_;
  const Precision precision_;
  LayoutCase case_ = MakeLayoutCase("llama", {}, 1);
  std::unique_ptr<RankEngine> engine_;
};

TEST(DelayedScaling, TwelveStepsAreThoseOfTransformerEngine) {
  std::ifstream file(std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/delayed.json");
  const Json golden = Json::parse(file);
  ASSERT_EQ(RowOf(PrecisionName::kFP8Delayed).formats.layer[0].a.scaling->history,
            golden.at("runs").at(0).at("history").get<int64_t>());
  for (const Json& wanted : golden.at("runs")) {
    SCOPED_TRACE(wanted.at("history"));
    Training run(wanted.at("history"));
    const auto near = [](double got, double want, const std::string& what) {
      EXPECT_NEAR(got, want, 1e-10 * std::abs(want)) << what;
    };
    run.Train([&](int64_t step, const StepState& state) {
      const Json& of_step = wanted.at("steps").at(size_t(step - 1));
      near(state.loss, of_step.at("loss"), "loss of step " + std::to_string(step));
      near(state.grad_norm, of_step.at("gradient_norm"), "norm of step " + std::to_string(step));
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        for (const auto& [operand, amax] : of_step.at("amax").at(size_t(layer)).items()) {
          const std::string name = NameOfHistory(WeightOf(layer), operand);
          const Tensor history = run.Of(FlatBuffer::kMaster, name);
          near(history.as<double>()[history.elements() - 1], amax, name);
        }
      }
    });
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const Tensor weight = run.Of(FlatBuffer::kMaster, WeightOf(layer));
      const std::vector<double> want = wanted.at("weights").at(size_t(layer));
      for (size_t i = 0; i < want.size(); ++i) {
        near(weight.as<double>()[i], want[i], WeightOf(layer) + " " + std::to_string(i));
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
