// Proves what is one pass over memory where it could be several: what Fuse joins, and where it must
// not; and what is recorded so from the start. That the numbers stay is
// tests/train/step/fusion_test.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/program/low_rank.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"
#include "tests/models/tiny.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing {
namespace {

int Count(const Program& program, List list, absl::string_view op) {
  return int(
      std::count_if(program.instances.begin(), program.instances.end(),
                    [&](const Instance& i) { return i.list == list && i.op->name() == op; }));
}

// The one instance of an op in a block of a list.
const Instance& Find(const Program& program, List list, absl::string_view op, int block) {
  const Instance* found = nullptr;
  for (const Instance& instance : program.instances) {
    if (instance.list != list || instance.op->name() != op || instance.block != block) continue;
    CHECK(found == nullptr) << "two of " << op << " in block " << block;
    found = &instance;
  }
  CHECK(found != nullptr) << "no " << op << " in block " << block;
  return *found;
}

// Of a block's two adds one is fused, with the norm that follows it in the block; backward then
// adds its gradient to that of the residual stream, too.
TEST(FuseTest, ABlocksFirstAddIsFusedWithItsSecondNorm) {
  for (const auto& [config, norm] : {std::pair{TinyLlama(), std::string("rms_norm")},
                                     {TinyGpt3(), "layer_norm"},
                                     {TinyMoe(), "rms_norm"}}) {
    RecordOptions options{.sequence = 4};
    const Program fused = RecordTraining(*CreateModel(config), {.record = options});
    options.fuse = false;
    const Program apart = RecordTraining(*CreateModel(config), {.record = options});
    const auto fewer = [&](List list, const std::string& op) {
      return Count(apart, list, op) - Count(fused, list, op);
    };
    const int layers = int(AsDecoder(config).layers);
    EXPECT_EQ(fewer(List::kForward, "add_" + norm), -layers);
    EXPECT_EQ(fewer(List::kForward, norm), layers);
    EXPECT_EQ(fewer(List::kForward, "add"), layers);
    EXPECT_EQ(fewer(List::kBackwardInput, "add"), layers);
    EXPECT_EQ(fewer(List::kBackwardInput, norm + "_backward"), 0);
    const int gelus = Count(apart, List::kForward, "gelu");
    const int head_norms = Count(apart, List::kForward, "head_norm");
    EXPECT_EQ(apart.instances.size() - fused.instances.size(),
              size_t(2 * layers + 2 * gelus + 2 * head_norms));
  }
}

// The gradient of an adapted layer's input is the sum of those of the adapter and of the weight.
// The product with the weight adds to the adapter's, which was computed before. A job without an
// adapter adds as it did.
TEST(FuseTest, TheFrozenWeightsProductIsAddedToTheAdaptersGradient) {
  const ModelConfig config = TinyLlama();
  const auto record = [&](int64_t rank, const Recorder::IsFrozen& frozen) {
    return RecordTraining(*CreateModel(config),
                          {.record = {.sequence = 4, .adapter = {.rank = rank}}, .frozen = frozen});
  };
  const Program adapted =
      record(2, [](const ParameterSpec& spec) { return !IsLowRank(spec.name); });
  const int layers = int(AsDecoder(config).layers);
  // The first layer's first product has an input without a gradient.
  EXPECT_EQ(Count(adapted, List::kBackwardInput, "matmul_input_gradient_add"), 4 * layers - 1);
  EXPECT_EQ(Count(adapted, List::kForward, "thin_products"), 4 * layers);
  EXPECT_EQ(Count(adapted, List::kForward, "concat_columns"), 0);
  for (const Instance& instance : adapted.instances) {
    if (instance.op->name() != "matmul_input_gradient_add") continue;
    EXPECT_TRUE(instance.op->MayAlias(0, 2));
    EXPECT_FALSE(instance.op->MayAlias(0, 0));
  }
  const Program whole = record(0, nullptr);
  EXPECT_EQ(Count(whole, List::kBackwardInput, "matmul_input_gradient_add"), 0);
}

// Backward is recorded as one pass, too, and reads what forward read.
TEST(FuseTest, NormalisedHeadsAreRotatedInTheSamePass) {
  const ModelConfig config = TinyMoe();
  const Program program = RecordTraining(*CreateModel(config), {.record = {.sequence = 4}});
  for (const List list : {List::kForward, List::kBackwardInput}) {
    for (const char* op : {"head_norm", "rope", "head_norm_backward", "rope_backward"}) {
      EXPECT_EQ(Count(program, list, op), 0) << op;
    }
  }
  for (int block = 1; block <= int(AsDecoder(config).layers); ++block) {
    const Instance& forward = Find(program, List::kForward, "head_norm_rope", block);
    const Instance& backward =
        Find(program, List::kBackwardInput, "head_norm_rope_backward", block);
    ASSERT_EQ(forward.inputs.size(), 5u);
    ASSERT_EQ(backward.inputs.size(), 7u);
    EXPECT_EQ(backward.inputs[1], forward.inputs[0]) << "what was normalised";
    EXPECT_EQ(backward.inputs[5], forward.inputs[3]) << "cos";
    EXPECT_EQ(backward.inputs[6], forward.inputs[4]) << "sin";
  }
}

// The product before GELU computes it, and so does the one behind it, backward; what the former
// kept, backward reads.
TEST(FuseTest, ProductsTakeGeluAndItsGradient) {
  const ModelConfig config = TinyGpt3();
  const Program program = RecordTraining(*CreateModel(config), {.record = {.sequence = 4}});
  EXPECT_EQ(Count(program, List::kForward, "gelu"), 0);
  EXPECT_EQ(Count(program, List::kBackwardInput, "gelu_backward"), 0);
  for (int block = 1; block <= int(AsDecoder(config).layers); ++block) {
    const Instance& forward = Find(program, List::kForward, "matmul_gelu", block);
    const Instance& backward = Find(program, List::kBackwardInput, "matmul_gelu_backward", block);
    ASSERT_EQ(forward.inputs.size(), 3u);
    ASSERT_EQ(forward.outputs.size(), 2u);
    EXPECT_EQ(backward.inputs[2], forward.outputs[1]);
    const Shape up = program.info(forward.inputs[1]).shape;
    EXPECT_EQ(program.info(backward.inputs[1]).shape, Shape({up[1], up[0]}));
  }
}

// Blocks are computed again as they were; activations alone are apart from their products from the
// start, so that they are computed again by the kernel of the first time.
TEST(FuseTest, GeluIsComputedAgainAsItWas) {
  const auto count = [](const RecomputeOptions& recompute, List list, absl::string_view op) {
    const TrainingOptions options = {.record = {.sequence = 4}, .recompute = recompute};
    return Count(RecordTraining(*CreateModel(TinyGpt3()), options), list, op);
  };
  const int layers = int(AsDecoder(TinyGpt3()).layers);
  const RecomputeOptions activations{.norms_and_activations = true}, blocks{.blocks = layers};
  for (const List list : {List::kForward, List::kBackwardInput}) {
    EXPECT_EQ(count(activations, list, "gelu"), layers);
    EXPECT_EQ(count(activations, list, "matmul_gelu"), 0);
    EXPECT_EQ(count(blocks, list, "gelu"), 0);
    EXPECT_EQ(count(blocks, list, "matmul_gelu"), layers);
  }
  EXPECT_EQ(count(activations, List::kBackwardInput, "matmul_gelu_backward"), layers);
}

// A block that reads a product twice: itself, and GELU of it.
class ReadTwice final : public LanguageModel {
 public:
  ReadTwice() : LanguageModel(kVocab) {}
  int64_t layers() const override { return 1; }
  int64_t max_sequence() const override { return kTokens; }
  Carried Embed(Recorder& recorder, Value tokens) const override {
    return ops::Embedding(recorder, Weight(recorder, "embedding", kVocab), tokens);
  }
  Carried Block(Recorder& recorder, int64_t, const Carried& carried) const override {
    const Value x = carried.only();
    const Value up = ops::Linear(recorder, x, Weight(recorder, "up", kWidth));
    return ops::Add(recorder, ops::Gelu(recorder, up), up);
  }
  Projection Head(Recorder& recorder, const Carried& carried) const override {
    return {.x = carried.only(), .weight = Weight(recorder, "output", kVocab)};
  }

