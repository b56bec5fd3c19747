// When a worker's daemon last spoke to its controller, in a file of the daemon's state directory.
// Probes on the same machine read the file (`trainyard health --worker DIR`), and need neither a
// port nor a credential for that.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace trainyard {

struct LastWord {
  absl::Duration at;    // A monotonic reading of this machine.
  absl::Duration beat;  // The daemon speaks at least this often while it is registered.
};

// Replaces the file of the daemon with this state directory. Readers see the old or the new word.
// The file does not survive a power cut, and need not.
absl::Status WriteLastWord(const std::string& state_directory, const LastWord& word);

// Forgets the word of an earlier daemon. A file that is not there is OK.
absl::Status RemoveLastWord(const std::string& state_directory);

// OK: the daemon of this state directory is registered at its controller, and spoke to it within
// three beats and ten seconds.
// FAILED_PRECONDITION, with what to do: the daemon spoke longer ago, or not since it started.
// NOT_FOUND: no daemon has ever used this directory.
absl::Status CheckLastWord(const std::string& state_directory, const Clock& clock);

}  // namespace trainyard
