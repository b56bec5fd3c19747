// Checks whether a source of data has the inputs that a model declares.

#pragma once

#include <vector>

#include "common/violations.h"
#include "models/program/input.h"
#include "train/config/job_config.h"

namespace trainyard {

// Adds a violation to the source's field that names the inputs in `declared` which the source does
// not have as the model declares them. Adds one to data.indexed.reset_attention_mask if the model
// reads no tokens; models that read tokens predict the next one, so their attention is causal. Adds
// nothing if no source is given.
void CheckInputs(const std::vector<InputSpec>& declared, const DataConfig& source,
                 Violations& violations);

}  // namespace trainyard
