// The token of a controller that listens on loopback: whoever can read it is the user that the
// controller runs as, and may do everything. Other users of the machine reach the port, not the
// file.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "controller/access/principal.h"
#include "security/tokens.h"

namespace trainyard::controller {

class LocalToken {
 public:
  // A new one, in STATE/token with mode 0600. Each start of a controller has its own, because while
  // no controller listens another user may listen on its port, and is shown the one before.
  // Errors: WriteSecret's.
  static absl::StatusOr<LocalToken> Make(const std::string& state_directory);

  bool Is(const Token& token) const { return SameSecret(token.text, text_); }
  static Principal Owner() {
    return {.name = "local",
            .roles = {v1::ROLE_ADMIN, v1::ROLE_JOINER, v1::ROLE_WORKER},
            .local = true};
  }
  const std::string& text() const { return text_; }

 private:
  explicit LocalToken(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

}  // namespace trainyard::controller
