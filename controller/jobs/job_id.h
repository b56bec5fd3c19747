// Job ids: "j-" and ten base32 digits (Crockford's alphabet, lower case). The number grows with
// time, so ids sort by age as text, and they are short enough to read aloud. From November 2054 on
// the number needs eleven digits. Such ids sort among themselves, and come after those of ten.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::controller {

// Returns the number of the next job after `last`: the milliseconds since 2020 times 1024. Returns
// last + 1 if that is greater: more than 1024 jobs were made in a millisecond, or the wall clock
// went back. Clocks count up to the year 3134, so that numbers have 55 bits.
uint64_t NextJobNumber(uint64_t last, absl::Time now);

// Every number has an id, by which it is found again.
std::string JobId(uint64_t number);
std::optional<uint64_t> JobNumber(absl::string_view id);  // Absent: this is not a job's id.

}  // namespace trainyard::controller
