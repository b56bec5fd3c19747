#include "controller/service/address.h"

#include "absl/strings/str_cat.h"

namespace trainyard::controller {

absl::Status CheckListen(const Address& address, bool insecure) {
  if (insecure || address.loopback()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "refusing to listen on ", address.ToString(),
      ": without TLS anybody who reaches it could submit and cancel jobs. Listen on 127.0.0.1, or "
      "give --insecure"));
}

}  // namespace trainyard::controller
