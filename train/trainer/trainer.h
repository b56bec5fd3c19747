// One rank of a training job, from its configuration to its last step. Start here: Run() is the
// loop, and step_runner.h runs one optimizer step.
//
// All ranks of a job run the same steps in lockstep. If one rank decides something (the update is
// not finite, a stop was asked for), the decision travels in one small all-reduce per step. So all
// ranks act on it at the same step.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rank_records.h"
#include "kernels/collective/world.h"
#include "kernels/device/backend.h"
#include "kernels/device/step_state.h"
#include "train/chat/line_encoder.h"
#include "train/chat/prompts.h"
#include "train/config/trainer_config.h"

namespace trainyard {

struct Program;

// Called on the thread that calls Run. A callback that is null is not called.
struct TrainerCallbacks {
  std::function<void(const StartRecord&)> ready = nullptr;  // All is loaded; the first step begins.
  std::function<void(const StepRecord&)> step = nullptr;
  // Rank 0: after the commit, and after the step's own record.
  std::function<void(const CheckpointRecord&)> checkpoint = nullptr;
  // Rank 0: the save after this step failed. Training continues.
  std::function<void(int64_t step, const std::string& error)> checkpoint_failed = nullptr;
  // Rank 0: returns a line of the job's history (train/checkpoint/history.h), a JSON object with
  // `step`. The record's checkpoint phase is not known yet. Null: no history is kept.
  std::function<std::string(const StepRecord&)> history_line = nullptr;
  // Rank 0, after `ready`: a line of an earlier attempt's history that the controller may lack.
  std::function<void(int64_t epoch, const std::string& line)> earlier_step = nullptr;
  // Called once in each attempt at a step. If it returns true on one rank, all ranks stop.
  std::function<bool()> stop_requested = nullptr;
  // Called when a piece of work is done and another one begins: after each batch, micro-batch and
  // measurement, and around checkpoints. `phase` is that of the next work: "data", "step",
  // "validation" or "checkpoint". Must return quickly.
  std::function<void(const char* phase, int64_t step)> progress = nullptr;
  // Says how lines become tokens, for data that are chats. A program with gRPC cannot have
  // SentencePiece: both bring their own protobuf.
  OpenLineEncoding open_lines = nullptr;
  OpenPrompts open_prompts = nullptr;  // The same for validation.generate.
  // For tests of failures: called before each attempt (from 0) at a step, with the attempt's state.
  std::function<void(int64_t step, int attempt, StepState&)> before_attempt = nullptr;
  // For tests of wrong programs: may change the rank's program before it is planned.
  std::function<void(Program&)> edit_program = nullptr;
};

enum class Outcome {
  kCompleted,
  kStopped,    // A stop was requested. The last step has a checkpoint if the job has any.
  kNotFinite,  // Loss or gradient, at two attempts from the same state.
};

struct TrainingResult {
  Outcome outcome = Outcome::kCompleted;
  int64_t step = 0;     // Finished steps.
  std::string message;  // For people.
};

// Not thread-safe.
class Trainer {
 public:
  // Prepares training: opens the data, records and plans the model, and allocates. Then loads the
  // newest good checkpoint of the lineage of the job's directory (start_point.h), or init_from if
  // there is none, or initialises. `job` must be valid (Validate). `backend` and `world` must
  // outlive the trainer, and the world must have the job's ranks.
  //
  // A rank that fails tells the others, and all return its error. The user must repair
  // INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, DATA_LOSS, OUT_OF_RANGE, FAILED_PRECONDITION
  // and UNIMPLEMENTED (data, paths, checkpoints); the message names the file. RESOURCE_EXHAUSTED:
  // too little memory. IsStorageFault (lineage.h): this host has failed. IsSuperseded (lineage.h):
  // a later attempt has begun.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const JobConfig& job,
                                                         const RankConfig& rank,
                                                         const Backend& backend,
                                                         CollectiveWorld& world,
                                                         TrainerCallbacks callbacks);
  virtual ~Trainer() = default;

  // Trains until the last step, a stop, or a failure. Call it once. If a checkpoint other than the
  // last fails, reports this and continues. Errors:
  // - Errors of data, as above, on the rank that has them.
  // - The error of the last checkpoint, on all ranks.
  // - INTERNAL: memory changed by itself (state_check.h).
  // - IsSuperseded, on all ranks: a later attempt has begun in the checkpoint directory. Rank 0
  //   looks every second (successor_watch.h) and before each checkpoint.
  virtual absl::StatusOr<TrainingResult> Run() = 0;
};

// The rank of a job that runs alone: one of one, on all cores, resuming from its own checkpoint
// directory.
absl::StatusOr<RankConfig> AloneRank(const JobConfig& job);

}  // namespace trainyard
