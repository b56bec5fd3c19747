// Somebody who reads the page of a real controller, with a token or without.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/common/http_peers.h"

namespace trainyard::controller {

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // By lower-case name.
  std::string body;

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

inline Reply ParseReply(const std::string& text) {
  Reply reply;
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits("\r\n\r\n", 1));
  reply.body = parts.second;
  const std::vector<std::string> lines = absl::StrSplit(parts.first, "\r\n");
  if (lines[0].size() > 12) reply.status = std::atoi(lines[0].c_str() + 9);
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> header =
        absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    reply.headers[absl::AsciiStrToLower(header.first)] = header.second;
  }
  return reply;
}

// What a browser of this page says.
inline std::string GetText(absl::string_view target, absl::string_view headers = "") {
  return absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost:80\r\n", headers, "\r\n");
}
inline std::string PostText(absl::string_view target, absl::string_view body,
                            absl::string_view headers = "") {
  return absl::StrCat("POST ", target, " HTTP/1.1\r\nHost: localhost:80\r\n", headers,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}
inline std::string CookieLine(absl::string_view token) {
  return absl::StrCat("Cookie: trainyard-80=", token, "\r\n");
}

inline Reply Ask(int port, const std::string& request, const char* from = "127.0.0.1") {
  return ParseReply(testing::Answer(port, request, from));
}
inline Reply GetAs(int port, absl::string_view token, absl::string_view target) {
  return Ask(port, GetText(target, CookieLine(token)));
}

}  // namespace trainyard::controller
