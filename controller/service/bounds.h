// Applies the option `bounds` (proto/trainyard/v1/bounds.proto) to a message that has come in.

#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace trainyard::controller {

// Cuts what the bounds allow to cut, and removes numbers that no counter can take, in the message
// and in all messages inside. INVALID_ARGUMENT: a field is beyond its bounds; the message names the
// field.
absl::Status ApplyBounds(google::protobuf::Message& message);

}  // namespace trainyard::controller
