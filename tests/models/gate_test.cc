// Proves the ops of a gate of experts and of normalised heads, each in a small model in f64: every
// gradient against central differences of both losses; what takes the place of a gradient for the
// bias of the choice, and that it moves by its rate, outside of the gradient norm; that two ranks
// share one loss of uneven choices.
#include <cmath>
#include <map>

#include "gtest/gtest.h"
#include "models/language_model.h"
#include "models/program/ops/ops.h"
#include "tests/models/tiny.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/ranks.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSequence = 6, kVocab = 7, kExperts = 5, kChoices = 2;
constexpr double kRate = 0.125;
constexpr ops::Heads kHeads = {.heads = 3, .kv_heads = 1, .head_dim = 4, .sequence = kSequence};

ParameterSpec Normal(const std::string& name, const Shape& shape) {
  return {.name = name, .shape = shape, .init = Init::Normal(0.5)};
}

// Embedding, something between, output projection.
class SmallModel : public LanguageModel {
 public:
  explicit SmallModel(int64_t width) : LanguageModel(kVocab), width_(width) {}
  int64_t layers() const override { return 1; }
  int64_t max_sequence() const override { return kSequence; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    return ops::Embedding(recorder, recorder.Parameter(Normal("embedding", {kVocab, width_})),
                          tokens);
  }
  Projection Head(Recorder& recorder, const Carried& carried) const override {
    return {.x = carried.only(), .weight = recorder.Parameter(Normal("output", {kVocab, width_}))};
  }

 private:
  int64_t width_;
};

class HeadNormModel final : public SmallModel {
 public:
  HeadNormModel() : SmallModel((kHeads.heads + 2 * kHeads.kv_heads) * kHeads.head_dim) {}
  Carried Block(Recorder& recorder, int64_t, const Carried& carried) const override {
    const Value x = carried.only();
    const Value query = recorder.Parameter(Normal("query", {kHeads.head_dim}));
    const Value key = recorder.Parameter(Normal("key", {kHeads.head_dim}));
    const Value y = ops::HeadNorm(recorder, x, {query, key, {.eps = 1e-5}}, kHeads);
    return ops::Add(recorder, x, y);  // A second use: the gradients of x are summed.
  }
};

// What the gate's weights are worth is a projection of them, in place of experts.
class GateModel final : public SmallModel {
 public:
  explicit GateModel(const RouterOptions& options) : SmallModel(4), options_(options) {}
  Carried Block(Recorder& recorder, int64_t, const Carried& carried) const override {
    const Value x = carried.only();
    const Value logits = ops::Linear(recorder, ProductKind::kRouter, x,
                                     recorder.Parameter(Normal("gate", {kExperts, 4})));
    ParameterSpec bias = Normal("bias", {kExperts});
    bias.unrounded = true;
    bias.state = StateRule::BalanceBias(kRate);
    const ops::Routing routing = ops::Router(recorder, logits, recorder.Parameter(bias), options_);
    if (recorder.program().training) {
      ops::LoadBalance(recorder, logits, routing.experts,
                       {.scoring = options_.scoring, .coefficient = 0.3});
    }
    recorder.KeepOutput("experts", routing.experts);
    const Value worth = recorder.Parameter(Normal("worth", {4, kChoices}));
    return ops::Add(recorder, x, ops::Linear(recorder, routing.weights, worth));
  }

 private:
  RouterOptions options_;
};

TrainingOptions Options(int64_t sequences, const Mesh& mesh = {}) {
  return {.record = {.precision = Precision::F64(),
                     .micro_batch = sequences,
                     .sequence = kSequence,
                     .mesh = mesh},
          .optimizer = {}};
}

// Losses of the sequences from `first` of a batch of two; forward alone, or backward, too.
StepState Losses(Executable& executable, int64_t first, bool with_backward) {
  const auto tokens = Tokens(2 * kSequence, kVocab, 1), targets = Tokens(2 * kSequence, kVocab, 2);
  const size_t begin = size_t(first * kSequence), count = size_t(executable.program().tokens());
  executable.WriteStepState({.step = 1, .loss_scale = 1.0 / (2 * kSequence), .seed = 1});
  executable.WriteInput("tokens", 0, std::span(tokens).subspan(begin, count));
  executable.WriteInput("targets", 0, std::span(targets).subspan(begin, count));
  executable.Run(Action::kForward, {.validation = !with_backward});
  if (with_backward) executable.Run(Action::kBackward);
  return executable.ReadStepState();
}

