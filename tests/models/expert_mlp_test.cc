// Proves the experts' op in f64: its output against the formula written out token by token, and
// every gradient of it (of rows, of their weights, of both products, of biases and adapters)
// against central differences, with experts that nobody chose, and with rows that take several
// rounds; that what is frozen has no gradient; and what the products cost.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/expert_model.h"
#include "tests/models/tiny.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing {
namespace {

RecordOptions Options(double expert_rows) {
  return {.precision = Precision::F64(), .sequence = kTokens, .expert_rows = expert_rows};
}

std::unique_ptr<Executable> BindChosen(Program program, const CollectiveTable& collectives = {}) {
  auto executable = Bind(std::move(program), 1, 1, collectives);
  executable->WriteInput("tokens", 0, Tokens(kTokens, kVocab, 1));
  executable->WriteInput("experts", 0, kChosen);
  return executable;
}

std::map<std::string, std::vector<double>> Weights(const Executable& executable) {
  std::map<std::string, std::vector<double>> weights;
  for (const ParameterBox& box : executable.program().Parameters()) {
    weights[box.name] = ReadFlat(executable, FlatBuffer::kMaster, box.flat);
  }
  return weights;
}

// matrix [out, in] times x.
std::vector<double> Times(const std::vector<double>& matrix, const std::vector<double>& x) {
  std::vector<double> y(matrix.size() / x.size());
  for (size_t i = 0; i < matrix.size(); ++i) y[i / x.size()] += matrix[i] * x[i % x.size()];
  return y;
}

void Add(std::vector<double>& y, const std::vector<double>& more, double factor = 1) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * more[i];
}

class ExpertMlpTest : public ::testing::TestWithParam<Form> {
 protected:
  ExpertModel model{GetParam()};
  RecordOptions options = Options(GetParam().expert_rows);
};

TEST_P(ExpertMlpTest, OutputIsTheWeightedSumOfEachTokensExperts) {
  const auto executable = BindChosen(RecordInference(model, options));
  executable->Run(Action::kForward);
  std::vector<double> got(kTokens * kVocab), want;
  executable->ReadOutput("logits", 0, got.data(), got.size() * sizeof(double));

  auto weights = Weights(*executable);
  const std::vector<int32_t> tokens = Tokens(kTokens, kVocab, 1);
  for (size_t t = 0; t < size_t(kTokens); ++t) {
    const auto row = weights["embedding"].begin() + tokens[t] * kWidth;
    const std::vector<double> x(row, row + kWidth);
    const std::vector<double> scale = Times(weights["gate"], x);
    std::vector<double> y(kWidth);
    for (size_t k = 0; k < size_t(kChoices); ++k) {
      const std::string expert = "e." + std::to_string(kChosen[t * kChoices + k]);
      const auto adapted = [&](const std::string& name, const std::vector<double>& in) {
        return Times(weights[expert + name + kLowRankUp],
                     Times(weights[expert + name + kLowRankDown], in));
      };
      std::vector<double> first = Times(weights[expert + ".up"], x);
      if (GetParam().gated) {
        const std::vector<double> gate = Times(weights[expert + ".gate"], x);
        first.insert(first.begin(), gate.begin(), gate.end());
      }
      if (GetParam().bias) Add(first, weights[expert + ".up.bias"]);
      if (GetParam().first_adapter) Add(first, adapted(".first", x), kScale);
      std::vector<double> hidden(first.end() - kFfn, first.end());
      for (size_t f = 0; f < hidden.size(); ++f) {
        const double gate = first[f];
        hidden[f] = GetParam().gated ? hidden[f] * gate / (1 + std::exp(-gate))
                                     : std::pow(std::max(gate, 0.0), 2);
      }
      std::vector<double> out = Times(weights[expert + ".down"], hidden);
      if (GetParam().bias) Add(out, weights[expert + ".down.bias"]);
      if (GetParam().second_adapter) Add(out, adapted(".second", hidden), kScale);
      Add(y, out, scale[k]);
    }
    for (const double logit : Times(weights["output"], y)) want.push_back(logit);
  }
  ExpectClose(got, want, 1e-13);
}

