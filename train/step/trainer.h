// One rank of a training job, from its configuration to its last step. Start here: Run() is the
// loop, step_runner.h one optimizer step.
//
// All ranks of a job run the same steps in lockstep: whatever one of them decides (the update is
// not finite, a stop was asked for) travels in one small all-reduce a step, so all act on it at the
// same step.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/step_numbers.h"
#include "kernels/collective/world.h"
#include "kernels/device/backend.h"
#include "kernels/device/step_state.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/load.h"
#include "train/config/trainer_config.h"
#include "train/step/collective_use.h"

namespace trainyard {

struct StepRecord : StepNumbers {
  int64_t step = 0;                  // From 1.
  int64_t tokens = 0;                // Of the global batch.
  double seconds = 0;                // Of the slowest rank.
  PhaseSeconds phases;               // Of this rank; made up to `seconds` by grad_sync.
  std::optional<double> peak_flops;  // Per second, of all ranks together, where all are known.
  bool skipped = false;              // Not finite, twice: the update was not committed.
  double model_flops = 0;            // Of the global batch, convention exact.
  int64_t memory_bytes = 0;          // Backend::MemoryInUse, after the step.
  int64_t memory_planned_bytes = 0;  // Of tensors, as planned.
  // This rank's, since the record before, validation and checkpoint included.
  std::vector<CollectiveUse> collectives;
};

struct CheckpointRecord {
  int64_t step = 0;
  std::string path;
  int64_t size_bytes = 0;
  double seconds = 0;
  // The loadable ones after retention, newest first, the newest 64; empty: not known.
  std::vector<ListedCheckpoint> retained;
};

// What the directory still holds of a checkpoint that an earlier attempt saved.
struct EarlierCheckpoint {
  ListedCheckpoint listed;
  int64_t size_bytes = 0;
};

// What a rank starts from. `step` is the same on every rank; rank 0 alone knows the rest.
struct StartRecord {
  int64_t step = 0;                         // Of the checkpoint that was loaded; 0: none.
  std::vector<std::string> refused;         // Why newer ones of the lineage were not.
  std::vector<EarlierCheckpoint> loadable;  // Newest first, at most 64.
  // Attempts after rank.recorded_epoch that this one builds on, oldest first.
  std::vector<AttemptStart> earlier_starts;
};

// All on the thread that calls Run; empty ones are skipped.
struct TrainerCallbacks {
  std::function<void(const StartRecord&)> ready = nullptr;  // All is loaded; the first step begins.
  std::function<void(const StepRecord&)> step = nullptr;
  // Rank 0, after the commit, and after the step's own record.
  std::function<void(const CheckpointRecord&)> checkpoint = nullptr;
  // Rank 0: the save after this step failed, and training goes on.
  std::function<void(int64_t step, const std::string& error)> checkpoint_failed = nullptr;
  // Rank 0: a line of the job's history (train/checkpoint/history.h), a JSON object with `step`,
  // for a record whose checkpoint phase is not known yet. Empty: no history is kept.
  std::function<std::string(const StepRecord&)> history_line = nullptr;
  // Rank 0, after `ready`: such a line of an earlier attempt, that the controller may lack.
  std::function<void(int64_t epoch, const std::string& line)> earlier_step = nullptr;
  std::function<bool()> stop_requested = nullptr;  // Asked once a step; one rank's yes stops all.
  // A piece of work is done and the next begins: after each batch, micro-batch and measurement, and
  // around checkpoints. `phase` of the next: "data" "step" "validation" "checkpoint". Quick.
  std::function<void(const char* phase, int64_t step)> progress = nullptr;
  // For tests of failures: before each attempt (from 0) at a step, with what it will run on.
  std::function<void(int64_t step, int attempt, StepState&)> before_attempt = nullptr;
};

enum class Outcome {
  kCompleted,
  kStopped,    // As asked, with a checkpoint of the last finished step where the job has any.
  kNotFinite,  // Loss or gradient, at two attempts from the same state.
};

struct TrainingResult {
  Outcome outcome = Outcome::kCompleted;
  int64_t step = 0;     // Finished ones.
  double loss = 0;      // Of the last one in this run.
  std::string message;  // For people.
};

// Not thread-safe.
class Trainer {
 public:
  // Opens data, records and plans the model, allocates, loads the newest good checkpoint of the
  // lineage of the job's directory (start_point.h), or else init_from, or else initialises. `job`
  // must be valid (Validate).
  // `backend` and `world`, whose ranks are the job's, must outlive the trainer.
  //
  // A rank that fails tells the others, and all return its error: INVALID_ARGUMENT, NOT_FOUND,
  // PERMISSION_DENIED, DATA_LOSS, FAILED_PRECONDITION and UNIMPLEMENTED are the user's to mend
  // (data, paths, checkpoints; the file is named), RESOURCE_EXHAUSTED is a lack of memory. Two more
  // are of lineage.h: IsStorageFault, this host's failure, and IsSuperseded.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const JobConfig& job,
                                                         const RankConfig& rank,
                                                         const Backend& backend,
                                                         CollectiveWorld& world,
                                                         TrainerCallbacks callbacks);
  virtual ~Trainer() = default;

  // Until the last step, a stop, or a failure. Once. Errors: of data, as above, on the rank that
  // has them; of the last checkpoint, on all; INTERNAL where memory changed by itself
  // (state_check.h); IsSuperseded, on all, once a later attempt has begun in the checkpoint
  // directory, for which rank 0 looks every second (successor_watch.h) and before each checkpoint.
  // A checkpoint in between that fails is told, and training goes on.
  virtual absl::StatusOr<TrainingResult> Run() = 0;
};

// What a job run alone is as a rank: one of one, on all cores, resuming from its own checkpoint
// directory.
absl::StatusOr<RankConfig> AloneRank(const JobConfig& job);

}  // namespace trainyard
