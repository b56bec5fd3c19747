// Where the controller may listen.

#pragma once

#include "absl/status/status.h"
#include "common/address.h"

namespace trainyard::controller {

// FAILED_PRECONDITION: off loopback without `insecure`, because nothing would be encrypted or asked
// for a credential.
absl::Status CheckListen(const Address& address, bool insecure);

}  // namespace trainyard::controller
