// The token of a controller that listens on loopback. Only the user that the controller runs as can
// read the token's file, and this user may do everything. Other users of the machine reach the
// port, and not the file.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "controller/access/principal.h"
#include "security/tokens.h"

namespace trainyard::controller {

class LocalToken {
 public:
  // Makes a token, and writes it to STATE/token with mode 0600. Each start of a controller makes
  // another one: while no controller runs, another user may listen on its port, and clients show
  // him the previous token. Errors: those of WriteSecret.
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
