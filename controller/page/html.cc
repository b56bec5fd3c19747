#include "controller/page/html.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "common/text.h"

namespace trainyard::controller {

Html& Html::operator<<(absl::string_view text) {
  for (const char c : VisibleUtf8(ValidUtf8(text))) {
    switch (c) {
      case '&':
        text_ += "&amp;";
        break;
      case '<':
        text_ += "&lt;";
        break;
      case '>':
        text_ += "&gt;";
        break;
      case '"':
        text_ += "&quot;";
        break;
      case '\'':
        text_ += "&#39;";
        break;
      default:
        text_ += c;
    }
  }
  return *this;
}

std::string UrlValue(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.') {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace trainyard::controller
