#include "controller/access/local_token.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "security/secret_file.h"
#include "security/tokens.h"

namespace trainyard::controller {

absl::StatusOr<LocalToken> LocalToken::Make(const std::string& state_directory) {
  ASSIGN_OR_RETURN(const Token token, NewToken());
  RETURN_IF_ERROR(WriteSecret(absl::StrCat(state_directory, "/token"), token.text + "\n"));
  return LocalToken(token.text, HashSecret(token));
}

absl::StatusOr<Principal> LocalToken::Authenticate(absl::string_view token) const {
  const absl::StatusOr<Token> parsed = ParseToken(token);
  if (!parsed.ok()) return absl::UnauthenticatedError(parsed.status().message());
  if (!SameSecret(HashSecret(*parsed), hash_)) {
    return absl::UnauthenticatedError("this controller does not know the token");
  }
  return Principal{.name = "local", .roles = {v1::ROLE_ADMIN, v1::ROLE_WORKER}};
}

}  // namespace trainyard::controller
