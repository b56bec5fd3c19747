// The options of an optimizer, as proto/trainyard/v1/optimizers.proto declares them.

#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "models/program/optimizer/optimizer.h"

namespace trainyard {

// Returns the options in the section `optimizer` of a job's optimizer, in the order of the message.
std::vector<OptimizerOption> DeclaredOptions(absl::string_view optimizer);

}  // namespace trainyard
