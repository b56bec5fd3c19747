// Whether a source of data delivers what a model declares that it reads.

#pragma once

#include <vector>

#include "common/violations.h"
#include "models/program/input.h"
#include "train/config/job_config.h"

namespace trainyard {

// Adds a violation of the source's field for each of the `declared` inputs that it does not deliver
// as declared, and of data.indexed.reset_attention_mask if the model reads no tokens. Models that
// read tokens predict the next one, so their attention is causal. Not where there is no source.
void CheckInputs(const std::vector<InputSpec>& declared, const DataConfig& source,
                 Violations& violations);

}  // namespace trainyard
