// Copies parameters of directories into checkpoints, one at a time.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "models/hf/weights.h"
#include "train/checkpoint/save.h"

namespace trainyard {

// Appends the whole parameter.
absl::Status AppendWhole(const HfParameter& parameter, DType dtype, const std::vector<char>& values,
                         RankWriter& writer);

// Reads all parameters but those that `without` names, and so checks their values. Appends them to
// `writer`, if it is not null.
absl::Status CopyParameters(const HfWeights& weights, const std::set<std::string>& without,
                            RankWriter* writer);

}  // namespace trainyard