TEST_P(ExpertMlpTest, EveryGradientMatchesCentralDifferences) {
  const auto executable = BindChosen(RecordTraining(model, {.record = options, .optimizer = {}}));
  executable->WriteInput("targets", 0, Tokens(kTokens, kVocab, 2));
  const auto loss = [&] {
    executable->WriteStepState({.step = 1, .loss_scale = 1.0 / kTokens});
    executable->Run(Action::kForward, {.validation = true});
    return executable->ReadStepState().loss;
  };
  // What is there before must not matter.
  const FlatRange all{.elements = executable->program().flat_elements};
  double* stale = executable->flat(FlatBuffer::kGradient, all).as<double>();
  std::fill_n(stale, all.elements, 7.0);
  loss();
  executable->Run(Action::kBackward);
  std::map<std::string, std::vector<double>> got;
  for (const ParameterBox& box : executable->program().Parameters()) {
    got[box.name] = ReadFlat(*executable, FlatBuffer::kGradient, box.flat);
  }
  for (const ParameterBox& box : executable->program().Parameters()) {
    SCOPED_TRACE(box.name);
    double* weights = executable->flat(FlatBuffer::kMaster, box.flat).as<double>();
    std::vector<double> values(weights, weights + box.flat.elements);
    const std::vector<double> want = NumericGrad(values, [&] {
      std::copy(values.begin(), values.end(), weights);
      return loss();
    });
    std::copy(values.begin(), values.end(), weights);
    ExpectClose(got.at(box.name), want, 1e-8);
  }
}

// Of an axis along which experts are not divided: what it brought may be any numbers.
class FailedCollective final : public Collective {
 public:
  FailedCollective() : Collective("data", {0}, 0) {}
  void Check() override { throw DeviceError(DeviceError::Kind::kPeerLost, "planted"); }
  void Abort() override {}

 private:
  static void Used() { ADD_FAILURE() << "nothing is sent"; }
  void DoAllReduceSum(Tensor) override { Used(); }
  void DoAllReduceMax(Tensor) override { Used(); }
  void DoBroadcast(Tensor, int) override { Used(); }
  void DoBarrier() override { Used(); }
  void DoAllGather(ConstTensor, Tensor) override { Used(); }
  void DoReduceScatterSum(ConstTensor, Tensor) override { Used(); }
  void DoAllToAll(ConstTensor, std::span<const int64_t>, Tensor,
                  std::span<const int64_t>) override {
    Used();
  }
  void DoPostSend(ConstTensor, Message) override { Used(); }
  void DoWaitSend(Message) override { Used(); }
  void DoReceive(Tensor, Message) override { Used(); }
};

// Bug it must catch: choices that a failed collective left are counted, and end the process. The
// host counts them if there is no room for all rows.
TEST(FailedCollectiveTest, ChoicesAreNotReadAfterAFailure) {
  FailedCollective data;
  const auto executable = BindChosen(RecordInference(ExpertModel(), Options(0.5)), {{{}, &data}});
  EXPECT_THROW(executable->Run(Action::kForward), DeviceError);
}

TEST(StackedParametersTest, AreTensorsOfTheirOwn) {
  const Program program = RecordInference(ExpertModel(), Options(2));
  std::map<std::string, Shape> shapes;
  for (const ParameterBox& box : program.Parameters()) shapes[box.name] = box.global_shape;
  EXPECT_EQ(shapes.size(), size_t(3 + 3 * kExperts));
  EXPECT_EQ(shapes.at("e.4.up"), Shape({kFfn, kWidth}));
  EXPECT_EQ(shapes.at("e.0.down"), Shape({kWidth, kFfn}));
  EXPECT_EQ(program.num_parameters,
            2 * kVocab * kWidth + kChoices * kWidth + 3 * kExperts * kFfn * kWidth);
}

const Instance& BackwardOf(const Program& program) {
  const auto backward =
      std::find_if(program.instances.begin(), program.instances.end(),
                   [](const Instance& i) { return i.op->name() == "expert_mlp_backward"; });
  CHECK(backward != program.instances.end());
  return *backward;
}

