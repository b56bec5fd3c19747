#include "security/strict_json.h"

#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

// The value of a digit, or -1.
int Base64UrlDigit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '-') return 62;
  return c == '_' ? 63 : -1;
}

}  // namespace

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
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int digit = Base64UrlDigit(c);
    if (digit < 0) {
      return absl::InvalidArgumentError(
          "wanted base64url without padding (A-Z a-z 0-9 - _), found other characters");
    }
    bits = bits << 6 | uint32_t(digit);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(char(bits >> num_bits & 0xff));
    }
  }
  if (num_bits >= 6 || (bits & ((1u << num_bits) - 1)) != 0) {
    return absl::InvalidArgumentError("wanted base64url, found a text that ends within a byte");
  }
  return bytes;
}

}  // namespace trainyard
