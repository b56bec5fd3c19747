// A model declares its inputs, its blocks, what these carry, and its loss: written forward only,
// for one device. Recording it yields the program that trains it (or computes its outputs).

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "models/parallel/context_exchange.h"
#include "models/parallel/zero.h"
#include "models/program/passes/options.h"
#include "models/program/program.h"
#include "models/program/recorder.h"

namespace trainyard {

// Immutable, thread-safe. What Start makes passes from block to block: one [tokens, width] matrix
// in most models, more values where a model carries more. Parallelism, gradients, precision are the
// layers' and the passes' business.
class Model {
 public:
  virtual ~Model() = default;

  virtual int64_t layers() const = 0;
  virtual int64_t max_sequence() const = 0;
  // All that Recorder::Read may be asked for. The job's source of data must deliver it.
  virtual std::vector<InputSpec> inputs() const = 0;
  // The block before the layers.
  virtual Carried Start(Recorder& recorder) const = 0;
  // Layers may differ, in what they carry on, too.
  virtual Carried Block(Recorder& recorder, int64_t layer, const Carried& carried) const = 0;
  // The block after the layers, of a training program: records the loss, which adds to
  // StepState.loss and takes its scale from there...
  virtual void Loss(Recorder& recorder, const Carried& carried) const = 0;
  // ... or of inference: keeps outputs.
  virtual void KeepOutputs(Recorder& recorder, const Carried& carried) const = 0;
};

struct RecordOptions {
  Precision precision = Precision::F32();
  int64_t micro_batch = 1;  // Sequences.
  int64_t sequence = 0;     // Tokens of one; at most the model's max_sequence.
  Mesh mesh = {};
  ContextExchange context_exchange = ContextExchange::kRing;
  // The blocks (embedding, layers, head) after which the model is cut into parts for the pipeline;
  // ascending.
  std::vector<int> cuts = {};
  std::vector<int> stages = {0};  // The pipeline stage that holds each part.
  // Rows that a rank's experts take at once, over those that they have when all are evenly chosen.
  // What comes beyond is taken in further rounds.
  double expert_rows = 2;
  bool deterministic = true;  // False: as AttentionBackwardArgs has it.
  bool fuse = true;           // Fuse the lists. Off in tests alone, which compare.
};

struct TrainingOptions {
  RecordOptions record = {};
  AdamWOptions adamw = {};
  size_t bucket_bytes = kBucketBytes;  // As LayOutParameters takes it.
  Zero zero = Zero::kNone;
  RecomputeOptions recompute = {};
  Recorder::IsFrozen frozen = nullptr;
  // Called with what there is after each pass.
  std::function<void(const char* pass, const Program& program)> after_pass = nullptr;
};

// This rank's part of the step: lists init, prepare, forward, backward, optimizer, and the inputs
// that its blocks read. Forward adds to StepState.loss.
Program RecordTraining(const Model& model, const TrainingOptions& options);

// The lists forward and backward alone, before anything is done about where values lie.
Program RecordGradients(const Model& model, const TrainingOptions& options);

// What Model's functions declare, on one rank: by storage, in order.
std::vector<ParameterStorage> DeclareParameters(const Model& model);

// Lists init, prepare, forward, with the outputs that the model keeps.
Program RecordInference(const Model& model, const RecordOptions& options);

}  // namespace trainyard
