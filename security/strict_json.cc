#include "security/strict_json.h"

#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace trainyard {

absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, absl::string_view what) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open;  // The members so far of each object around the parser.
  bool twice = false;
  const auto note = [&](int, Event event, nlohmann::json& value) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end && !open.empty()) open.pop_back();
    if (event == Event::key && !open.empty()) {
      const std::string* const key = value.get_ptr<const std::string*>();
      twice = twice || (key != nullptr && !open.back().insert(*key).second);
    }
    return true;
  };
  nlohmann::json object = nlohmann::json::parse(text.begin(), text.end(), note, false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not a JSON object"));
  }
  if (twice) return absl::InvalidArgumentError(absl::StrCat(what, " has a member twice"));
  return object;
}

const std::string* StringMember(const nlohmann::json& object, const char* name) {
  const auto member = object.find(name);
  return member == object.end() ? nullptr : member->get_ptr<const std::string*>();
}

absl::StatusOr<std::string> DecodeBase64Url(absl::string_view text) {
  std::string bytes, again;
  if (absl::WebSafeBase64Unescape(text, &bytes)) absl::WebSafeBase64Escape(bytes, &again);
  if (again == text) return bytes;
  return absl::InvalidArgumentError(
      "wanted base64url without padding (A-Z a-z 0-9 - _), of whole bytes");
}

}  // namespace trainyard
