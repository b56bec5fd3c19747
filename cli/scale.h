// Fits a spec to the devices at hand: `trainyard submit --scale-to`.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/spec.h"

namespace trainyard::cli {

// Changes the spec so that it runs on at most `devices` devices with the memory of the smallest one
// that the cluster has (train/config/scale.h), and notes every change, one line each. Also notes if
// the cluster has fewer devices than the job then needs.
// INVALID_ARGUMENT: the spec is wrong before it is scaled. FAILED_PRECONDITION: a rank needs more
// memory than a device has, whatever the layers are.
absl::Status ScaleSpec(int64_t devices, Client& client, SpecDocument& document, Output& output);

}  // namespace trainyard::cli
