// What a browser sends to the page of a controller: a form, a cookie, where it comes from.

#include "controller/page/browser.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "controller/page/html.h"
#include "tests/fuzz/input.h"

namespace trainyard::controller {
namespace {

// Nothing of it ends a header, or begins another.
void CheckHeader(absl::string_view text) {
  CHECK(!absl::StrContains(text, '\r') && !absl::StrContains(text, '\n')) << text;
}

void Read(const HttpRequest& request) {
  for (const auto& [name, value] : ParseForm(request.body)) {
    const std::string path = OwnPath(value);
    CHECK(absl::StartsWith(path, "/") && !absl::StartsWith(path, "//")) << path;
    CheckHeader(path);
    const std::string text = (Html() << name << value).text();
    CHECK(text.find_first_of("<>\"'") == std::string::npos) << text;
    CHECK(UrlValue(value).find_first_of("&=?# ") == std::string::npos) << value;
  }
  CheckHeader(CookieFor(request, TokenOf(request)));
  (void)ComesFromElsewhere(request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::Input(data, size).Rest());
  // libmicrohttpd leaves no line breaks in a header.
  const std::string header = text.substr(0, text.find_first_of("\r\n"));
  for (const bool tls : {false, true}) {
    Read({.method = "POST",
          .path = "/login",
          .query = {},
          .headers = {{"host", header}, {"cookie", header}, {"origin", header}},
          .body = text,
          .tls = tls});
    Read({.method = "POST",
          .path = "/login",
          .query = {},
          .headers = {{"host", "x:1"}, {"cookie", header}, {"sec-fetch-site", header}},
          .body = text,
          .tls = tls});
  }
  return 0;
}

}  // namespace trainyard::controller
