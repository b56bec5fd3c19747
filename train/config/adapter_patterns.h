// The `adapter` of a spec that trains what a checkpoint has.

#pragma once

#include <set>
#include <string>

#include "models/arch/config.h"
#include "models/program/low_rank.h"
#include "train/config/job_config.h"

namespace trainyard {

// Returns an adapter whose patterns match the layers that have low-rank matrices among the
// parameters `trained`, and the modules of the others, and no more. There are few patterns where
// layers of one kind are trained together; a spec takes kMaxPatterns. `model` must be valid and
// have the parameters.
LoraConfig AdapterThatTrains(const ModelConfig& model, const LoraNumbers& numbers,
                             const std::set<std::string>& trained);

}  // namespace trainyard
