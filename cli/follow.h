// Follows a job to its end, through restarts of the controller.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/client.h"
#include "cli/output.h"

namespace trainyard::cli {

// Prints the job's changes until it is terminal. OK: the job succeeded. Exit code 3: it failed or
// was cancelled. Exit code 4: the controller could not be reached for a minute.
absl::Status FollowJob(Client& client, const std::string& job_id, Output& output);

}  // namespace trainyard::cli
