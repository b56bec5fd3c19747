#include "models/model.h"

#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// Which axes the tokens of a batch are divided over.
constexpr AxisSet kBatchAxes = {Axis::kData, Axis::kContext};

// Embedding, layers, head; returns the logits.
Value RecordForward(Recorder& recorder, const Model& model, const RecordOptions& options) {
  CHECK(options.micro_batch > 0 && options.sequence > 0 && options.sequence <= model.max_sequence())
      << "micro batch " << options.micro_batch << ", sequence " << options.sequence
      << " of at most " << model.max_sequence();
  CHECK((options.mesh.active() - AxisSet{Axis::kData}).empty())
      << "ranks along " << options.mesh.active() << "; only data parallelism can be recorded";
  Program& program = recorder.mutable_program();
  program.micro_batch = options.micro_batch;
  program.sequence = options.sequence;
  program.num_blocks = int(model.layers()) + 2;

  const Value tokens = recorder.Input("tokens", {program.tokens()}, DType::kI32, kBatchAxes);
  recorder.set_label("embed");
  Value x = model.Embed(recorder, tokens);
  for (int64_t layer = 0; layer < model.layers(); ++layer) {
    recorder.set_block(int(layer) + 1);
    x = model.Block(recorder, layer, x);
  }
  recorder.set_block(program.num_blocks - 1);
  recorder.set_label("head");
  return model.Head(recorder, x);
}

}  // namespace

Program RecordTraining(const Model& model, const TrainingOptions& options) {
  Recorder recorder(options.record.precision, options.record.mesh, /*training=*/true);
  const Value logits = RecordForward(recorder, model, options.record);
  const Value targets =
      recorder.Input("targets", {recorder.program().tokens()}, DType::kI32, kBatchAxes);
  recorder.set_label("loss");
  ops::CrossEntropy(recorder, logits, targets);
  RecordBackward(recorder);
  RemoveDead(recorder.mutable_program());
  LayOutParameters(recorder.mutable_program());
  InsertBuckets(recorder.mutable_program(), options.bucket_bytes);
  RecordInitialization(recorder);
  RecordOptimizer(recorder, options.adamw);
  return std::move(recorder).Finish();
}

Program RecordInference(const Model& model, const RecordOptions& options) {
  Recorder recorder(options.precision, options.mesh, /*training=*/false);
  recorder.KeepOutput("logits", RecordForward(recorder, model, options));
  RemoveDead(recorder.mutable_program());
  LayOutParameters(recorder.mutable_program());
  RecordInitialization(recorder);
  return std::move(recorder).Finish();
}

}  // namespace trainyard
