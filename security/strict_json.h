// Reads JSON from strangers, and refuses JSON that two programs could read differently. Also
// decodes base64url (RFC 4648, section 5), which tokens use for JSON. The functions may be called
// from any thread.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Parses one JSON object. The caller must limit the text's size. `what` names the text in messages.
// INVALID_ARGUMENT: the text is not a JSON object, is not UTF-8, or has a member twice in one
// object, at any depth.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, absl::string_view what);

// Returns the string member with this name. Null: there is no such member, or it is not a string.
const std::string* StringMember(const nlohmann::json& object, const char* name);

// Decodes base64url without padding. Each value has exactly one spelling. INVALID_ARGUMENT: the
// text has other characters, or a length that no bytes have, or bits other than 0 after the last
// byte.
absl::StatusOr<std::string> DecodeBase64Url(absl::string_view text);

}  // namespace trainyard
