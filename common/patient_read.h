// One rule for files that a program reads to go on where an earlier one stopped:
//
//   unreadable  The reason may pass (EIO, EMFILE, EACCES). The file is read again until the
//               patience ends, and the failure is logged. Then the program goes on without the
//               file, and the file stays. The program says when it reads the file again.
//   damaged     Named, logged and not believed. What is whole beside it is used.
//   missing     The reader of the file says what that means.

#pragma once

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace trainyard {

// How long a program waits for files that it needs. A daemon that starts waits so long in all, for
// all its ranks, because a trainer waits only ten minutes for its daemon.
inline constexpr absl::Duration kReadPatience = absl::Minutes(1);

// Whether the file is unreadable: a later read may succeed.
bool MayPass(const absl::Status& read);

// For one file that is read again and again by a loop that has other work, too.
class ReadPatience {
 public:
  explicit ReadPatience(absl::Duration patience = kReadPatience) : patience_(patience) {}

  // Whether to read the file again later. Logs the first failure, and the last.
  bool TryAgain(const absl::Status& read, absl::Duration now);

 private:
  absl::Duration patience_;
  std::optional<absl::Duration> since_;  // The first failure; absent: the last read did not fail.
};

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& read) {
  return read.status();
}

// Calls `read` until the result is no unreadable file, or until it has waited for `left`. Takes the
// time that it has waited from `left`, so that several calls share one patience. Returns the last
// result. Blocks meanwhile.
template <typename Read>
auto ReadWithin(const Read& read, absl::Duration& left) {
  ReadPatience patience(left);
  auto result = read();
  const absl::Duration since = RealClock().Monotonic();
  while (patience.TryAgain(StatusOf(result), RealClock().Monotonic())) {
    absl::SleepFor(left / 600);
    result = read();
  }
  left = std::max(absl::ZeroDuration(), left - (RealClock().Monotonic() - since));
  return result;
}

// The same for one file.
template <typename Read>
auto ReadPatiently(const Read& read, absl::Duration patience) {
  return ReadWithin(read, patience);
}

}  // namespace trainyard
