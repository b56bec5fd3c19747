// Whether a job's model and batch can be divided over its ranks as it asks.

#pragma once

#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// Adds a violation for each size of the axes or of the batch that is illegal by itself and for each
// that does not divide what it should, with the nearest size that does (as long as the others stay,
// devices among them). What depends on the model is not looked at where `model` is null; otherwise
// it is legal by itself.
void ValidateLayout(const JobConfig& job, const ModelConfig* model, Violations& violations);

// The number of micro-batches that the pipeline schedule takes at a time.
int64_t PipelineRound(const ParallelismConfig& parallelism);

}  // namespace trainyard
