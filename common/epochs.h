// The numbers of a job's attempts.

#pragma once

#include <cstdint>

namespace trainyard {

// A greater number in the checkpoint directory is no attempt's, and is ignored: nobody could go on
// after it. Attempts are counted from 1, leap to the seconds since 2020 with a restored store, and
// leap by a factor of 16 past attempts that the controller does not know.
inline constexpr int64_t kMostEpoch = int64_t{1} << 50;

}  // namespace trainyard
