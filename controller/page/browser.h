// What a browser says and keeps for a page: the cookie with the token, forms, and from which page a
// request comes.

#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "common/http/exchange.h"

namespace trainyard::controller {

// The fields of a form, as application/x-www-form-urlencoded has them. Of two of a name, the first.
std::map<std::string, std::string> ParseForm(absl::string_view body);

// Browsers keep cookies of at most 4,096 bytes, name and attributes included.
inline constexpr size_t kMostTokenBytes = 3'800;

// The token that the reader's browser keeps for this page; empty: none.
std::string TokenOf(const HttpRequest& request);
// The Set-Cookie by which the browser keeps the token until it is closed, for this page alone; an
// empty one it forgets. A browser shows its cookies to every port of a host: on loopback each port
// has a cookie of its own, so that two controllers of one machine do not overwrite each other's.
std::string CookieFor(const HttpRequest& request, absl::string_view token);

// Whether another site's page may have made the browser send this request. Browsers say where a
// POST comes from. What is none, says nothing, and has no cookie that somebody could make use of.
bool ComesFromElsewhere(const HttpRequest& request);

// Where to go on after a login: `wanted`, where that is a path of this site, or else "/".
std::string OwnPath(absl::string_view wanted);

}  // namespace trainyard::controller