  static constexpr int64_t kTokens = 6, kWidth = 4, kVocab = 7;

 private:
  static Value Weight(Recorder& recorder, const std::string& name, int64_t rows) {
    return recorder.Parameter({.name = name, .shape = {rows, kWidth}, .init = Init::Normal(0.7)});
  }
};

TEST(FuseTest, AProductThatIsReadBesideGeluHasTheGradientsOfBoth) {
  const auto gradients = [](bool fuse) {
    RecordOptions options{.precision = Precision::F64(), .sequence = ReadTwice::kTokens};
    options.fuse = fuse;
    const auto executable = Bind(RecordTraining(ReadTwice(), {.record = options}));
    EXPECT_EQ(Count(executable->program(), List::kForward, "matmul_gelu"), int(fuse));
    executable->WriteInput("tokens", 0, Tokens(ReadTwice::kTokens, ReadTwice::kVocab, 1));
    executable->WriteInput("targets", 0, Tokens(ReadTwice::kTokens, ReadTwice::kVocab, 2));
    executable->WriteStepState({.step = 1, .loss_scale = 1.0 / ReadTwice::kTokens});
    executable->Run(Action::kForward);
    executable->Run(Action::kBackward);
    const FlatRange all{.elements = executable->program().flat_elements};
    return ReadFlat(*executable, FlatBuffer::kGradient, all);
  };
  ExpectClose(gradients(true), gradients(false), 1e-14);
}

// x + x, and what reads that sum.
struct Sum {
  Recorder recorder{Precision::F32(), {}, /*training=*/false};
  Value x = recorder.Input("x", {4, 8}, DType::kF32, {});
  Value sum = ops::Add(recorder, x, x);

