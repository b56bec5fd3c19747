#include "models/model.h"

#include <algorithm>
#include <utility>

#include "models/program/ops/ops.h"
#include "models/program/passes/passes.h"

namespace trainyard {
namespace {

// Records the start, the layers, and the loss or the outputs, as blocks from `first_block` on.
void RecordForward(Recorder& recorder, const Model& model, const RecordOptions& options,
                   int first_block = 0) {
  CHECK(options.micro_batch > 0 && options.sequence > 0 && options.sequence <= model.max_sequence())
      << "micro batch " << options.micro_batch << ", sequence " << options.sequence
      << " of at most " << model.max_sequence();
  Program& program = recorder.mutable_program();
  program.micro_batch = options.micro_batch;
  program.sequence = options.sequence;
  program.context_exchange = options.context_exchange;
  program.expert_rows = options.expert_rows;
  program.logits_bytes = options.logits_bytes;
  program.restart_positions = options.restart_positions;
  program.deterministic = options.deterministic;
  program.cache = options.cache;
  program.cached_texts = options.cached_texts;
  program.last_logits = options.last_logits;
  program.num_blocks = first_block + int(model.layers()) + 2;

  recorder.set_adapter(options.adapter);
  recorder.set_preference(options.preference);
  recorder.set_weight_rounding(options.weight_rounding);
  std::vector<InputSpec> inputs = model.inputs();
  if (options.documents) inputs.push_back(DocumentBegins(options.sequence));
  if (options.preference) {
    for (InputSpec& input : PreferenceInputs(options.sequence)) inputs.push_back(std::move(input));
  }
  inputs.push_back(SampleNumbers());
  recorder.Declare(std::move(inputs));
  recorder.set_block(first_block);
  recorder.set_label("embed");
  recorder.set_layer_kind(ProductKind::kPlain);
  Carried x = model.Start(recorder);
  const auto cut_here = [&] {
    return std::count(options.cuts.begin(), options.cuts.end(), recorder.block()) > 0;
  };
  for (int64_t layer = 0; layer < model.layers(); ++layer) {
    if (cut_here()) x = recorder.Cut(x);
    recorder.set_block(first_block + int(layer) + 1);
    const bool plain = options.plain.Has(layer, model.layers());
    recorder.set_layer_kind(plain ? ProductKind::kPlain : ProductKind::kLayer);
    x = model.Block(recorder, layer, x);
  }
  if (cut_here()) x = recorder.Cut(x);
  recorder.set_block(program.num_blocks - 1);
  recorder.set_label("head");
  recorder.set_layer_kind(ProductKind::kPlain);
  if (program.training) {
    model.Loss(recorder, x);
  } else {
    model.KeepOutputs(recorder, x);
  }
  program.chunks.back().last_block = program.num_blocks - 1;
  program.num_parameters = 0;
  for (const ParameterStorage& storage : program.storages) {
    for (const ParameterSpec& spec : storage.parameters) {
      if (spec.is_history()) continue;
      program.num_parameters += spec.numbers();
    }
  }
}

// Records the model once more, as a chunk of its own that reads one token of each text and shares
// the caches.
void RecordNextTokens(Recorder& recorder, const Model& model, RecordOptions options) {
  Program& program = recorder.mutable_program();
  const int64_t ranks = options.mesh.size(kTensorAxes);
  CHECK(options.micro_batch == 1 && (options.mesh.active() - kTensorAxes).empty() &&
        options.cached_texts > 0 && options.cached_texts % ranks == 0 &&
        options.sequence % ranks == 0 && options.cache <= model.max_sequence())
      << "a cache of " << options.cache << " tokens of " << options.cached_texts
      << " texts, pieces of " << options.sequence << ", for " << ranks << " tensor ranks";
  program.outputs = {{kSeveralLogits, program.outputs.at("logits")}};
  program.chunks.push_back({.first_block = program.num_blocks});
  const int64_t sequence = std::exchange(options.sequence, 1);
  options.micro_batch = options.cached_texts;
  RecordForward(recorder, model, options, program.num_blocks);
  program.sequence = sequence;
  program.micro_batch = 1;
}

// Returns a function that calls options.after_pass, if set, with the program after a pass.
auto Observer(const TrainingOptions& options, const Program& program) {
  return [&](const char* pass) {
    if (options.after_pass) options.after_pass(pass, program);
  };
}

void RecordForwardAndBackward(Recorder& recorder, const Model& model,
                              const TrainingOptions& options) {
  RecordForward(recorder, model, options.record);
  Program& program = recorder.mutable_program();
  const auto after = Observer(options, program);
  DropUnreadCrossings(program);
  after("forward");
  if (options.record.fuse) Fuse(program, List::kForward, options.recompute);
  after("fuse");
  RecordBackward(recorder);
  after("backward");
  if (options.record.fuse) Fuse(program, List::kBackwardInput);
  after("fuse_backward");
}

}  // namespace

Program RecordTraining(const Model& model, const TrainingOptions& options) {
  Recorder recorder(options.record.precision, options.record.mesh, /*training=*/true,
                    options.frozen);
  RecordForwardAndBackward(recorder, model, options);
  Program& program = recorder.mutable_program();
  const auto after = Observer(options, program);
  KeepStage(program, options.record.stages);
  RemoveDead(program);
  after("dead");
  CHECK(program.divided_blocks.empty()) << program.divided_blocks.front();
  Recompute(program, options.recompute);
  after("recompute");
  RoundAtOnce(program);
  after("round_at_once");
  LayOutParameters(program, {.bucket_bytes = options.bucket_bytes,
                             .zero = options.zero,
                             .optimizer = &options.optimizer.optimizer(),
                             .offload = options.offload});
  InsertBuckets(program);
  InsertFetches(program);
  after("buckets");
  RecordInitialization(recorder);
  RecordOptimizer(recorder, options.optimizer);
  after("optimizer");
  return std::move(recorder).Finish();
}

Program RecordGradients(const Model& model, const TrainingOptions& options) {
  Recorder recorder(options.record.precision, options.record.mesh, /*training=*/true,
                    options.frozen);
  RecordForwardAndBackward(recorder, model, options);
  RemoveDead(recorder.mutable_program());
  return std::move(recorder).Finish();
}

std::vector<ParameterStorage> DeclareParameters(const Model& model, const LowRank& adapter) {
  Recorder recorder(Precision::F32(), Mesh(), /*training=*/false);
  RecordForward(recorder, model, {.sequence = 1, .adapter = adapter});
  return std::move(recorder).Finish().storages;
}

Program RecordInference(const Model& model, const RecordOptions& options) {
  Recorder recorder(options.precision, options.mesh, /*training=*/false);
  RecordForward(recorder, model, options);
  if (options.cache > 0) RecordNextTokens(recorder, model, options);
  if (options.fuse) Fuse(recorder.mutable_program(), List::kForward);
  RemoveDead(recorder.mutable_program());
  LayOutParameters(recorder.mutable_program());
  RecordInitialization(recorder);
  return std::move(recorder).Finish();
}

}  // namespace trainyard
