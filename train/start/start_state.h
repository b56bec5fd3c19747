// The state from which an attempt starts. It is the same on all ranks: the state of the job's
// newest checkpoint. A job without a checkpoint starts from initial values, or from the parameters
// of its init_from or its model.import.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint/inputs.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/manifest.h"
#include "train/config/trainer_config.h"
#include "train/hf/carried_files.h"
#include "train/start/load_together.h"
#include "train/start/start_point.h"
#include "train/step/job_data.h"

namespace trainyard {

// The gang's executable must hold initial values already. All ranks call each function at the same
// time.
class StartState {
 public:
  // `job`, `rank` and what `gang` refers to must outlive this object. `layout` is the layout that
  // the attempt's checkpoints will have.
  StartState(const JobConfig& job, const RankConfig& rank, CheckpointLayout layout,
             const JobData& data, LoadingGang gang);

  // Call before the job's checkpoint directory is claimed. Loads init_from or model.import if the
  // job has not begun before: if they cannot be used, the job then fails before it changes the
  // directory. Likewise compares a job that continues a run with this run (CheckContinued). The
  // message of an error begins with the field.
  absl::Status BeforeClaim();

  // Call after the directory is claimed. Loads the newest good checkpoint of `start.candidates`;
  // only rank 0's list counts. If there is none, loads as BeforeClaim, unless that has loaded
  // already. Then rank 0 writes down which checkpoint the attempt continues (ContinueFrom).
  // INVALID_ARGUMENT: a rank's host has another file of the data, or of the imported directory,
  // than earlier attempts or rank 0 have read.
  absl::Status Load(StartPoint& start);

  int64_t step() const { return step_; }                    // The steps that are finished.
  int64_t epoch() const { return epoch_; }                  // The attempt that wrote them; 0: none.
  int64_t data_position() const { return data_position_; }  // The samples that they consumed.
  // The base of the checkpoint from which the attempt resumed. Later checkpoints name it, too.
  const std::optional<BaseReference>& base() const { return base_; }
  // What checkpoints keep of the imported directory. Empty if there is none, and on other ranks
  // than rank 0.
  const KeptFiles& kept() const { return kept_; }
  // On rank 0, after Load: the files of the tokenizer that the spec names (carried_files.h).
  const KeptFiles& tokenizer() const { return tokenizer_; }
  // Why newer checkpoints were not loaded, in words for people. Empty on all ranks but rank 0.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  bool BegunBefore();
  absl::Status LookAtContinued(StartPoint& unclaimed);
  std::optional<InitialisedFrom> TakenBefore() const;
  absl::Status Fill();
  absl::Status FillFromInitFrom();
  void KeepOf(const std::string& checkpoint);
  absl::Status KeepTokenizer();
  // Where the tokenizer is that checkpoints must keep. "": there is none, or it is the import's.
  std::string TokenizerToKeepFrom() const;
  bool ImportHasTokenizerOfData() const;
  absl::Status CheckInputs(StartPoint& start);
  absl::Status CompareWith(const RecordedInputs& recorded) const;
  absl::Status CheckTokensOnce(const RecordedInputs& recorded);
  absl::StatusOr<std::optional<Continued>> Resume(const std::vector<std::string>& candidates);
  bool first_rank() const { return gang_.everyone.rank() == 0; }

  const JobConfig& job_;
  const RankConfig& rank_;
  const CheckpointLayout layout_;
  const JobData& data_;
  const LoadingGang gang_;

  int64_t step_ = 0;
  int64_t epoch_ = 0;
  int64_t data_position_ = 0;
  std::optional<BaseReference> base_;
  std::vector<InputFingerprint> inputs_;  // The files that this attempt has read.
  std::optional<int64_t> tokens_below_;   // RecordedInputs::tokens_below, once that is known.
  bool filled_ = false;
  std::optional<InitialisedFrom> init_from_;  // Set if parameters were loaded from init_from.
  std::optional<Checkpoint> continued_;       // Of the run that was compared before the claim.
  absl::Status may_continue_;
  std::string resumed_from_;  // On rank 0: the checkpoint at which the run continues.
  KeptFiles kept_;
  KeptFiles tokenizer_;
  std::vector<std::string> refused_;
};

}  // namespace trainyard
