// The names of the causes in exit reports (docs/formats.md).

#pragma once

#include "absl/strings/string_view.h"
#include "common/worker_messages.h"

namespace trainyard {

absl::string_view Name(ExitCause cause);           // "bad_input".
ExitCause ParseExitCause(absl::string_view name);  // kOther: the name is unknown.

}  // namespace trainyard
