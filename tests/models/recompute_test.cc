// Proves that what is computed again in backward gives the same bits as what was kept, counts no
// loss twice, and takes the memory that it should.
#include <gtest/gtest.h>

#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSequence = 6;

Program Record(const Model& model, const RecomputeOptions& recompute,
               const Precision& precision = Precision::F32(), double expert_rows = 2) {
  return RecordTraining(
      model, {.record = {.precision = precision, .sequence = kSequence, .expert_rows = expert_rows},
              .optimizer = {},
              .recompute = recompute});
}

struct Result {
  std::vector<double> losses, auxiliary_losses, norms, gradients, weights;
  bool operator==(const Result&) const = default;
};

// Two steps of two micro-batches; with `slots` = 2 these are in flight together.
Result Train(Program program, int slots) {
  const auto executable = Bind(std::move(program), /*seed=*/3, slots);
  const FlatRange all{.elements = executable->program().flat_elements};
  Result result;
  for (int64_t step = 1; step <= 2; ++step) {
    executable->WriteStepState(
        {.step = step, .learning_rate = 0.01, .loss_scale = 0.1, .clip_norm = 0.5});
    const auto run = [&](Action action, int k) {
      executable->Run(action, {.slot = k % slots, .first = k == 0, .last = k == 1});
    };
    for (int k : {0, 1}) {
      for (const char* input : {"tokens", "targets"}) {
        executable->WriteInput(input, k % slots, Tokens(kSequence, 13, uint64_t(step + 10 * k)));
      }
      run(Action::kForward, k);
      if (slots == 1) run(Action::kBackward, k);
    }
    if (slots == 2) {
      for (int k : {0, 1}) run(Action::kBackward, k);
    }
    executable->Run(Action::kOptimizer);
    result.losses.push_back(executable->ReadStepState().loss);
    result.auxiliary_losses.push_back(executable->ReadStepState().auxiliary_loss);
    result.norms.push_back(executable->ReadStepState().grad_norm);
  }
  result.gradients = ReadFlat(*executable, FlatBuffer::kGradient, all);
  result.weights = ReadFlat(*executable, FlatBuffer::kMaster, all);
  return result;
}

int Count(const Program& program, List list, absl::string_view op) {
  return int(
      std::count_if(program.instances.begin(), program.instances.end(),
                    [&](const Instance& i) { return i.list == list && i.op->name() == op; }));
}

constexpr RecomputeOptions kKinds[] = {{.norms_and_activations = true},
                                       {.blocks = 1},
                                       {.blocks = 2},
                                       {.blocks = 1, .norms_and_activations = true}};

TEST(RecomputeTest, GivesTheSameBits) {
  for (const Precision& precision : {Precision::F64(), Precision::F32(), Precision::BF16()}) {
    for (const ModelConfig& config : {TinyLlama(), TinyLlama(/*tied=*/true), TinyGpt3()}) {
      const auto model = CreateModel(config);
      for (const int slots : {1, 2}) {
        const Result want = Train(Record(*model, {}, precision), slots);
        for (const RecomputeOptions& kind : kKinds) {
          EXPECT_EQ(Train(Record(*model, kind, precision), slots), want)
              << config.family() << ' ' << kind.blocks << ' ' << kind.norms_and_activations;
        }
      }
    }
  }
}

// In one round, and in several, of which backward sends the rows itself.
TEST(RecomputeTest, ExpertsGiveTheSameBits) {
  const auto model = CreateModel(TinyMoe());
  for (const Precision& precision : {Precision::F64(), Precision::F32(), Precision::BF16()}) {
    for (const double rows : {2.0, 0.3}) {
      for (const int slots : {1, 2}) {
        const Result want = Train(Record(*model, {}, precision, rows), slots);
        EXPECT_GT(want.auxiliary_losses[0], 0);
        for (const RecomputeOptions& kind : kKinds) {
          EXPECT_EQ(Train(Record(*model, kind, precision, rows), slots), want)
              << kind.blocks << ' ' << kind.norms_and_activations << ' ' << rows;
        }
      }
    }
  }
}

