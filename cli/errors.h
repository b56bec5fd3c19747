// How a command ends other than well: which errors map to which exit code (design: 0 done, 1
// failed, 2 usage, 3 the watched job failed or was cancelled, 4 no controller reachable).

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::cli {

absl::Status UsageError(absl::string_view message);        // 2
absl::Status OutcomeError(absl::string_view message);      // 3
absl::Status UnreachableError(absl::string_view message);  // 4

int ExitCode(const absl::Status& status);  // 0 for OK, 1 for every other error.

}  // namespace trainyard::cli