  Value Norm() {
    const Value gain = recorder.Parameter({.name = "gain", .shape = {8}});
    return ops::RmsNorm(recorder, sum, gain, {.eps = 1e-5});
  }
  // The ops' names, after fusion.
  std::vector<std::string> Fused() {
    Fuse(recorder.mutable_program(), List::kForward);
    std::vector<std::string> names;
    for (const Instance& i : recorder.program().instances) names.emplace_back(i.op->name());
    return names;
  }
};
using Names = std::vector<std::string>;

TEST(FuseTest, WhatReadsTheSumBeforeTheNormComesAfterBoth) {
  Sum s;
  const Value other = ops::Gelu(s.recorder, s.sum), norm = s.Norm();
  EXPECT_EQ(s.Fused(), Names({"add_rms_norm", "gelu"}));
  const std::vector<Instance>& instances = s.recorder.program().instances;
  EXPECT_EQ(instances[0].outputs.front(), norm);
  EXPECT_EQ(instances[0].outputs.back(), s.sum);
  EXPECT_EQ(instances[1].inputs[0], s.sum);
  EXPECT_EQ(instances[1].outputs[0], other);
}

TEST(FuseTest, ASumIsFusedWithOneNorm) {
  Sum s;
  s.Norm(), s.Norm();
  EXPECT_EQ(s.Fused(), Names({"add_rms_norm", "rms_norm"}));
}

// What the fused op would not write has another reader.
TEST(FuseTest, AGradientWithTwoReadersStays) {
  Recorder recorder(Precision::F32(), {}, /*training=*/true);
  const Value x = recorder.Input("x", {4, 8}, DType::kF32, {});
  const Value weight = recorder.Parameter({.name = "weight", .shape = {8, 8}});
  const Value up = ops::Linear(recorder, x, weight);
  const Value y = ops::Linear(recorder, ops::Gelu(recorder, up), weight);
  ops::LinearCrossEntropy(recorder, y, weight, recorder.Input("targets", {4}, DType::kI32, {}), {});
  RecordBackward(recorder);
  Program& program = recorder.mutable_program();
  Program apart = program;
  Fuse(program, List::kBackwardInput);
  EXPECT_EQ(Count(program, List::kBackwardInput, "matmul_gelu_backward"), 1);
  for (const Instance& instance : apart.instances) {
    if (instance.op->name() == "gelu_backward") apart.outputs["kept"] = instance.inputs[0];
  }
  Fuse(apart, List::kBackwardInput);
  EXPECT_EQ(Count(apart, List::kBackwardInput, "matmul_gelu_backward"), 0);
}

// The kernel of both rotates whole heads.
TEST(FuseTest, HeadsOfWhichAPartIsRotatedStayApart) {
  constexpr ops::Heads kHeads{.heads = 2, .kv_heads = 1, .head_dim = 4, .sequence = 4};
  for (const int64_t dims : {4, 2}) {
    Recorder recorder(Precision::F32(), {}, /*training=*/false);
    const Value qkv = recorder.Input("qkv", {4, kHeads.columns()}, DType::kF32, {});
    const auto gain = [&](const char* name) {
      return recorder.Parameter({.name = name, .shape = {kHeads.head_dim}});
    };
    const ops::HeadGains gains{.query = gain("q"), .key = gain("k"), .options = {.eps = 1e-5}};
    const ops::Rotation rotation =
        ops::RopeRotation(recorder, kHeads, {.base = 10000, .dims = dims});
    ops::Rope(recorder, ops::HeadNorm(recorder, qkv, gains, kHeads), kHeads, rotation);
    Program& program = recorder.mutable_program();
    Fuse(program, List::kForward);
    const bool whole = dims == kHeads.head_dim;
    EXPECT_EQ(Count(program, List::kForward, "head_norm_rope"), whole ? 1 : 0);
    EXPECT_EQ(Count(program, List::kForward, "rope"), whole ? 0 : 1);
  }
}

TEST(FuseTest, BlocksStayApart) {
  Sum s;
  s.recorder.set_block(1);
  s.Norm();
  EXPECT_EQ(s.Fused(), Names({"add", "rms_norm"}));
}

// Queries, keys and values stay packed from their one product to attention, and so do their
// gradients: nothing splits them, and the rotation, in place, touches queries and keys alone.
TEST(PackedTest, TheRotationIsTheOnlyPassBetweenProjectionAndAttention) {
  const Program program = RecordTraining(*CreateModel(TinyLlama()), {.record = {.sequence = 4}});
  const MemoryPlan plan = PlanMemory(program);
  const auto in_place = [&](const Instance& rope) {
    const Placement& x = plan.placements[size_t(rope.inputs[0].id)];
    const Placement& y = plan.placements[size_t(rope.outputs[0].id)];
    return x.arena == y.arena && x.offset == y.offset;
  };
  for (int block = 1; block <= 2; ++block) {
    const Instance& rope = Find(program, List::kForward, "rope", block);
    const Instance& attention = Find(program, List::kForward, "attention", block);
    EXPECT_EQ(attention.inputs[0], rope.outputs[0]);
    EXPECT_TRUE(in_place(rope));
    bool product = false;
    for (const Instance& i : program.instances) {
      product |= i.op->name() == "matmul" && i.outputs[0] == rope.inputs[0];
    }
    EXPECT_TRUE(product);

    const Instance& back = Find(program, List::kBackwardInput, "rope_backward", block);
    EXPECT_EQ(back.inputs[0],
              Find(program, List::kBackwardInput, "attention_backward", block).outputs[0]);
    EXPECT_TRUE(in_place(back));
    int readers = 0;  // The gradients of the projection's input and weight.
    for (const Instance& i : program.instances) {
      readers += std::count(i.inputs.begin(), i.inputs.end(), back.outputs[0]);
    }
    EXPECT_EQ(readers, 2);
  }
}

// Gate and up are the halves of one product's rows, which the activation reads as they are.
TEST(PackedTest, GateAndUpAreOneProduct) {
  const Program program = RecordTraining(*CreateModel(TinyLlama()), {.record = {.sequence = 4}});
  for (int block = 1; block <= 2; ++block) {
    const Value up = Find(program, List::kForward, "swiglu", block).inputs[0];
    EXPECT_EQ(program.info(up).shape, Shape({4, 2 * AsDecoder(TinyLlama()).ffn}));
    bool product = false;
    for (const Instance& i : program.instances) {
      product |= i.op->name() == "matmul" && i.outputs[0] == up;
    }
    EXPECT_TRUE(product);
  }
}

}  // namespace
}  // namespace trainyard::testing