// A value that was never computed again, or of another block, would be seen.
TEST(RecomputeTest, AStaleInputIsSeen) {
  const auto model = CreateModel(TinyLlama());
  Program program = Record(*model, {.norms_and_activations = true});
  std::vector<Instance*> norms;  // Of the backward lists.
  for (Instance& instance : program.instances) {
    if (IsBackward(instance.list) && instance.op->name() == "rms_norm") norms.push_back(&instance);
  }
  ASSERT_EQ(norms.size(), 5u);
  norms[1]->inputs[0] = norms[2]->inputs[0];
  EXPECT_NE(Train(std::move(program), 1), Train(Record(*model, {}), 1));
}

TEST(RecomputeTest, IsWhatTheOptionsSay) {
  const auto model = CreateModel(TinyLlama());
  const Program none = Record(*model, {});
  EXPECT_EQ(Count(none, List::kBackwardInput, "matmul"), 0);
  EXPECT_EQ(Count(none, List::kBackwardInput, "rms_norm"), 0);

  const Program cheap = Record(*model, {.norms_and_activations = true});
  EXPECT_EQ(Count(cheap, List::kBackwardInput, "rms_norm"), 2 * 2 + 1);
  EXPECT_EQ(Count(cheap, List::kBackwardInput, "swiglu"), 2);
  EXPECT_EQ(Count(cheap, List::kBackwardInput, "matmul"), 0);

  // Of a block's four products nobody needs the last one's result.
  const Program block = Record(*model, {.blocks = 1});
  EXPECT_EQ(Count(block, List::kBackwardInput, "matmul"), 3);
  EXPECT_EQ(Count(block, List::kBackwardInput, "attention"), 1);
  EXPECT_EQ(Count(block, List::kForward, "matmul"), Count(none, List::kForward, "matmul"));
  for (const Instance& instance : block.instances) {
    if (instance.list == List::kBackwardInput && instance.op->name() == "matmul") {
      EXPECT_EQ(instance.block, 1);
    }
  }
}

// Nobody needs what the experts of a block give, so their last product is left out.
TEST(RecomputeTest, OfExpertsWhatBackwardReadsIsComputedAgain) {
  const auto model = CreateModel(TinyMoe());
  const Program none = Record(*model, {}), block = Record(*model, {.blocks = 1});
  for (const Program* program : {&none, &block}) {
    EXPECT_EQ(Count(*program, List::kForward, "expert_mlp"), 2);
    EXPECT_EQ(Count(*program, List::kBackwardInput, "expert_mlp"), 0);
  }
  EXPECT_EQ(Count(none, List::kBackwardInput, "expert_mlp_arrival"), 0);
  EXPECT_EQ(Count(block, List::kBackwardInput, "expert_mlp_arrival"), 1);
  // The rest is attention, as in a dense block.
  const auto flops = [&](const ModelConfig& config) {
    const auto again = [&](int64_t blocks) {
      return Record(*CreateModel(config), {.blocks = blocks}).CostOf(List::kBackwardInput).flops;
    };
    return again(1) - again(0);
  };
  const double gate = 2.0 * 6 * 12 * 6, choices = 2.0 * 12 * 12 * (2 * 5);
  const double gate_up = 2.0 * 6 * 12 * (2 * 20);
  EXPECT_EQ(flops(TinyMoe()) - gate - choices, flops(TinyLlama()) - gate_up);
}

