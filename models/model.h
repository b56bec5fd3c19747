// The interface of a model. A model declares its inputs, its blocks, the values that pass between
// blocks, and its loss. A model is written forward only and for one device. Recording a model
// yields the program that trains the model or computes its outputs.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "models/parallel/context_exchange.h"
#include "models/parallel/zero.h"
#include "models/program/optimizer/optimizer.h"
#include "models/program/passes/options.h"
#include "models/program/program.h"
#include "models/program/recorder.h"

namespace trainyard {

// The values that Start returns pass from block to block. Most models carry one [tokens, width]
// matrix; a model may carry several values. Parallelism, gradients and precision are the business
// of the layers and the passes. A model is immutable and thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  virtual int64_t layers() const = 0;
  virtual int64_t max_sequence() const = 0;
  // All inputs that the model may ask Recorder::Read for, besides SampleNumbers(). The job's data
  // source must deliver them.
  virtual std::vector<InputSpec> inputs() const = 0;
  // Records the block before the layers.
  virtual Carried Start(Recorder& recorder) const = 0;
  // Records one layer. Layers may differ, also in the values that they pass on.
  virtual Carried Block(Recorder& recorder, int64_t layer, const Carried& carried) const = 0;
  // Records the block after the layers, in a training program: computes the loss, scaled by
  // StepState.loss_scale, and adds it to StepState.loss.
  virtual void Loss(Recorder& recorder, const Carried& carried) const = 0;
  // Records the block after the layers, in an inference program: keeps the outputs.
  virtual void KeepOutputs(Recorder& recorder, const Carried& carried) const = 0;
};

// The output "logits" of a program with a cache that has read several tokens.
inline constexpr char kSeveralLogits[] = "logits of several";

// The first and the last layers of a model whose linear layers keep the wide format, whatever the
// precision. Only linear layers of the others have products of the kind kLayer: not the start of a
// model, nor its end.
struct PlainLayers {
  int64_t first = 0;
  int64_t last = 0;
  bool Has(int64_t layer, int64_t layers) const { return layer < first || layer >= layers - last; }
};

struct RecordOptions {
  Precision precision = Precision::F32();
  int64_t micro_batch = 1;  // In sequences.
  int64_t sequence = 0;     // Tokens of one sequence; at most the model's max_sequence.
  Mesh mesh = {};
  ContextExchange context_exchange = ContextExchange::kRing;
  // The model is cut into parts for the pipeline after these blocks (embedding, layers, head).
  // Ascending.
  std::vector<int> cuts = {};
  std::vector<int> stages = {0};  // The pipeline stage that holds each part.
  // The number of rows that the experts of a rank process at once, divided by the number of rows
  // that they receive if the choice of experts is even. Further rows are processed in further
  // rounds.
  double expert_rows = 2;
  // The output head and its loss work in chunks of rows whose logits take at most so many bytes, or
  // of 512 rows.
  int64_t logits_bytes = kLogitsBytes;
  // Tokens attend only within their document. Attention, which must be causal, then reads an input
  // of its own, DocumentBegins(sequence).
  bool documents = false;
  bool restart_positions = false;  // With `documents`: each document has the positions from 0 on.
  bool deterministic = true;       // False: see AttentionBackwardArgs.
  // In a training program of a model of text, validations keep the output "logits" of the rows that
  // the host writes to the input kLastRows.
  bool last_logits = false;
  // Absent: each target that is counted is learnt. Otherwise the model, which is one of text,
  // learns from pairs of answers, and reads PreferenceInputs(sequence).
  std::optional<PreferenceOptions> preference = {};
  LowRank adapter = {};    // The low-rank adapters of linear layers.
  PlainLayers plain = {};  // Which layers' products have no scales in any precision.
  WeightRounding weight_rounding = {};
  bool fuse = true;  // Whether ops are fused. Only tests that compare turn this off.
  // > 0: an inference program of one sequence keeps the keys and values of so many tokens, at most
  // the model's max_sequence, of each of some texts, from one replay to the next, and the states of
  // recurrent layers. Only tensor ranks may divide the model; their number must divide `sequence`
  // and `cached_texts`. Each rank keeps what belongs to its heads.
  // Chunk 0 reads the next `sequence` tokens of one text, with the output kSeveralLogits, and chunk
  // 1 the next token of every text. The host writes the inputs that models/program/input.h names.
  int64_t cache = 0;
  int64_t cached_texts = 1;
};

struct TrainingOptions {
  RecordOptions record = {};
  OptimizerOptions optimizer = {};
  size_t bucket_bytes = kBucketBytes;  // See LayoutOptions.
  Zero zero = Zero::kNone;
  RecomputeOptions recompute = {};
  Recorder::IsFrozen frozen = nullptr;
  bool offload = false;  // State that only the optimizer reads is the host's: see PlaceBuffers.
  // Called after each pass with the program that the pass has left.
  std::function<void(const char* pass, const Program& program)> after_pass = nullptr;
};

// Records this rank's part of a training step: the lists init, prepare, forward, backward and
// optimizer, and the inputs that this rank's blocks read. The forward list adds to StepState.loss.
Program RecordTraining(const Model& model, const TrainingOptions& options);

// Records only the lists forward and backward, without a layout of the parameters.
Program RecordGradients(const Model& model, const TrainingOptions& options);

// Returns the storages of the parameters that the model declares, in order, on one rank.
std::vector<ParameterStorage> DeclareParameters(const Model& model, const LowRank& adapter = {});

// Records the lists init, prepare and forward, with the outputs that the model keeps.
Program RecordInference(const Model& model, const RecordOptions& options);

}  // namespace trainyard
