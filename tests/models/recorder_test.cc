// Proves what recording finds: where gradients are summed, what is misuse, what a dump says.
#include "models/program/recorder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "tests/models/tiny.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

// Four ranks: two along data, two along tensor.
Recorder FourRanks() { return Recorder(Precision::F32(), {.tensor = 2, .data = 2}, true); }

ParameterSpec Matrix(const std::string& name, int64_t rows, int64_t columns, Shard shard = {}) {
  return {.name = name, .shape = {rows, columns}, .shard = shard, .decay = true};
}

TEST(RecorderTest, ReductionIsOverWhatVariesMinusTheShard) {
  Recorder recorder = FourRanks();
  const Value x = recorder.Input("x", {3, 8}, DType::kF32, {Axis::kData, Axis::kTensor});
  const Value whole = recorder.Parameter(Matrix("whole", 4, 8));
  const Value divided = recorder.Parameter(Matrix("divided", 4, 8, Shard::Rows(Axis::kTensor)));
  ops::Linear(recorder, x, whole);
  ops::Linear(recorder, x, divided);
  const auto reduce_axes = [&](Value w) {
    return BoxesOf(recorder.program().storage(w), recorder.mesh())[0].reduce_axes;
  };
  EXPECT_EQ(reduce_axes(whole), AxisSet({Axis::kData, Axis::kTensor}));
  EXPECT_EQ(reduce_axes(divided), AxisSet({Axis::kData}));
  EXPECT_EQ(recorder.info(divided).shape, Shape({2, 8}));
}

TEST(RecorderTest, AnAxisOfOneRankDoesNotVary) {
  Recorder recorder(Precision::F32(), {}, true);
  const Value x = recorder.Input("x", {3, 8}, DType::kF32, {Axis::kData});
  EXPECT_TRUE(recorder.info(x).varying.empty());
}

TEST(RecorderDeathTest, NamesTheInputsThatVaryDifferently) {
  Recorder recorder = FourRanks();
  const Value x = recorder.Input("tokens_here", {3, 8}, DType::kF32, {Axis::kData});
  const Value y = recorder.Input("tokens_there", {3, 8}, DType::kF32, {Axis::kTensor});
  EXPECT_DEATH(ops::Add(recorder, x, y), "tokens_here .*data.* and tokens_there .*tensor");
}

TEST(RecorderDeathTest, NamesTheParameterWhoseUsesDisagree) {
  Recorder recorder = FourRanks();
  const Value x = recorder.Input("x", {3, 8}, DType::kF32, {Axis::kData});
  const Value y = recorder.Input("y", {3, 8}, DType::kF32, {Axis::kData, Axis::kTensor});
  const Value w = recorder.Parameter(Matrix("shared.weight", 4, 8));
  ops::Linear(recorder, x, w);
  EXPECT_DEATH(ops::Linear(recorder, y, w), "gradient of .*shared.weight.* varies along");
}

