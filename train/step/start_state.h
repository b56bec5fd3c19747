// The state that an attempt starts from, the same on all ranks: a checkpoint's, or else initial
// values, of which init_from may give the parameters.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/manifest.h"
#include "train/config/trainer_config.h"
#include "train/step/load_together.h"
#include "train/step/start_point.h"

namespace trainyard {

// The executable holds initial values already. Every rank calls the functions together.
class StartState {
 public:
  // All must outlive it. `layout` is that of checkpoints to come.
  StartState(const JobConfig& job, const RankConfig& rank, CheckpointLayout layout,
             LoadingGang gang);

  // Before the job's checkpoint directory is claimed: loads init_from, unless the job has begun
  // before, so that a job whose init_from is no good leaves no trace. Errors begin with the field.
  absl::Status BeforeClaim();

  // After it: loads the newest good one of `start.candidates`, on rank 0, or else init_from if that
  // is still to be done. Then writes down what is continued (ContinueFrom, on rank 0).
  absl::Status Load(StartPoint& start);

  int64_t step() const { return step_; }  // Finished, as is the next.
  int64_t data_position() const { return data_position_; }
  // Why newer checkpoints were not loaded, told to people; on rank 0.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  bool BegunBefore();
  absl::Status FillFromInitFrom();
  absl::StatusOr<std::optional<Continued>> Resume(const std::vector<std::string>& candidates);
  bool first_rank() const { return gang_.everyone.rank() == 0; }

  const JobConfig& job_;
  const RankConfig& rank_;
  const CheckpointLayout layout_;
  const LoadingGang gang_;

  int64_t step_ = 0;
  int64_t data_position_ = 0;
  std::string init_from_;  // The checkpoint that parameters were loaded from.
  std::vector<std::string> refused_;
};

}  // namespace trainyard
