// Proves that experts round their operands to 8 bits by the formulas of delayed scaling, with a
// history for each expert: the loss, every gradient and every greatest value against the formulas
// written out token by token in f64, with experts that nobody chose, in one round and in several,
// with biases and adapters, which are not rounded; and which experts are not rounded.
//
// The formulas are Transformer Engine's (docs/examples/fp8_primer, and its GroupedLinear, which has
// a quantizer for each expert's rows, weight and gradient):
//
//   scale = largest number of the format / greatest value of the history; 1 if that is 0
//   y     = round(x scale) round(w scale_w)^T / (scale scale_w), and so for both gradients
//
// with e4m3 for rows and weights and e5m2 for gradients. A gradient passes a rounded number as if
// it were not rounded. With scales of lines, the greatest value is that of a token's row, of a row
// of the weight in forward, and of a column in the product of the gradient; and the weight gradient
// is that of numbers that are not rounded.
#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/narrow.h"
#include "models/program/amax_history.h"
#include "tests/models/expert_model.h"
#include "tests/models/tiny.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSteps = 3;  // Of a history.

Precision Delayed() {
  constexpr Scaling kDelayed{.history = kSteps};
  return Precision::F64()
      .WithLayers({DType::kE4M3, kDelayed}, {DType::kE4M3, kDelayed}, {DType::kE5M2, kDelayed})
      .WithExpertsAsLayers();
}

Precision ByLines() {
  constexpr Scaling kRow{.kept = 1};
  return Precision::F64()
      .WithLayers({DType::kE4M3, kRow}, {DType::kE4M3, kRow}, {DType::kE5M2, kRow})
      .WithExpertsByRows();
}

using Vector = std::vector<double>;
using Named = std::map<std::string, Vector>;

Named Flat(const Executable& executable, FlatBuffer buffer) {
  Named values;
  for (const ParameterBox& box : executable.program().Parameters()) {
    values[box.name] = ReadFlat(executable, buffer, box.flat);
  }
  return values;
}

// y += factor * matrix [out, in] times x.
void AddTimes(Vector& y, const Vector& matrix, const Vector& x, double factor = 1) {
  for (size_t i = 0; i < matrix.size(); ++i) {
    y[i / x.size()] += factor * matrix[i] * x[i % x.size()];
  }
}
// x += factor * the transpose of matrix [out, in] times y.
void AddTransposed(Vector& x, const Vector& matrix, const Vector& y, double factor = 1) {
  for (size_t i = 0; i < matrix.size(); ++i) {
    x[i % x.size()] += factor * matrix[i] * y[i / x.size()];
  }
}
// matrix [out, in] += factor * y x^T.
void AddOuter(Vector& matrix, const Vector& y, const Vector& x, double factor = 1) {
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] += factor * y[i / x.size()] * x[i % x.size()];
  }
}

// The model of expert_model.h, token by token.
class Formula {
 public:
  Formula(const Form& form, const Named& values, bool lines)
      : form_(form), values_(values), lines_(lines) {}

  // Returns the loss, and fills the gradients, in which a history's is its greatest value now.
  double Run(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
    for (const auto& [name, value] : values_) gradients[name].assign(value.size(), 0);
    double loss = 0;
    for (int64_t e = 0; e < kExperts; ++e) {
      NoteWeight(Expert(e, form_.gated ? ".gate" : ".up"), Joint(e));
      NoteWeight(Expert(e, ".down"), values_.at(Expert(e, ".down")));
    }
    for (int64_t t = 0; t < kTokens; ++t) {
      const Vector& table = values_.at("embedding");
      const Vector x(table.begin() + tokens[t] * kWidth, table.begin() + (tokens[t] + 1) * kWidth);
      const Vector dx = Token(t, x, targets[t], loss);
      for (int64_t i = 0; i < kWidth; ++i) {
        gradients["embedding"][size_t(tokens[t] * kWidth + i)] += dx[size_t(i)];
      }
    }
    return loss;
  }

  Named gradients;