class NamedSum final : public NamedOp<NamedSum> {
 public:
  enum Input { kA, kB, kScale, kInputs };
  enum Output { kSum, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  absl::string_view name() const override { return "named_sum"; }
  Call Bind(const Binder&, const Instance&) const override { return nullptr; }
};

TEST(RecorderDeathTest, NamesTheOpWithAnotherNumberOfOperandsThanItNames) {
  Recorder recorder(Precision::F32(), {}, true);
  const Value x = recorder.Input("x", {3, 8}, DType::kF32, {});
  const Recorder::Output sum{.shape = {3, 8}, .dtype = DType::kF32, .name = "sum"};
  const auto emit = [&](std::vector<Value> inputs, const std::vector<Recorder::Output>& outputs) {
    recorder.Emit(std::make_shared<NamedSum>(), std::move(inputs), outputs);
  };
  emit({x, x}, {sum});
  emit({x, x, x}, {sum});
  EXPECT_DEATH(emit({x}, {sum}), "named_sum: wanted 3 inputs, of which 1 may be missing, found 1");
  EXPECT_DEATH(emit({x, x, x, x}, {sum}), "named_sum: wanted 3 inputs, .* found 4");
  EXPECT_DEATH(emit({x, x}, {sum, sum}), "named_sum: wanted 1 outputs, .* found 2");
}

TEST(RecorderDeathTest, NamesTheOperandsOfTheWrongShape) {
  Recorder recorder(Precision::F32(), {}, true);
  const Value x = recorder.Input("x", {3, 8}, DType::kF32, {});
  const Value gain = recorder.Parameter({.name = "norm.weight", .shape = {16}});
  EXPECT_DEATH(ops::RmsNorm(recorder, x, gain, {.eps = 1e-5}), "gain norm.weight");
  EXPECT_DEATH(ops::Linear(recorder, x, gain), "norm.weight");
}

TEST(RecorderDeathTest, OneNameIsOneParameter) {
  Recorder recorder(Precision::F32(), {}, true);
  const Value first = recorder.Parameter(Matrix("w", 4, 8));
  EXPECT_EQ(recorder.Parameter(Matrix("w", 4, 8)), first);
  EXPECT_DEATH(recorder.Parameter(Matrix("w", 8, 8)), "w is declared twice, differently");
}

// By token [tokens, ...], which differ along tensor and context, too; by sample [samples, ...].
TEST(RecorderTest, DeclaredInputsHaveARowForEachOfTheirUnits) {
  Recorder recorder(Precision::BF16(), {.tensor = 2, .context = 2, .data = 2}, true);
  recorder.mutable_program().micro_batch = 3;
  recorder.mutable_program().sequence = 8;
  recorder.Declare({{.name = "tokens"},
                    {.name = "level",
                     .unit = InputSpec::Unit::kSample,
                     .kind = InputSpec::Kind::kReal,
                     .shape = {5}}});
  const ValueInfo tokens = recorder.info(recorder.Read("tokens"));
  EXPECT_EQ(tokens.shape, Shape({12}));
  EXPECT_EQ(tokens.dtype, DType::kI32);
  EXPECT_EQ(tokens.varying, AxisSet({Axis::kTensor, Axis::kContext, Axis::kData}));
  const Value read = recorder.Read("level");
  const ValueInfo level = recorder.info(read);
  EXPECT_EQ(level.shape, Shape({3, 5}));
  EXPECT_EQ(level.dtype, DType::kBF16);
  EXPECT_EQ(level.varying, AxisSet(Axis::kData));
  // One of a chunk, whichever of its blocks reads it; another one of the next chunk.
  EXPECT_EQ(recorder.Read("level"), read);
  recorder.Cut(recorder.Read("tokens"));
  recorder.set_block(1);
  EXPECT_NE(recorder.Read("level"), read);
  EXPECT_DEATH(recorder.Read("levels"), "reads levels, which it does not declare");
}

TEST(RecorderDeathTest, OneValueCrossesACutOnce) {
  Recorder recorder(Precision::F32(), {}, true);
  const Value x = recorder.Input("x", {4, 8}, DType::kF32, {});
  EXPECT_DEATH(recorder.Cut(Carried({{"x", x}, {"y", x}})), "crosses a cut as y and as x");
}

TEST(ProgramTest, EveryParameterOfADataParallelModelIsSummedOverData) {
  for (const ModelConfig& config : {TinyLlama(), TinyLlama(true), TinyGpt3()}) {
    const Program program = RecordTraining(
        *CreateModel(config),
        {.record = {.precision = Precision::F32(), .sequence = 4, .mesh = {.data = 2}},
         .optimizer = {}});
    for (const ParameterBox& box : program.Parameters()) {
      EXPECT_EQ(box.reduce_axes, AxisSet({Axis::kData})) << box.name;
    }
  }
}

TEST(ProgramTest, DumpHasALineAnInstance) {
  const Program program =
      RecordTraining(*CreateModel(TinyLlama()),
                     {.record = {.precision = Precision::F32(), .sequence = 4}, .optimizer = {}});
  const std::string dump = program.Dump();
  EXPECT_EQ(size_t(std::count(dump.begin(), dump.end(), '\n')), program.instances.size());
  EXPECT_THAT(dump, HasSubstr("forward block 1 attention: "));
  EXPECT_THAT(dump, HasSubstr("backward_weight block 2 mlp: "));
  EXPECT_THAT(dump, HasSubstr("model.layers.1.mlp.gate_proj.weight f32[40, 12]"));
}

TEST(ProgramTest, DumpSaysWhatAnOpOverwrites) {
  const Program program = RecordTraining(*CreateModel(TinyMoe()), {.record = {.sequence = 4}});
  EXPECT_THAT(program.Dump(),
              ::testing::ContainsRegex("expert_mlp_backward.*, overwritten %[0-9]+ mlp.rows f32"));
}

// Bug it must catch: a family takes the field and trains as if it were not there.
TEST(ProgramTest, EveryFamilyOfTextLeavesOutThePaddingToken) {
  for (const FamilyCase& family : FamilyCases()) {
    ModelConfig config = family.tiny();
    if (FactsOf(config).vocab == 0) continue;
    SCOPED_TRACE(config.family());
    SetField(config, "padding_token", int64_t{1});
    const Program program = RecordTraining(*CreateModel(config), {.record = {.sequence = 4}});
    int found = 0;
    for (const Instance& instance : program.instances) {
      if (instance.op->name() != "embedding_backward") continue;
      found += instance.op->attributes() == "padding=1";
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(MeshTest, TensorRanksAreNeighboursAndStagesFarApart) {
  const Mesh mesh{
      .tensor = 2, .context = 3, .data = 5, .pipeline = 7, .rank = 1 + 2 * (2 + 3 * (4 + 5 * 6))};
  EXPECT_EQ(mesh.ranks(), 210);
  EXPECT_EQ(mesh.coordinate(Axis::kTensor), 1);
  EXPECT_EQ(mesh.coordinate(Axis::kContext), 2);
  EXPECT_EQ(mesh.coordinate(Axis::kData), 4);
  EXPECT_EQ(mesh.coordinate(Axis::kPipeline), 6);
}

TEST(MeshTest, StagesThatShareWeightsAreAGroupInTheirOrder) {
  const Mesh mesh{.data = 2, .pipeline = 4, .sharing_stages = {1, 3}, .rank = 7};
  EXPECT_EQ(mesh.Members(Axis::kEnds), (std::vector<int>{3, 7}));
  EXPECT_EQ(mesh.size(Axis::kEnds), 2);
  EXPECT_EQ(mesh.coordinate(Axis::kEnds), 1);
  EXPECT_EQ(Mesh{.pipeline = 4}.size(Axis::kEnds), 1);
}

// A matrix of one name, divided: a piece of each of its three sections, which may differ in size.
TEST(ParameterTest, BoxesOfADividedParameterWithSections) {
  Recorder recorder(Precision::F32(), {.tensor = 2, .rank = 1}, true);
  const Value x = recorder.Input("x", {3, 8}, DType::kF32, {});
  const Value w =
      recorder.Parameter(Matrix("in_proj", 12, 8, Shard::Rows(Axis::kTensor, {4, 6, 2})));
  ops::Linear(recorder, x, w);
  const std::vector<ParameterBox> boxes = recorder.program().Parameters();
  ASSERT_EQ(boxes.size(), 3u);
  for (const ParameterBox& box : boxes) EXPECT_EQ(box.global_shape, Shape({12, 8}));
  const auto expect = [&](size_t i, int64_t row, int64_t rows, int64_t place) {
    EXPECT_EQ(boxes[i].offset, Shape({row, 0}));
    EXPECT_EQ(boxes[i].shape, Shape({rows, 8}));
    EXPECT_EQ(boxes[i].flat, (FlatRange{.offset = 8 * place, .elements = 8 * rows}));
  };
  expect(0, 2, 2, 0);
  expect(1, 7, 3, 2);
  expect(2, 11, 1, 5);
}

TEST(ParameterTest, BoxOfAParameterDividedByColumns) {
  Recorder recorder(Precision::F32(), {.tensor = 2, .rank = 1}, true);
  const Value w = recorder.Parameter(Matrix("o_proj", 4, 8, Shard::Columns(Axis::kTensor)));
  const std::vector<ParameterBox> boxes = recorder.program().Parameters();
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_EQ(recorder.info(w).shape, Shape({4, 4}));
  EXPECT_EQ(boxes[0].offset, Shape({0, 4}));
  EXPECT_EQ(boxes[0].shape, Shape({4, 4}));
}

}  // namespace
}  // namespace trainyard::testing
