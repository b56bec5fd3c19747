// What the precisions in 8 bits cannot do with a model, or with its division among ranks.

#pragma once

#include "common/violations.h"
#include "models/arch/config.h"
#include "models/model.h"
#include "train/config/job_config.h"

namespace trainyard {

// The layers that the job leaves in bf16.
PlainLayers PlainLayersOf(const JobConfig& job);

// Adds a violation for a section `fp8` of a job in another precision, and if it leaves no layer in
// 8 bits. If the job has no violation at all, adds one if tensor ranks share keys, or one for each
// field that divides the blocks of a weight. `model` must be valid, or null: then the rules that
// depend on the model are not checked.
void ValidateFp8(const JobConfig& job, const ModelConfig* model, Violations& violations);

}  // namespace trainyard