 private:
  struct Choice {
    int64_t e;
    Vector first, hidden;
  };

  static std::string Expert(int64_t e, const std::string& name) {
    return "e." + std::to_string(e) + name;
  }
  // Gate and up of an expert, which share a scale.
  Vector Joint(int64_t e) const {
    Vector joint;
    if (form_.gated) joint = values_.at(Expert(e, ".gate"));
    const Vector& up = values_.at(Expert(e, ".up"));
    joint.insert(joint.end(), up.begin(), up.end());
    return joint;
  }
  static double RoundedBy(double greatest, bool gradient, double number) {
    const double scale = greatest == 0 ? 1 : (gradient ? 57344 : 448) / greatest;
    return (gradient ? ToFloat<E5M2>(RoundTo<E5M2>(number * scale))
                     : ToFloat<E4M3>(RoundTo<E4M3>(number * scale))) /
           scale;
  }
  // Rounds with the scale of a history, or of the row, and divides by the scale again.
  Vector Rounded(const std::string& weight, const std::string& what, const Vector& x) const {
    const Vector& from = lines_ ? x : values_.at(NameOfHistory(weight, what));
    double greatest = 0;
    for (const double number : from) greatest = std::max(greatest, std::abs(number));
    Vector y;
    for (const double n : x) y.push_back(RoundedBy(greatest, what == "output_gradient", n));
    return y;
  }
  // A weight [outputs, inputs], by rows or columns where scales are of lines.
  Vector RoundedWeight(const std::string& weight, const Vector& w, size_t inputs,
                       bool by_columns) const {
    if (!lines_) return Rounded(weight, "weight", w);
    Vector greatest(by_columns ? inputs : w.size() / inputs, 0.0), y;
    const auto line = [&](size_t i) { return by_columns ? i % inputs : i / inputs; };
    for (size_t i = 0; i < w.size(); ++i) {
      greatest[line(i)] = std::max(greatest[line(i)], std::abs(w[i]));
    }
    for (size_t i = 0; i < w.size(); ++i) y.push_back(RoundedBy(greatest[line(i)], false, w[i]));
    return y;
  }
  void Note(const std::string& weight, const std::string& what, const Vector& x) {
    if (lines_) return;
    double& greatest = gradients.at(NameOfHistory(weight, what))[0];
    for (const double number : x) greatest = std::max(greatest, std::abs(number));
  }
  void NoteWeight(const std::string& weight, const Vector& w) { Note(weight, "weight", w); }

  std::string First(int64_t e) const { return Expert(e, form_.gated ? ".gate" : ".up"); }
  std::string Second(int64_t e) const { return Expert(e, ".down"); }

  // y += the adapter's part.
  void AddAdapter(Vector& y, const std::string& layer, const Vector& x) const {
    Vector narrow(size_t(kRank), 0.0);
    AddTimes(narrow, values_.at(layer + kLowRankDown), x, kScale);
    AddTimes(y, values_.at(layer + kLowRankUp), narrow);
  }
  // dx += the gradient through the adapter, whose matrices get theirs.
  void AddAdapterGradient(Vector& dx, const std::string& layer, const Vector& dy, const Vector& x) {
    Vector narrow(size_t(kRank), 0.0), dnarrow = narrow;
    AddTimes(narrow, values_.at(layer + kLowRankDown), x, kScale);
    AddOuter(gradients.at(layer + kLowRankUp), dy, narrow);
    AddTransposed(dnarrow, values_.at(layer + kLowRankUp), dy, kScale);
    AddOuter(gradients.at(layer + kLowRankDown), dnarrow, x);
    AddTransposed(dx, values_.at(layer + kLowRankDown), dnarrow);
  }

