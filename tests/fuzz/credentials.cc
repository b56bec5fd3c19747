// Tokens, the files in which tokens are handed over, and addresses.

#include "security/credentials.h"

#include "common/check.h"
#include "common/net/address.h"
#include "security/tokens.h"
#include "tests/fuzz/input.h"

namespace trainyard {
namespace {

void CheckToken(absl::string_view text) {
  const auto token = ParseToken(text);
  if (!token.ok()) return fuzz::CheckRefusal(token.status());
  CHECK(token->text == text && text.size() > 60);
}

void CheckInvitation(absl::string_view text) {
  const auto read = ParseInvitation(text);
  if (!read.ok()) return fuzz::CheckRefusal(read.status());
  const auto again = ParseInvitation(ToText(*read));
  CHECK(again.ok() && again->token == read->token && again->fingerprint == read->fingerprint);
}

void CheckAddress(const std::string& text) {
  const auto read = ParseAddress(text);
  if (!read.ok()) return;
  const auto again = ParseAddress(read->ToString());
  CHECK(again.ok() && again->host == read->host && again->port == read->port) << read->ToString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text = fuzz::Input(data, size).Rest();
  CheckToken(text);
  CheckInvitation(text);
  CheckAddress(std::string(text));
  return 0;
}

}  // namespace trainyard
