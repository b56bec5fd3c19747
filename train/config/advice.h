// Which one change of a size makes a whole layout legal. The checks say of each rule alone what
// would satisfy it, and that may break another one.

#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// The sizes that depend on each other are devices and those of `batch` and `parallelism`.
//
// The violation "wanted a size that goes with the others, found 3; nearest 2" of the size at
// `field`: with that nearest value, the others as they are, the layout is legal. Nullopt where
// there is no such value, where the layout is legal, and where `field` is none of those sizes.
std::optional<FieldViolation> OneChange(JobConfig job, absl::string_view field);

// `layout` is what ValidateLayout says of the job. If one change of a size makes the layout legal,
// the first violation says so afterwards: by its nearest value if it is of such a size, otherwise
// one of OneChange is put before it. A first violation that is of no size stays.
void PutOneChangeFirst(JobConfig job, const ModelConfig& model,
                       std::vector<FieldViolation>& layout);

}  // namespace trainyard