  // What the second product takes, and the derivatives of that: by `first`, and by the weight.
  Vector Activate(const Vector& first, double weight) const {
    Vector hidden(first.end() - kFfn, first.end());
    for (size_t f = 0; f < hidden.size(); ++f) {
      hidden[f] = weight * (form_.gated ? hidden[f] * first[f] / (1 + std::exp(-first[f]))
                                        : std::pow(std::max(first[f], 0.0), 2));
    }
    return hidden;
  }
  Vector ActivateBackward(const Vector& first, double weight, const Vector& dhidden,
                          double& dweight) const {
    Vector dfirst(first.size());
    for (size_t f = 0; f < size_t(kFfn); ++f) {
      const double gate = first[f], dh = dhidden[f];
      if (!form_.gated) {
        const double positive = std::max(gate, 0.0);
        dweight += dh * positive * positive;
        dfirst[f] = dh * weight * 2 * positive;
        continue;
      }
      const double up = first[size_t(kFfn) + f], sigmoid = 1 / (1 + std::exp(-gate));
      dweight += dh * up * gate * sigmoid;
      dfirst[size_t(kFfn) + f] = dh * weight * gate * sigmoid;
      dfirst[f] = dh * weight * up * sigmoid * (1 + gate * (1 - sigmoid));
    }
    return dfirst;
  }

  // Forward and backward of one token. Returns the gradient of x.
  Vector Token(int64_t t, const Vector& x, int32_t target, double& loss) {
    Vector weights(size_t(kChoices), 0.0), y(size_t(kWidth), 0.0), logits(size_t(kVocab), 0.0);
    AddTimes(weights, values_.at("gate"), x);
    std::vector<Choice> choices;
    for (int64_t k = 0; k < kChoices; ++k) {
      choices.push_back(Forward(kChosen[size_t(t * kChoices + k)], x, weights[size_t(k)], y));
    }
    AddTimes(logits, values_.at("output"), y);
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    loss += (std::log(sum) - logits[size_t(target)]) / kTokens;
    Vector dlogits;
    for (const double logit : logits) dlogits.push_back(std::exp(logit) / sum / kTokens);
    dlogits[size_t(target)] -= 1.0 / kTokens;
    AddOuter(gradients.at("output"), dlogits, y);
    Vector dy(size_t(kWidth), 0.0), dx = dy, dweights(size_t(kChoices), 0.0);
    AddTransposed(dy, values_.at("output"), dlogits);
    for (size_t k = 0; k < choices.size(); ++k) {
      Backward(choices[k], x, weights[k], dy, {dx, dweights[k]});
    }
    AddOuter(gradients.at("gate"), dweights, x);
    AddTransposed(dx, values_.at("gate"), dweights);
    return dx;
  }

  Choice Forward(int64_t e, const Vector& x, double weight, Vector& y) {
    Choice choice{.e = e, .first = Vector(size_t(form_.up_width()), 0.0), .hidden = {}};
    Note(First(e), "input", x);
    AddTimes(choice.first, RoundedWeight(First(e), Joint(e), x.size(), false),
             Rounded(First(e), "input", x));
    if (form_.bias) AddTimes(choice.first, values_.at(Expert(e, ".up.bias")), {1});
    if (form_.first_adapter) AddAdapter(choice.first, Expert(e, ".first"), x);
    choice.hidden = Activate(choice.first, weight);
    Note(Second(e), "input", choice.hidden);
    AddTimes(y, RoundedWeight(Second(e), values_.at(Second(e)), choice.hidden.size(), false),
             Rounded(Second(e), "input", choice.hidden));
    if (form_.bias) AddTimes(y, values_.at(Expert(e, ".down.bias")), {weight});
    if (form_.second_adapter) AddAdapter(y, Expert(e, ".second"), choice.hidden);
    return choice;
  }

