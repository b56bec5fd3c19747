// The kinds of errors of a command, and the exit code of each (0 success, 1 failure, 2 usage, 3 the
// watched job failed or was cancelled, 4 no controller can be reached).

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::cli {

absl::Status UsageError(absl::string_view message);        // 2
absl::Status OutcomeError(absl::string_view message);      // 3
absl::Status UnreachableError(absl::string_view message);  // 4

int ExitCode(const absl::Status& status);  // 0 for OK, 1 for all other errors.

}  // namespace trainyard::cli
