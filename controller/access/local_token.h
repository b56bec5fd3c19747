// The token of a controller that listens on loopback: whoever can read it is the user that the
// controller runs as, and may do everything. Other users of the machine reach the port, not the
// file.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "controller/access/principal.h"

namespace trainyard::controller {

class LocalToken {
 public:
  // A new one, in STATE/token with mode 0600. Each start of a controller has its own, because while
  // no controller listens another user may listen on its port, and is shown the one before.
  // Errors: WriteSecret's.
  static absl::StatusOr<LocalToken> Make(const std::string& state_directory);

  // UNAUTHENTICATED: it is another one, or none at all; the message says which.
  absl::StatusOr<Principal> Authenticate(absl::string_view token) const;
  const std::string& text() const { return text_; }

 private:
  explicit LocalToken(std::string text, std::string hash)
      : text_(std::move(text)), hash_(std::move(hash)) {}

  std::string text_;
  std::string hash_;
};

}  // namespace trainyard::controller
