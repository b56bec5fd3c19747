// Proves the experts' op in f64: its output against the formula written out token by token, and
// every gradient of it (of rows, of their weights, of both products) against central differences,
// with experts that nobody chose, and with rows that take several rounds.
#include <cmath>

#include "gtest/gtest.h"
#include "models/language_model.h"
#include "models/program/ops/ops.h"
#include "tests/models/tiny.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kTokens = 6, kWidth = 4, kFfn = 3, kExperts = 5, kChoices = 2, kVocab = 7;

ParameterSpec Matrix(const std::string& name, const Shape& shape, bool stacked = false) {
  return {.name = name, .shape = shape, .init = Init::Normal(0.4), .stacked = stacked};
}

// Embedding, one layer of experts that the host chooses, output projection.
class ExpertModel final : public LanguageModel {
 public:
  explicit ExpertModel(bool gated = true) : LanguageModel(kVocab), gated_(gated) {}
  int64_t layers() const override { return 1; }
  int64_t max_sequence() const override { return kTokens; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    return ops::Embedding(recorder, recorder.Parameter(Matrix("embedding", {kVocab, kWidth})),
                          tokens);
  }
  Carried Block(Recorder& recorder, int64_t, const Carried& carried) const override {
    const Value x = carried.only();
    recorder.set_label("mlp");
    const Value experts = recorder.Input("experts", {kTokens, kChoices}, DType::kI32, {});
    const Value gate = recorder.Parameter(Matrix("gate", {kChoices, kWidth}));
    std::vector<ParameterSpec> first = {Matrix("e.*.up", {kExperts, kFfn, kWidth}, true)};
    if (gated_) first.insert(first.begin(), Matrix("e.*.gate", {kExperts, kFfn, kWidth}, true));
    return ops::ExpertMlp(
        recorder, {.x = x,
                   .experts = experts,
                   .weights = ops::Linear(recorder, ProductKind::kRouter, x, gate),
                   .gate_up = recorder.Parameters(first),
                   .down = recorder.Parameter(Matrix("e.*.down", {kExperts, kWidth, kFfn}, true)),
                   .gated = gated_});
  }
  Projection Head(Recorder& recorder, const Carried& carried) const override {
    return {.x = carried.only(), .weight = recorder.Parameter(Matrix("output", {kVocab, kWidth}))};
  }

 private:
  const bool gated_;
};

// None chose expert 3.
const std::vector<int32_t> kChosen = {4, 0, 1, 4, 4, 2, 0, 4, 2, 1, 4, 0};

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

struct Form {
  bool gated;
  double expert_rows;
};

class ExpertMlpTest : public ::testing::TestWithParam<Form> {
 protected:
  ExpertModel model{GetParam().gated};
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
      std::vector<double> hidden = Times(weights[expert + ".up"], x);
      if (GetParam().gated) {
        const std::vector<double> gate = Times(weights[expert + ".gate"], x);
        for (size_t f = 0; f < hidden.size(); ++f) hidden[f] *= gate[f] / (1 + std::exp(-gate[f]));
      } else {
        for (double& h : hidden) h = h > 0 ? h * h : 0;
      }
      const std::vector<double> out = Times(weights[expert + ".down"], hidden);
      for (size_t d = 0; d < y.size(); ++d) y[d] += scale[k] * out[d];
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

// All rows at once, and in rounds of 4 and of 1.
INSTANTIATE_TEST_SUITE_P(Rounds, ExpertMlpTest,
                         ::testing::Values(Form{true, 2}, Form{true, 0.3}, Form{true, 0.01},
                                           Form{false, 2}, Form{false, 0.3}));

}  // namespace
}  // namespace trainyard::testing
