// JSON from strangers, read so that no two programs can read it differently, and base64url (RFC
// 4648, section 5), in which tokens carry it. The functions may be called from any thread.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Parses one JSON object. INVALID_ARGUMENT: the text is none, is not UTF-8, or has a member twice
// in one object, at any depth. The caller limits the text's size. `what` names the text in
// messages.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, absl::string_view what);

// Returns the string member of this name; null where there is no such member, or no string.
const std::string* StringMember(const nlohmann::json& object, const char* name);

// Decodes base64url without padding. INVALID_ARGUMENT: other characters, a length that no bytes
// have, or bits behind the last byte that are not 0, so that each value has one spelling.
absl::StatusOr<std::string> DecodeBase64Url(absl::string_view text);

}  // namespace trainyard