// Llama whose blocks have losses of their own, as routers have.
class WithBlockLosses final : public Model {
 public:
  WithBlockLosses() : llama_(CreateModel(TinyLlama())) {}
  int64_t layers() const override { return llama_->layers(); }
  int64_t max_sequence() const override { return llama_->max_sequence(); }
  std::vector<InputSpec> inputs() const override { return llama_->inputs(); }
  Carried Start(Recorder& recorder) const override { return llama_->Start(recorder); }
  Carried Block(Recorder& recorder, int64_t layer, const Carried& carried) const override {
    const Value x = llama_->Block(recorder, layer, carried).only();
    const Value weight = recorder.Parameter({.name = "router." + std::to_string(layer),
                                             .shape = {13, AsDecoder(TinyLlama()).hidden},
                                             .init = Init::Normal(1)});
    ops::LinearCrossEntropy(recorder, ops::Add(recorder, x, x), weight, recorder.Read("tokens"),
                            kTensorAxes);
    return x;
  }
  void Loss(Recorder& recorder, const Carried& carried) const override {
    llama_->Loss(recorder, carried);
  }
  void KeepOutputs(Recorder& recorder, const Carried& carried) const override {
    llama_->KeepOutputs(recorder, carried);
  }

 private:
  std::unique_ptr<Model> llama_;
};

TEST(RecomputeTest, CountsLossesOfABlockOnce) {
  const WithBlockLosses model;
  const Result want = Train(Record(model, {}), 1);
  for (const RecomputeOptions& kind : kKinds) {
    const Program program = Record(model, kind);
    EXPECT_EQ(Count(program, List::kForward, "linear_cross_entropy"), 3);
    EXPECT_EQ(Count(program, List::kBackwardInput, "linear_cross_entropy"), 0);
    EXPECT_EQ(Count(program, List::kBackwardInput, "linear_cross_entropy_backward"), 3);
    EXPECT_EQ(Train(program, 1), want) << kind.blocks << ' ' << kind.norms_and_activations;
  }
}

// Sizes of which every activation is a multiple of the plan's alignment.
ModelConfig Aligned(int64_t layers) {
  ModelConfig config = TinyLlama();
  AsDecoder(config).layers = layers;
  AsDecoder(config).hidden = 64;
  AsDecoder(config).ffn = 192;
  AsDecoder(config).heads = 8;
  AsDecoder(config).kv_heads = 4;
  AsDecoder(config).head_dim = 8;
  AsDecoder(config).max_seq = 64;
  return config;
}

constexpr int64_t kRows = 64;  // Tokens of a micro-batch.

size_t ActivationBytes(int64_t layers, const RecomputeOptions& recompute) {
  const Program program =
      RecordTraining(*CreateModel(Aligned(layers)),
                     {.record = {.sequence = kRows}, .optimizer = {}, .recompute = recompute});
  return PlanMemory(program).activation_bytes();
}

TEST(RecomputeTest, ABlockComputedAgainKeepsItsResidualAlone) {
  const size_t residual = kRows * 64 * sizeof(float);
  const int64_t layers = 8;
  // What one block needs while it runs, and the residual that each other block starts from.
  EXPECT_LE(ActivationBytes(layers, {.blocks = layers}),
            ActivationBytes(1, {}) + size_t(layers - 1) * residual);
  // Each saves what a layer keeps besides. All but the last: its backward comes first, and needs
  // that anyway.
  const size_t kept = ActivationBytes(layers + 1, {}) - ActivationBytes(layers, {});
  for (int64_t blocks = 1; blocks < layers; ++blocks) {
    EXPECT_EQ(ActivationBytes(layers, {.blocks = blocks - 1}) -
                  ActivationBytes(layers, {.blocks = blocks}),
              kept - residual);
  }
  EXPECT_LE(ActivationBytes(layers, {.blocks = layers}),
            ActivationBytes(layers, {.blocks = layers - 1}));
}

TEST(RecomputeTest, NormsAndActivationsAreNotKept) {
  const auto per_layer = [](const RecomputeOptions& recompute) {
    return ActivationBytes(8, recompute) - ActivationBytes(7, recompute);
  };
  // Two norms with a statistic of each row, and the gated activation.
  const size_t saved = sizeof(float) * kRows * (2 * (64 + 1) + 192);
  EXPECT_EQ(per_layer({}) - per_layer({.norms_and_activations = true}), saved);
}

}  // namespace
}  // namespace trainyard::testing
