#include "controller/page/browser.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace trainyard::controller {
namespace {

std::string HeaderOf(const HttpRequest& request, const char* name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? "" : found->second;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string Decoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool hex = text[i] == '%' && i + 2 < text.size() && DigitOf(text[i + 1]) >= 0 &&
                     DigitOf(text[i + 2]) >= 0;
    if (hex) {
      out += char(DigitOf(text[i + 1]) * 16 + DigitOf(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// Browsers accept a cookie named "__Host-..." only from this host over TLS.
std::string CookieName(const HttpRequest& request) {
  if (request.tls) return "__Host-trainyard";
  const std::string host = HeaderOf(request, "host");
  const std::string port = host.substr(std::min(host.size(), host.rfind(':') + 1));
  const bool digits = std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  return absl::StrCat("trainyard-", digits ? port : "");
}

}  // namespace

std::map<std::string, std::string> ParseForm(absl::string_view body) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view field : absl::StrSplit(body, '&')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(field, absl::MaxSplits('=', 1));
    fields.emplace(Decoded(parts[0]), parts.size() == 2 ? Decoded(parts[1]) : "");
  }
  return fields;
}

std::string TokenOf(const HttpRequest& request) {
  const std::string all = HeaderOf(request, "cookie");
  const std::string before = absl::StrCat(CookieName(request), "=");
  for (absl::string_view cookie : absl::StrSplit(all, ';')) {
    cookie = absl::StripLeadingAsciiWhitespace(cookie);
    if (absl::ConsumePrefix(&cookie, before)) return std::string(cookie);
  }
  return "";
}

std::string CookieFor(const HttpRequest& request, absl::string_view token) {
  return absl::StrCat(CookieName(request), "=", token, "; Path=/; HttpOnly; SameSite=Strict",
                      request.tls ? "; Secure" : "", token.empty() ? "; Max-Age=0" : "");
}

bool ComesFromElsewhere(const HttpRequest& request) {
  const std::string site = HeaderOf(request, "sec-fetch-site");
  if (!site.empty() && site != "same-origin") return true;
  const std::string origin = HeaderOf(request, "origin");
  if (origin.empty()) return false;
  const std::string host = HeaderOf(request, "host");
  // A proxy in front of the page may speak TLS.
  return origin != absl::StrCat("https://", host) && origin != absl::StrCat("http://", host);
}

std::string OwnPath(absl::string_view wanted) {
  // Browsers take "//host" and "/\host" for other sites. Characters that are not visible could end
  // the header.
  const bool own = absl::StartsWith(wanted, "/") && !absl::StartsWith(wanted, "//") &&
                   !absl::StrContains(wanted, '\\') &&
                   std::all_of(wanted.begin(), wanted.end(),
                               [](unsigned char c) { return absl::ascii_isgraph(c); });
  return own ? std::string(wanted) : "/";
}

}  // namespace trainyard::controller