  struct Gradients {
    Vector& x;
    double& weight;
  };
  void Backward(const Choice& choice, const Vector& x, double weight, const Vector& dy,
                const Gradients& to) {
    const int64_t e = choice.e;
    Vector dhidden(size_t(kFfn), 0.0);
    Note(Second(e), "output_gradient", dy);
    const Vector dy_rounded = Rounded(Second(e), "output_gradient", dy);
    AddTransposed(dhidden,
                  RoundedWeight(Second(e), values_.at(Second(e)), choice.hidden.size(), true),
                  dy_rounded);
    AddOuter(gradients.at(Second(e)), lines_ ? dy : dy_rounded,
             lines_ ? choice.hidden : Rounded(Second(e), "input", choice.hidden));
    if (form_.second_adapter) {
      AddAdapterGradient(dhidden, Expert(e, ".second"), dy, choice.hidden);
    }
    if (form_.bias) {
      AddTimes(gradients.at(Expert(e, ".down.bias")), dy, {weight});
      for (size_t i = 0; i < dy.size(); ++i) {
        to.weight += dy[i] * values_.at(Expert(e, ".down.bias"))[i];
      }
    }
    const Vector dfirst = ActivateBackward(choice.first, weight, dhidden, to.weight);
    Note(First(e), "output_gradient", dfirst);
    const Vector dfirst_rounded = Rounded(First(e), "output_gradient", dfirst);
    AddTransposed(to.x, RoundedWeight(First(e), Joint(e), x.size(), true), dfirst_rounded);
    Vector joint(size_t(form_.up_width() * kWidth), 0.0);
    AddOuter(joint, lines_ ? dfirst : dfirst_rounded, lines_ ? x : Rounded(First(e), "input", x));
    for (size_t i = 0; i < joint.size(); ++i) {
      const size_t of_gate = form_.gated ? size_t(kFfn * kWidth) : 0;
      if (i < of_gate) {
        gradients.at(Expert(e, ".gate"))[i] += joint[i];
      } else {
        gradients.at(Expert(e, ".up"))[i - of_gate] += joint[i];
      }
    }
    if (form_.bias) AddTimes(gradients.at(Expert(e, ".up.bias")), dfirst, {1});
    if (form_.first_adapter) AddAdapterGradient(to.x, Expert(e, ".first"), dfirst, x);
  }

  const Form form_;
  const Named& values_;
  const bool lines_;
};

std::unique_ptr<Executable> BindChosen(const Form& form, const Precision& precision) {
  const ExpertModel model(form);
  const RecordOptions options{
      .precision = precision, .sequence = kTokens, .expert_rows = form.expert_rows};
  auto executable = Bind(RecordTraining(model, {.record = options, .optimizer = {}}), 1, 1, {});
  executable->WriteInput("tokens", 0, Tokens(kTokens, kVocab, 1));
  executable->WriteInput("targets", 0, Tokens(kTokens, kVocab, 2));
  executable->WriteInput("experts", 0, kChosen);
  return executable;
}

// Experts have seen different values, and expert 2 has seen nothing. Some of what comes is greater
// than what was seen, and is cut off.
void WriteHistories(const Executable& executable) {
  int i = 0;
  for (const ParameterBox& box : executable.program().Parameters()) {
    if (!IsNameOfHistory(box.name)) continue;
    double* const history = executable.flat(FlatBuffer::kMaster, box.flat).as<double>();
    ASSERT_EQ(box.flat.elements, kSteps);
    const bool nothing = box.name.starts_with("e.2.");
    for (int64_t n = 0; n < kSteps; ++n) {
      history[n] = nothing ? 0 : 0.05 * double((++i * 7 + n * 5) % 11 + 1);
    }
  }
}

class ExpertRoundingTest : public ::testing::TestWithParam<Form> {};

// Runs a step and compares all with the formulas.
void ExpectFormulas(const Form& form, Executable& executable, bool lines) {
  const FlatRange all{.elements = executable.program().flat_elements};
  double* const stale = executable.flat(FlatBuffer::kGradient, all).as<double>();
  std::fill_n(stale, all.elements, 7.0);  // Must not matter.
  executable.WriteStepState({.step = 1, .loss_scale = 1.0 / kTokens});
  executable.Run(Action::kForward);
  executable.Run(Action::kBackward);
  const Named values = Flat(executable, FlatBuffer::kMaster);
  Formula formula(form, values, lines);
  const double loss = formula.Run(Tokens(kTokens, kVocab, 1), Tokens(kTokens, kVocab, 2));
  EXPECT_NEAR(executable.ReadStepState().loss, loss, 1e-12 * std::abs(loss));
  for (const auto& [name, got] : Flat(executable, FlatBuffer::kGradient)) {
    SCOPED_TRACE(name);
    ExpectClose(got, formula.gradients.at(name), 1e-11);
  }
}

