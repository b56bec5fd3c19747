// What a job measures on data that are held out, and what its model writes then.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/rank_records.h"
#include "common/roots.h"
#include "kernels/collective/collective.h"
#include "models/arch/config.h"
#include "train/chat/prompts.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/opened.h"
#include "train/config/job_config.h"
#include "train/data/batch_reader.h"
#include "train/step/job_data.h"
#include "train/step/rank_engine.h"
#include "train/trainer/generated.h"

namespace trainyard {

// A fingerprint of what a job's validation measures: of `data`, `batch`, `preference` and
// validation.batches, and of `continues` if that allows other files. Losses of jobs with the same
// measure can be compared.
std::string ValidationMeasure(const JobConfig& job);

// The validation of a step, as a checkpoint of the step keeps it. Nullopt if there was none, or if
// its loss is not finite.
std::optional<ValidationResult> ValidationOf(const StepRecord& record, const JobConfig& job);

// Whether the job has to save the state of this step, because its validation loss is among the
// checkpoint.keep_best lowest of the run. All ranks of a job call this together for the same steps,
// and get the same answer; rank 0 reads `directory`, and opens checkpoints that `opened` has not.
bool IsWorthKeeping(const StepRecord& record, const JobConfig& job, const std::string& directory,
                    OpenedCheckpoints& opened, Collective& everyone);

// Not thread-safe.
class JobValidation {
 public:
  struct Options {
    // All references must outlive the validation.
    const JobConfig& job;  // With a validation.
    const ModelConfig& model;
    const JobData& data;  // Of which some is held out.
    BatchShape shape;
    RankEngine& engine;
    Collective& everyone;
    OpenPrompts open_prompts;        // For jobs with prompts.
    const Roots& roots;              // Where a tokenizer may lie.
    std::function<void()> progress;  // Called before each forward pass.
    // TextGenerator::Options::stop.
    std::function<bool()> stop;
    // Called with an error of this rank alone, for which the others must not wait; returns it.
    std::function<absl::Status(const absl::Status&)> leave;
  };
  // All ranks call this together, and all fail if one does. Errors, which name the field: those of
  // open_prompts and of TextGenerator::Create.
  static absl::StatusOr<std::unique_ptr<JobValidation>> Create(const Options& options);

  // All ranks call this after the same step. Sets what the step's record says of the validation;
  // the texts on rank 0 alone. Errors of reading data, after `leave`. OUT_OF_RANGE, on all ranks:
  // no target is counted.
  absl::Status Measure(StepRecord& record);

 private:
  explicit JobValidation(const Options& options)
      : options_(options),
        reader_(*options.data.splits.validation, SampleOrder::kSequential, options.job.seed,
                options.shape) {}

  const Options options_;
  const BatchReader reader_;
  std::unique_ptr<const PromptCodec> codec_;
  std::unique_ptr<TextGenerator> generator_;  // Null: the job has no prompts.
};

}  // namespace trainyard