const ParameterBox& BoxOf(const std::vector<ParameterBox>& boxes, const std::string& name) {
  for (const ParameterBox& box : boxes) {
    if (box.name == name) return box;
  }
  CHECK(false) << "no " << name;
  std::abort();
}

// The bias left out: what is in its gradient's place is none.
void ExpectGradients(const Model& model) {
  const auto executable = Bind(RecordTraining(model, Options(2)));
  Losses(*executable, 0, true);
  for (const ParameterBox& box : executable->program().Parameters()) {
    if (box.name == "bias") continue;
    SCOPED_TRACE(box.name);
    const auto got = ReadFlat(*executable, FlatBuffer::kGradient, box.flat);
    double* weights = executable->flat(FlatBuffer::kMaster, box.flat).as<double>();
    std::vector<double> x(weights, weights + got.size());
    const auto want = NumericGrad(x, [&] {
      std::copy(x.begin(), x.end(), weights);
      const StepState state = Losses(*executable, 0, false);
      return state.loss + state.auxiliary_loss;
    });
    std::copy(x.begin(), x.end(), weights);
    ExpectClose(got, want, 1e-8);
    EXPECT_GT(Dot(Array<double>{{int64_t(want.size())}, want}, {{int64_t(want.size())}, want}), 0);
  }
}

TEST(HeadNormOpTest, GradientsMatchCentralDifferences) { ExpectGradients(HeadNormModel()); }

constexpr RouterOptions kSoftmax = {.top_k = kChoices, .normalize = true};
constexpr RouterOptions kSigmoid = {
    .scoring = RouterScoring::kSigmoid, .top_k = kChoices, .scale = 2.5};

TEST(RouterOpTest, GradientsMatchCentralDifferences) {
  ExpectGradients(GateModel(kSoftmax));
  ExpectGradients(GateModel(kSigmoid));
}

// In the second step the deviation must replace that of the first.
TEST(RouterOpTest, TheBiasMovesByItsRateAgainstTheDeviation) {
  const auto executable = Bind(RecordTraining(GateModel(kSigmoid), Options(2)));
  const auto boxes = executable->program().Parameters();
  const FlatRange bias = BoxOf(boxes, "bias").flat;
  for (int step = 0; step < 2; ++step) {
    Losses(*executable, 0, true);
    std::vector<int32_t> chosen(size_t(2 * kSequence * kChoices));
    executable->ReadOutput("experts", 0, chosen.data(), chosen.size() * sizeof(int32_t));
    std::vector<double> deviation(kExperts, -double(chosen.size()));
    for (const int32_t e : chosen) deviation[size_t(e)] += kExperts;
    EXPECT_EQ(ReadFlat(*executable, FlatBuffer::kGradient, bias), deviation);

    double squares = 0;
    for (const ParameterBox& box : boxes) {
      if (box.name == "bias") continue;
      for (const double g : ReadFlat(*executable, FlatBuffer::kGradient, box.flat)) {
        squares += g * g;
      }
    }
    auto want = ReadFlat(*executable, FlatBuffer::kMaster, bias);
    for (size_t e = 0; e < want.size(); ++e) {
      want[e] -= kRate * double((deviation[e] > 0) - (deviation[e] < 0));
    }
    executable->Run(Action::kOptimizer);  // The learning rate is 0: AdamW would leave it.
    EXPECT_EQ(ReadFlat(*executable, FlatBuffer::kMaster, bias), want);
    EXPECT_NEAR(executable->ReadStepState().grad_norm, std::sqrt(squares), 1e-12);
  }
}

// The ops of a recorded model's gate with their attributes, each once.
std::map<std::string, std::string> GateOf(const MoeConfig& moe) {
  ModelConfig config = TinyMoe();
  AsDecoder(config).moe = moe;
  const Program program = RecordTraining(
      *CreateModel(config), {.record = {.precision = Precision::F64(), .sequence = 4}});
  std::map<std::string, std::string> ops;
  for (const Instance& instance : program.instances) {
    const std::string name(instance.op->name());
    if (name == "router") {
      ops["biased"] = instance.inputs.size() > 1 ? "yes" : "no";
      ops[name] = instance.op->attributes();
    } else if (name == "load_balance") {
      ops[name] = instance.op->attributes();
    } else if (name == "balance_bias") {
      const std::string attributes = instance.op->attributes();
      ops[name] = attributes.substr(attributes.rfind(' ') + 1);
    }
  }
  return ops;
}