// Bug it must catch: the gradients of frozen experts are computed into memory that nobody reads,
// which is as large as the experts.
TEST(FrozenExpertsTest, HaveNoGradients) {
  const Form form{.first_adapter = true, .second_adapter = true, .bias = true};
  const auto outputs = [&](const Recorder::IsFrozen& frozen) {
    const Program program = RecordTraining(
        ExpertModel(form), {.record = Options(2), .optimizer = {}, .frozen = frozen});
    std::vector<Shape> shapes;
    for (const Value output : BackwardOf(program).outputs) {
      if (program.info(output).shape[0] == kExperts) shapes.push_back(program.info(output).shape);
    }
    return shapes;
  };
  const std::vector<Shape> adapters = {{kExperts, kRank, kWidth},
                                       {kExperts, form.up_width(), kRank},
                                       {kExperts, kRank, kFfn},
                                       {kExperts, kWidth, kRank}};
  std::vector<Shape> all = {{kExperts, form.up_width(), kWidth},
                            {kExperts, kWidth, kFfn},
                            {kExperts, form.up_width()},
                            {kExperts, kWidth}};
  EXPECT_THAT(outputs([](const ParameterSpec& spec) { return !IsLowRank(spec.name); }),
              ::testing::ElementsAreArray(adapters));
  all.insert(all.end(), adapters.begin(), adapters.end());
  EXPECT_THAT(outputs(nullptr), ::testing::ElementsAreArray(all));
}

// Bug it must catch: a value that backward replaces by its gradient counts as kept for others.
TEST(AdaptersTest, BackwardSaysWhatItOverwrites) {
  const Form form{.first_adapter = true, .second_adapter = true, .bias = true};
  const Program program =
      RecordTraining(ExpertModel(form), {.record = Options(2), .optimizer = {}});
  const Instance& backward = BackwardOf(program);
  std::vector<std::string> names;
  for (size_t i = 0; i < backward.inputs.size(); ++i) {
    if (!backward.op->Overwrites(int(i))) continue;
    names.push_back(program.info(backward.inputs[i]).name);
  }
  using ::testing::EndsWith;
  EXPECT_THAT(names, ::testing::ElementsAre(EndsWith("rows"), EndsWith("row_weights"),
                                            EndsWith("up"), EndsWith("first_narrow")));
}

// Of frozen experts with adapters: forward and backward multiply with each weight once, and with
// each narrow matrix once and twice. What is recomputed is the first product.
TEST(FrozenExpertsTest, CountTheirProducts) {
  const auto flops = [](const Form& form) {
    const Program program = RecordTraining(
        ExpertModel(form),
        {.record = Options(2), .optimizer = {}, .frozen = [](const ParameterSpec& spec) {
           return spec.stacked && !IsLowRank(spec.name);
         }});
    std::vector<double> flops(3);
    for (const Instance& instance : program.instances) {
      const double cost = instance.op->CostOf(program, instance).flops;
      if (instance.op->name() == "expert_mlp_backward") flops[1] += cost;
      if (instance.op->name() != "expert_mlp") continue;
      flops[0] += cost;
      std::vector<bool> read(instance.outputs.size(), true);
      read[0] = false;  // The sum of the experts' outputs.
      const Instance again = instance.op->Narrowed(instance, read);
      CheckOperands(again);
      flops[2] += again.op->CostOf(program, again).flops;
    }
    return flops;
  };
  constexpr double kSlots = kTokens * kChoices, kWeights = 2 * kSlots * 3 * kWidth * kFfn;
  constexpr double kFirst = 2 * kSlots * kRank * (kWidth + 2 * kFfn);
  constexpr double kSecond = 2 * kSlots * kRank * (kWidth + kFfn);
  constexpr double kArrival = kWeights * 2 / 3;
  using ::testing::ElementsAre;
  EXPECT_THAT(flops({}), ElementsAre(kWeights, kWeights, kArrival));
  EXPECT_THAT(flops({.first_adapter = true}),
              ElementsAre(kWeights + kFirst, kWeights + 2 * kFirst, kArrival + kFirst));
  EXPECT_THAT(flops({.second_adapter = true}),
              ElementsAre(kWeights + kSecond, kWeights + 2 * kSecond, kArrival));
}

// All rows at once, and in rounds of 4 and of 1.
INSTANTIATE_TEST_SUITE_P(Rounds, ExpertMlpTest,
                         ::testing::Values(Form{true, 2}, Form{true, 0.3}, Form{true, 0.01},
                                           Form{false, 2}, Form{false, 0.3}));

INSTANTIATE_TEST_SUITE_P(Adapters, ExpertMlpTest,
                         ::testing::Values(Form{true, 2, true, true}, Form{true, 0.3, true, true},
                                           Form{true, 2, true, false}, Form{true, 2, false, true},
                                           Form{false, 0.3, true, true},
                                           Form{true, 0.3, true, true, true}));

}  // namespace
}  // namespace trainyard::testing
