// Why a rank ended, and the names of it in exit reports (docs/formats.md): what a trainer says of
// itself, and what its supervisor or daemon says of it.

#pragma once

#include "absl/strings/string_view.h"

namespace trainyard {

enum class ExitCause {
  kCompleted,
  kStopped,
  kBadInput,  // The user's to mend: data, paths, checkpoints, the config, too much memory wanted.
  kNotFinite,
  kPeerLost,
  kDeviceError,
  kSignal,  // Said of a trainer, never by it, as is the next.
  kHung,
  kOther,
  kStorage,     // The checkpoint directory is not as the job left it, on this host.
  kSuperseded,  // A later attempt has begun in the checkpoint directory.
};

absl::string_view Name(ExitCause cause);           // "bad_input".
ExitCause ParseExitCause(absl::string_view name);  // kOther for a name that it does not know.

}  // namespace trainyard
