// Job ids: "j-" and ten base32 digits (Crockford's alphabet, lower case). The number grows with
// time, so ids sort by age as text, and they are short enough to read aloud.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::controller {

// Returns the number of the next job after `last`: the milliseconds since 2020 times 1024. Returns
// last + 1 if that is greater: more than 1024 jobs were made in a millisecond, or the wall clock
// went back.
uint64_t NextJobNumber(uint64_t last, absl::Time now);

std::string JobId(uint64_t number);
std::optional<uint64_t> JobNumber(absl::string_view id);  // Absent: this is not a job's id.

}  // namespace trainyard::controller
