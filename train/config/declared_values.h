// The values of a job by what job_spec.proto declares of their fields (common/declared.h).

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/declared.h"
#include "common/spec_path.h"
#include "common/violations.h"
#include "train/config/job_config.h"

namespace trainyard {

// The row of a field, whose items of lists have numbers: "data.blend.datasets[1].weight". Null: the
// field has no row.
const DeclaredField* DeclaredOf(absl::string_view field);

// Adds a violation for each number outside the limits of its field, if the field has none yet.
void CheckNumbers(const JobConfig& job, Violations& violations);

// All paths of files and directories that a job names, each with its field
// ("checkpoint.directory"). The controller lets a job name only what lies below certain roots, so a
// path that is missing here is open to everybody.
std::vector<SpecPath> PathsOf(const JobConfig& job);

}  // namespace trainyard
