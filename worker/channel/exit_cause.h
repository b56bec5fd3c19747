// Why a rank ended, as the trainer, its supervisor or its daemon reports it, and the names of the
// causes in exit reports (docs/formats.md).

#pragma once

#include "absl/strings/string_view.h"

namespace trainyard {

enum class ExitCause {
  kCompleted,
  kStopped,
  // The user can repair it: data, paths, checkpoints, the config, or too much memory wanted.
  kBadInput,
  kNotFinite,
  kPeerLost,
  kDeviceError,
  kSignal,  // Reported about a trainer, never by it; so is kHung.
  kHung,
  kOther,
  kStorage,     // This host does not have the checkpoint directory as the job left it.
  kSuperseded,  // A later attempt has begun in the checkpoint directory.
};

absl::string_view Name(ExitCause cause);           // "bad_input".
ExitCause ParseExitCause(absl::string_view name);  // kOther: the name is unknown.

}  // namespace trainyard
