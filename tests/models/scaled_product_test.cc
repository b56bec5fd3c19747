// Proves what the recording of a product with scales finds: which values are rounded once, which
// histories there are, what each of them notes, and which blocks end inside of a rank's part.

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "models/program/op.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"
#include "models/program/recorder.h"

namespace trainyard::testing {
namespace {

using ::testing::ElementsAre;

Precision RoundedBy(const Scaling& scaling) {
  Precision precision = Precision::F32();
  const OperandFormat operand(DType::kE4M3, scaling);
  const ProductFormat format(operand, operand, DType::kF32);
  precision.layer = {format, format, format};
  return precision;
}

Recorder RecorderOf(const Scaling& scaling, const Mesh& mesh = {}) {
  return Recorder(RoundedBy(scaling), mesh, /*training=*/true);
}

Value Input(Recorder& recorder, const std::string& name) {
  return recorder.Input(name, {4, 8}, DType::kF32, {});
}

Value Weight(Recorder& recorder, const std::string& name, Shard shard = {}) {
  return recorder.Parameter({.name = name, .shape = {4, 8}, .shard = shard, .decay = true});
}

// Of each note, the history and the value.
std::vector<std::string> Notes(Recorder& recorder) {
  std::vector<std::string> notes;
  for (const auto& [noted, amax] : recorder.amax_of_history()) {
    notes.push_back(recorder.info(noted.first).name + " of " + recorder.info(noted.second).name);
  }
  std::sort(notes.begin(), notes.end());
  return notes;
}

TEST(ScaledProduct, RoundsAnActivationOnceForAllItsReaders) {
  Recorder recorder = RecorderOf({.kept = 1});
  const Value x = Input(recorder, "x");
  ops::Linear(recorder, x, Weight(recorder, "v"));
  ops::Linear(recorder, x, Weight(recorder, "w"));
  std::vector<std::string> rounded;
  for (const Quantized& q : recorder.quantized()) rounded.push_back(recorder.info(q.of).name);
  EXPECT_THAT(rounded, ElementsAre("x", "v", "w"));
}

// Layouts gather what products read as values of their own, and must have the same histories.
TEST(ScaledProduct, HasHistoriesOfItsOwnWhoeverElseReadsTheValue) {
  Recorder recorder = RecorderOf({.history = 3});
  const Value x = Input(recorder, "x");
  ops::Linear(recorder, x, Weight(recorder, "v"));
  ops::Linear(recorder, x, Weight(recorder, "w"));
  EXPECT_THAT(Notes(recorder), ElementsAre("v.amax.input of x", "v.amax.weight of v",
                                           "w.amax.input of x", "w.amax.weight of w"));
}

TEST(ScaledProduct, NotesEachValueThatASharedWeightMeets) {
  Recorder recorder = RecorderOf({.history = 3});
  const Value w = Weight(recorder, "w");
  ops::Linear(recorder, Input(recorder, "x"), w);
  ops::Linear(recorder, Input(recorder, "y"), w);
  EXPECT_THAT(Notes(recorder),
              ElementsAre("w.amax.input of x", "w.amax.input of y", "w.amax.weight of w"));
}

TEST(ScaledProduct, NotesNothingInInference) {
  Recorder recorder(RoundedBy({.history = 3}), {}, /*training=*/false);
  ops::Linear(recorder, Input(recorder, "x"), Weight(recorder, "w"));
  EXPECT_THAT(Notes(recorder), ElementsAre());
}

// A layer v, and after it a layer w with its gradients.
Program TwoLayers(const Scaling& scaling, const WeightRounding& rounding = {}) {
  Recorder recorder = RecorderOf(scaling);
  recorder.set_weight_rounding(rounding);
  const Value w = recorder.Parameter({.name = "w", .shape = {2, 4}, .decay = true});
  const Value h = ops::Linear(recorder, Input(recorder, "x"), Weight(recorder, "v"));
  const Value y = ops::Linear(recorder, h, w);
  recorder.KeepOutput("y", y);
  recorder.set_list(List::kBackwardInput);
  const Value dy = recorder.Leaf(y, "dy");
  const Value dh = ops::LinearGradients(recorder, ProductKind::kLayer,
                                        {.dy = dy, .x = h, .weight = w, .bias = {}});
  recorder.KeepOutput("dh", dh);
  RemoveDead(recorder.mutable_program());
  return std::move(recorder).Finish();
}

// "x by_rows": a matrix that is rounded, and the copies that products read.
std::vector<std::string> CopiesOf(const Program& program) {
  std::vector<std::string> copies;
  for (const Instance& instance : program.instances) {
    if (instance.op->name() != "quantize") continue;
    const std::string attributes = instance.op->attributes();
    copies.push_back(absl::StrCat(program.info(instance.inputs[0]).name,
                                  attributes.substr(attributes.find(' '))));
  }
  return copies;
}

// Bug it must catch: a copy that nothing reads takes memory and time, and one that a product reads
// is not written.
TEST(ScaledProduct, RoundsToTheOrdersThatProductsSum) {
  EXPECT_THAT(CopiesOf(TwoLayers({})), ElementsAre("x by_rows", "v by_rows", ".product both",
                                                   "w by_rows", "dy both", "w by_columns"));
  EXPECT_THAT(CopiesOf(TwoLayers({.kept = 1})),
              ElementsAre("x by_rows", "v by_rows", ".product by_rows", "w by_rows", "dy by_rows",
                          "w by_columns", "dy by_columns", ".product by_columns"));
}

// The roundings that the first micro-batch does for all.
int OnceAStep(const Program& program, absl::string_view op) {
  int count = 0;
  for (const Instance& instance : program.instances) {
    if (instance.op->name() != op || instance.when != When::kFirstMicroBatch) continue;
    for (Value output : instance.outputs) {
      EXPECT_EQ(program.info(output).kind, ValueKind::kStepConstant);
    }
    ++count;
  }
  return count;
}

// Bug it must catch: backward rounds a weight to the scales that forward has found.
TEST(ScaledProduct, RoundsAWeightOnceForBothDirectionsIfItIsKept) {
  const Program one_scale = TwoLayers({}, {.micro_batches = 2, .kept = true});
  EXPECT_THAT(CopiesOf(one_scale),
              ElementsAre("x by_rows", "v by_rows", ".product both", "w both", "dy both"));
  EXPECT_EQ(OnceAStep(one_scale, "quantize"), 2);
  EXPECT_EQ(OnceAStep(one_scale, "amax"), 2);
  const Program of_rows = TwoLayers({.kept = 1}, {.micro_batches = 2, .kept = true});
  EXPECT_EQ(CopiesOf(of_rows), CopiesOf(TwoLayers({.kept = 1})));
  EXPECT_EQ(OnceAStep(of_rows, "quantize"), 3);
  const Program scales = TwoLayers({}, {.micro_batches = 2});
  EXPECT_EQ(CopiesOf(scales), CopiesOf(TwoLayers({})));
  EXPECT_EQ(OnceAStep(scales, "quantize"), 0);
  EXPECT_EQ(OnceAStep(scales, "amax"), 2);
  const Program one = TwoLayers({}, {.kept = true});
  EXPECT_EQ(CopiesOf(one), CopiesOf(TwoLayers({}))) << "a step has one micro-batch";
  EXPECT_EQ(OnceAStep(one, "quantize") + OnceAStep(one, "amax"), 0);
}

// They may lie on several pipeline stages, of which each needs a copy of its own.
TEST(ScaledProduct, RoundsAWeightInEachBlockThatUsesIt) {
  Recorder recorder = RecorderOf({});
  recorder.set_weight_rounding({.micro_batches = 2, .kept = true});
  const Value x = Input(recorder, "x"), w = Weight(recorder, "w");
  std::vector<std::string> rounded;
  for (const int block : {1, 1, 2}) {
    recorder.set_block(block);
    ops::Linear(recorder, x, w);
  }
  for (const Quantized& q : recorder.quantized()) rounded.push_back(recorder.info(q.of).name);
  EXPECT_THAT(rounded, ElementsAre("x", "w", "w"));
}

TEST(ScaledProduct, HasTheFlopsOfItsShapeInEveryRole) {
  const Program program = TwoLayers({});
  std::vector<double> flops;
  for (const Instance& instance : program.instances) {
    const double of = instance.op->CostOf(program, instance).flops;
    if (of > 0) flops.push_back(of);
  }
  // v is [4, 8] and w [2, 4]; there are 4 rows.
  EXPECT_THAT(flops, ElementsAre(2 * 4 * 32, 2 * 4 * 8, 2 * 4 * 8, 2 * 4 * 8));
}

TEST(ScaledProduct, NotesTheBlocksThatEndInsideOfAPart) {
  const auto divided = [](int64_t block, const Shard& shard) {
    Recorder recorder = RecorderOf({.kept = block, .summed = block}, {.tensor = 2});
    ops::Linear(recorder, Input(recorder, "x"), Weight(recorder, "w", shard));
    std::vector<std::string> found;
    for (const DividedBlock& one : recorder.program().divided_blocks) {
      found.push_back(absl::StrCat(one.weight, " ", int(one.dim), " ", one.block, " ", one.part));
    }
    return found;
  };
  EXPECT_THAT(divided(4, {}), ElementsAre());
  EXPECT_THAT(divided(2, Shard::Rows(Axis::kTensor)), ElementsAre());
  EXPECT_THAT(divided(4, Shard::Rows(Axis::kTensor)), ElementsAre("w 0 4 2"));
  // Each section's part must have whole blocks, not only all of them together.
  EXPECT_THAT(divided(2, Shard::Rows(Axis::kTensor, {2, 2})), ElementsAre("w 0 2 1"));
}

}  // namespace
}  // namespace trainyard::testing
