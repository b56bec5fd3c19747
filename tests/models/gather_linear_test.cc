// Proves that products in pieces between tensor ranks are those of all-gather, product and
// reduce-scatter one after the other, and that nothing gathered is kept for backward. (Gradients:
// tests/train/step/layouts_test.)
#include "gtest/gtest.h"
#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"
#include "tests/models/tiny.h"
#include "tests/testing/ranks.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kRows = 3, kWidth = 8, kVocab = 5;

// Outputs "gather", "scatter" and, by separate ops, "gather apart", "scatter apart".
Program Record(const Precision& precision, const Mesh& mesh) {
  Recorder recorder(precision, mesh, /*training=*/false);
  const auto parameter = [&](const char* name, const Shape& shape, Shard shard) {
    return recorder.Parameter(
        {.name = name, .shape = shape, .shard = shard, .init = Init::Normal(1), .decay = true});
  };
  const int64_t n = mesh.tensor;
  const Value tokens = recorder.Input("tokens", {kRows}, DType::kI32, kTensorAxes);
  const Value table = parameter("table", {kVocab, kWidth}, Shard::None());
  const Value x = ops::Embedding(recorder, table, tokens);
  const Value up = parameter("up", {6 * n, kWidth}, Shard::Rows(kTensorAxes));
  const Value bias = parameter("bias", {6 * n}, Shard::Rows(kTensorAxes));
  const Value down = parameter("down", {kWidth, 6 * n}, Shard::Columns(kTensorAxes));
  const Value gather =
      ops::GatherLinear(recorder, recorder.layer_kind(), {x, up, bias}, kTensorAxes);
  recorder.KeepOutput("gather", gather);
  recorder.KeepOutput("gather apart",
                      ops::Linear(recorder, ops::AllGather(recorder, x, kTensorAxes), up, bias));
  recorder.KeepOutput("scatter",
                      ops::LinearScatter(recorder, ProductKind::kLayer, gather, down, kTensorAxes));
  recorder.KeepOutput(
      "scatter apart",
      ops::ReduceScatter(recorder, ops::Linear(recorder, gather, down), kTensorAxes));
  LayOutParameters(recorder.mutable_program());
  RecordInitialization(recorder);
  return std::move(recorder).Finish();
}

std::string Bytes(const Executable& executable, const std::string& output) {
  const Program& program = executable.program();
  std::string bytes(program.info(program.outputs.at(output)).bytes(), '\0');
  executable.ReadOutput(output, 0, bytes.data(), bytes.size());
  return bytes;
}

TEST(GatherLinearTest, GivesTheBitsOfTheSeparateOps) {
  for (const Precision& precision : {Precision::F64(), Precision::F32(), Precision::BF16()}) {
    for (const int ranks : {2, 3, 4, 7}) {
      const auto errors = RunRanks(ranks, [&](Collective& group) {
        const Mesh mesh{.tensor = ranks, .rank = group.rank()};
        const auto executable = Bind(Record(precision, mesh), /*seed=*/5, /*slots=*/1,
                                     {{{Stream::kCompute, Axis::kTensor}, &group}});
        executable->WriteInput("tokens", 0, Tokens(kRows, kVocab, uint64_t(group.rank())));
        executable->Run(Action::kForward);
        for (const std::string output : {"gather", "scatter"}) {
          EXPECT_EQ(Bytes(*executable, output), Bytes(*executable, output + " apart"))
              << output << ' ' << precision.activation << " rank " << group.rank() << " of "
              << ranks;
        }
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
    }
  }
}

// Of sizes that make every activation a multiple of the plan's alignment.
TEST(GatherLinearTest, NothingGatheredIsKept) {
  const int64_t n = 4, sequence = 256, rows = sequence / n, hidden = 64, ffn = 192, width = 64;
  const auto activations = [&](int64_t layers) {
    ModelConfig config = TinyLlama();
    AsDecoder(config).layers = layers;
    AsDecoder(config).hidden = hidden;
    AsDecoder(config).ffn = ffn;
    AsDecoder(config).heads = AsDecoder(config).kv_heads = 8;
    AsDecoder(config).head_dim = width / 8;
    AsDecoder(config).vocab = 16;
    AsDecoder(config).max_seq = sequence;
    const Program program = RecordTraining(
        *CreateModel(config),
        {.record = {.sequence = sequence, .mesh = {.tensor = int(n)}}, .optimizer = {}});
    return PlanMemory(program).activation_bytes();
  };
  // On each rank its rows of two residuals and two norms, with a statistic each; and of all rows
  // its part of query, key, value, attention's output, gate, up and their product, and the
  // logarithms of two heads' sums.
  const int64_t kept =
      rows * 2 * (2 * hidden + 1) + sequence * (4 * width + 3 * ffn) / n + sequence * 8 / n;
  EXPECT_EQ(activations(8) - activations(7), sizeof(float) * size_t(kept));
}

}  // namespace
}  // namespace trainyard::testing
