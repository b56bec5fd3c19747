// Why a rank ended, as the trainer, its supervisor or its daemon reports it, and the names of the
// causes in exit reports (docs/formats.md).

#pragma once

#include "absl/strings/string_view.h"

namespace trainyard {

// Numbered as on the wire.
enum class ExitCause {
  kCompleted = 1,
  kStopped = 2,
  // The user can repair it: data, paths, checkpoints, the config, or too much memory wanted.
  kBadInput = 3,
  kNotFinite = 4,
  kPeerLost = 5,
  kDeviceError = 6,
  kSignal = 7,  // Reported about a trainer, never by it; so is kHung.
  kOther = 8,
  kHung = 9,
  kStorage = 10,     // This host does not have the checkpoint directory as the job left it.
  kSuperseded = 11,  // A later attempt has begun in the checkpoint directory.
};

absl::string_view Name(ExitCause cause);           // "bad_input".
ExitCause ParseExitCause(absl::string_view name);  // kOther: the name is unknown.

}  // namespace trainyard