// Bug it must catch: a field of a model's experts that is ignored, in the gate's forward and in its
// backward alike.
TEST(MoeGateTest, IsWhatTheFieldsSay) {
  using Ops = std::map<std::string, std::string>;
  constexpr char kPlain[] = "scoring=0 top_k=2 groups=1 top_groups=1 normalize=1 scale=1 choice=0";
  EXPECT_EQ(GateOf({.experts = 6, .top_k = 2, .expert_ffn = 5}),
            (Ops{{"biased", "no"}, {"router", kPlain}}));
  EXPECT_EQ(
      GateOf({.experts = 6, .top_k = 2, .expert_ffn = 5, .aux_loss = 0.25}),
      (Ops{{"biased", "no"}, {"load_balance", "scoring=0 coefficient=0.25"}, {"router", kPlain}}));
  EXPECT_EQ(
      GateOf({.experts = 6,
              .top_k = 3,
              .expert_ffn = 5,
              .router = RouterScoring::kSigmoid,
              .expert_bias = true,
              .bias_update_rate = 0.125,
              .aux_loss = 0.5,
              .aux_loss_scope = BalanceScope::kSequence,
              .groups = 3,
              .topk_groups = 2,
              .norm_topk = false,
              .routed_scaling = 2.5,
              .fake_balanced = true}),
      (Ops{{"balance_bias", "rate=0.125"},
           {"biased", "yes"},
           {"load_balance", "scoring=1 coefficient=0.5 per_sequence"},
           {"router", "scoring=1 top_k=3 groups=3 top_groups=2 normalize=0 scale=2.5 choice=1"}}));
}

// A sequence on each of two ranks: the fractions are of both, and losses and gradients add up to
// those of one rank.
TEST(LoadBalanceOpTest, RanksShareOneLoss) {
  const auto whole = Bind(RecordTraining(GateModel(kSoftmax), Options(2)));
  Losses(*whole, 0, true);
  whole->Run(Action::kOptimizer);
  const StepState want = whole->ReadStepState();
  // By name: with other ranks parameters lie in another order.
  const auto gradients_of = [](const Executable& executable) {
    std::map<std::string, std::vector<double>> by_name;
    for (const ParameterBox& box : executable.program().Parameters()) {
      by_name[box.name] = ReadFlat(executable, FlatBuffer::kGradient, box.flat);
    }
    return by_name;
  };
  std::vector<StepState> got(2);
  std::vector<std::map<std::string, std::vector<double>>> gradients(2);
  const auto errors = RunWorlds(2, [&](CollectiveWorld& world) {
    const int rank = world.rank();
    const auto compute = *world.Group("compute", {0, 1});
    const auto communication = *world.Group("communication", {0, 1});
    const auto executable =
        Bind(RecordTraining(GateModel(kSoftmax), Options(1, {.data = 2, .rank = rank})), 1, 1,
             {{{Stream::kCompute, Axis::kData}, compute.get()},
              {{Stream::kCommunication, Axis::kData}, communication.get()}});
    got[size_t(rank)] = Losses(*executable, rank, true);
    executable->Run(Action::kOptimizer);
    const StepState after = executable->ReadStepState();
    EXPECT_NEAR(after.auxiliary_loss, want.auxiliary_loss, 1e-14);
    EXPECT_NEAR(after.loss, want.loss, 1e-14);
    EXPECT_NEAR(after.grad_norm, want.grad_norm, 1e-12);
    gradients[size_t(rank)] = gradients_of(*executable);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_NEAR(got[0].auxiliary_loss + got[1].auxiliary_loss, want.auxiliary_loss, 1e-14);
  EXPECT_GT(want.auxiliary_loss, 0);
  for (const auto& [name, gradient] : gradients_of(*whole)) {
    for (const auto& of_rank : gradients) ExpectClose(of_rank.at(name), gradient, 1e-12);
  }
}

}  // namespace
}  // namespace trainyard::testing
