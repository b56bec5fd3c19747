// Checks that a job's model and batch can be divided over its ranks as the job asks.

#pragma once

#include "absl/status/statusor.h"
#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// Adds a violation for each size of the axes or of the batch that is illegal by itself, and for
// each that does not divide what it should. The violation has the nearest size that does so if all
// other sizes, `devices` included, stay as they are. `model` must be legal by itself, or null: then
// the rules that depend on the model are not checked.
void ValidateLayout(const JobConfig& job, const ModelConfig* model, Violations& violations);

// Returns the model as tensor ranks alone divide it: with as much padding of the vocabulary as they
// need (DecoderConfig::vocab_multiple). The rows of a batch count as padded, too. INVALID_ARGUMENT:
// the ranks cannot divide the model; the message names the sizes, and the nearest number of ranks
// that can. `model` must be legal by itself.
absl::StatusOr<ModelConfig> DividedOverTensorRanks(const ModelConfig& model, int64_t tensor);

// The most layers on a pipeline stage; 0 if the pipeline has more parts than the model blocks.
int64_t LayersOfAStage(const ParallelismConfig& parallelism, int64_t layers);

// The number of micro-batches must be a multiple of this for the pipeline schedule.
int64_t PipelineRound(const ParallelismConfig& parallelism);

}  // namespace trainyard
