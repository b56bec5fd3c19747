// Reads and writes what a browser sends with a request and keeps for a page: forms, the cookie with
// the token, and the headers that tell from which site a request comes.

#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "common/http/exchange.h"

namespace trainyard::controller {

// Parses a form in the format application/x-www-form-urlencoded. If a name comes twice, the first
// value counts.
std::map<std::string, std::string> ParseForm(absl::string_view body);

// Browsers keep cookies of at most 4,096 bytes, name and attributes included.
inline constexpr size_t kMostTokenBytes = 3'800;

// Returns the token that the reader's browser keeps for this page. Empty: there is none.
std::string TokenOf(const HttpRequest& request);
// Returns the Set-Cookie header by which the browser keeps the token for this page until the
// browser is closed. With an empty token the browser forgets the cookie. A browser sends its
// cookies to every port of a host, so without TLS the name of the cookie contains the port. Two
// controllers on one machine then do not overwrite each other's cookies.
std::string CookieFor(const HttpRequest& request, absl::string_view token);

// Returns whether the page of another site may have made the browser send this request. Browsers
// say from which site a POST comes. Other programs do not, but they have no cookie that another
// site could misuse.
bool ComesFromElsewhere(const HttpRequest& request);

// Returns the path to show after a login: `wanted` if it is a path of this site, otherwise "/".
std::string OwnPath(absl::string_view wanted);

}  // namespace trainyard::controller
