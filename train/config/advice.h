// Finds one change of a size that makes a whole layout legal. A check knows only its own rule: the
// value that satisfies this rule may break another one.

#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// Returns the violation "wanted a size that goes with the others, found 3; nearest 2" for the size
// at `field`. The layout is legal with that nearest value if all other sizes stay as they are. The
// sizes are `devices` and those of `batch` and `parallelism`. Returns nullopt if no such value
// exists, the layout is legal, or `field` is none of the sizes.
std::optional<FieldViolation> OneChange(JobConfig job, absl::string_view field);

// Makes the first violation say which one change of a size makes the layout legal, if there is such
// a change. `layout` must hold the violations that ValidateLayout found in the job. If a change of
// the first violation's own size is enough, the violation gets the nearest such value. Otherwise
// the result of OneChange for another size is put before it. Does nothing if the first violation is
// not about a size.
void PutOneChangeFirst(JobConfig job, const ModelConfig& model,
                       std::vector<FieldViolation>& layout);

}  // namespace trainyard
