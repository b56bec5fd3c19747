// Job ids: "j-" and ten base32 digits (Crockford's, lower case) that grow with time, so that they
// sort by age as text and are short enough to read out.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::controller {

// The next job's number after `last`: milliseconds since 2020 times 1024, or last + 1 where more
// than that many are made at once or the wall clock went back.
uint64_t NextJobNumber(uint64_t last, absl::Time now);

std::string JobId(uint64_t number);
std::optional<uint64_t> JobNumber(absl::string_view id);  // Nothing: not an id of ours.

}  // namespace trainyard::controller
