#include "controller/access/local_token.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "security/secret_file.h"

namespace trainyard::controller {

absl::StatusOr<LocalToken> LocalToken::Make(const std::string& state_directory) {
  ASSIGN_OR_RETURN(const Token token, NewToken());
  RETURN_IF_ERROR(WriteSecret(absl::StrCat(state_directory, "/token"), token.text + "\n"));
  return LocalToken(token.text);
}

}  // namespace trainyard::controller
