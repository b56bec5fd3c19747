#include "cli/ports.h"

#include "absl/strings/str_cat.h"
#include "cli/errors.h"
#include "common/net/listener.h"

namespace trainyard::cli {
absl::Status CheckListenable(absl::string_view option, const std::string& address) {
  const absl::StatusOr<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return UsageError(absl::StrCat(option, ": ", parsed.status().message()));
  if (!parsed->loopback()) {
    return UsageError(absl::StrCat(
        option, ": wanted a loopback address, such as 127.0.0.1:", parsed->port, ", found '",
        address,
        "': 'up' encrypts nothing. To serve other machines, begin with 'trainyard-controller init' "
        "and start trainyard-controller and trainyard-worker yourself (docs/access.md)"));
  }
  const absl::Status status = Listener::Listen(*parsed).status();
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(option, ": ", status.message(),
                   absl::IsAlreadyExists(status)
                       ? absl::StrCat(", perhaps by another 'trainyard up'; ", option, " ",
                                      Address{parsed->host, 0}.ToString(), " picks a free port")
                       : ""));
}

}  // namespace trainyard::cli