TEST_P(ExpertRoundingTest, WithScalesOfLinesLossAndGradientsAreThoseOfTheFormulas) {
  const auto executable = BindChosen(GetParam(), ByLines());
  for (const ParameterBox& box : executable->program().Parameters()) {
    EXPECT_FALSE(IsNameOfHistory(box.name)) << box.name;
  }
  ExpectFormulas(GetParam(), *executable, true);
}

TEST_P(ExpertRoundingTest, LossGradientsAndHistoriesAreThoseOfTheFormulas) {
  const auto executable = BindChosen(GetParam(), Delayed());
  WriteHistories(*executable);
  ExpectFormulas(GetParam(), *executable, false);
  // Nobody chose expert 3.
  const Named gradients = Flat(*executable, FlatBuffer::kGradient);
  EXPECT_EQ(gradients.at("e.3.down.amax.input"), Vector(size_t(kSteps), 0.0));
  EXPECT_GT(gradients.at("e.3.down.amax.weight")[0], 0);
}

INSTANTIATE_TEST_SUITE_P(Forms, ExpertRoundingTest,
                         ::testing::Values(Form{}, Form{.gated = false}, Form{.expert_rows = 0.3},
                                           Form{.bias = true},
                                           Form{.gated = false, .expert_rows = 0.3, .bias = true},
                                           Form{.first_adapter = true, .second_adapter = true},
                                           Form{true, 0.3, true, true, true}),
                         [](const auto& info) { return "form_" + std::to_string(info.index); });

TEST(ExpertRounding, LayersThatAJobLeavesOutRoundNothing) {
  const ExpertModel model;
  const RecordOptions options{.precision = Delayed(), .sequence = kTokens, .plain = {.first = 1}};
  const Program program = RecordTraining(model, {.record = options, .optimizer = {}});
  for (const ParameterBox& box : program.Parameters()) {
    EXPECT_FALSE(IsNameOfHistory(box.name)) << box.name;
  }
}

TEST(ExpertRounding, FrozenExpertsNoteWhatTheySee) {
  const ExpertModel model;
  const RecordOptions options{.precision = Delayed(), .sequence = kTokens};
  const auto frozen = [](const ParameterSpec& spec) { return spec.stacked; };
  const auto executable =
      Bind(RecordTraining(model, {.record = options, .optimizer = {}, .frozen = frozen}), 1, 1, {});
  executable->WriteInput("tokens", 0, Tokens(kTokens, kVocab, 1));
  executable->WriteInput("targets", 0, Tokens(kTokens, kVocab, 2));
  executable->WriteInput("experts", 0, kChosen);
  executable->WriteStepState({.step = 1, .loss_scale = 1.0 / kTokens});
  executable->Run(Action::kForward);
  executable->Run(Action::kBackward);
  const Named noted = Flat(*executable, FlatBuffer::kGradient);
  for (const char* weight : {"e.0.gate", "e.0.down"}) {
    for (const char* operand : {"input", "weight", "output_gradient"}) {
      EXPECT_GT(noted.at(NameOfHistory(weight, operand))[0], 0) << weight << ' ' << operand;
    }
  }
}

// Nothing would note their histories.
TEST(ExpertRounding, ExpertsThatNoGradientReachesRoundNothing) {
  const ExpertModel model;
  const RecordOptions options{.precision = Delayed(), .sequence = kTokens};
  const auto frozen = [](const ParameterSpec& spec) { return spec.name != "output"; };
  const Program program =
      RecordTraining(model, {.record = options, .optimizer = {}, .frozen = frozen});
  for (const ParameterBox& box : program.Parameters()) {
    EXPECT_FALSE(IsNameOfHistory(box.name)) << box.name;
  }
}

}  // namespace
}  // namespace trainyard::testing
