#include "controller/page/site.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "controller/page/browser.h"

namespace trainyard::controller {
namespace {

using View = absl::StatusOr<Page> (*)(const Sources&, const HttpRequest&, const Reader&);

// Everybody who may see anything may call this.
constexpr absl::string_view kWhoAmI = "/trainyard.v1.AccessService/WhoAmI";

// A view shows the answers of these methods. A reader who may call all of them may see the view.
struct Route {
  View view;
  std::vector<absl::string_view> methods;
};

std::optional<struct Route> RouteOf(const std::string& path) {
  if (path == "/") {
    return {{&JobsPage,
             {"/trainyard.v1.JobService/ListJobs", "/trainyard.v1.ClusterService/ListWorkers"}}};
  }
  if (path == "/workers") return {{&WorkersPage, {"/trainyard.v1.ClusterService/ListWorkers"}}};
  if (absl::StartsWith(path, "/jobs/")) {
    return {{&JobPage,
             {"/trainyard.v1.JobService/GetJob", "/trainyard.v1.JobService/StreamSteps",
              "/trainyard.v1.JobService/ListEvents", "/trainyard.v1.JobService/StreamLogs"}}};
  }
  return std::nullopt;
}

HttpResponse GoTo(const std::string& path) {
  return {.status = 303, .body = "", .headers = {{"Location", path}}};
}

HttpResponse NotAllowed(const char* allow) {
  return {
      .status = 405, .body = absl::StrCat("wanted ", allow, "\n"), .headers = {{"Allow", allow}}};
}

// Returns the first line of what a person pastes, because a token's file has more lines.
std::string FirstWord(absl::string_view text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  const auto end = std::find_if(text.begin(), text.end(),
                                [](unsigned char c) { return absl::ascii_isspace(c); });
  return std::string(text.begin(), end);
}

}  // namespace

HttpResponse Site::Answer(const HttpRequest& request) {
  HttpResponse response = Route(request);
  // The page loads nothing but its style sheet, runs no scripts, and cannot be shown inside other
  // pages. The browser tells this site alone where a request comes from. If it told no site, a
  // form's origin would be "null".
  response.headers.insert({{"Content-Security-Policy",
                            "default-src 'none'; style-src 'self'; form-action 'self'; "
                            "frame-ancestors 'none'; base-uri 'none'"},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "same-origin"},
                           {"Cross-Origin-Opener-Policy", "same-origin"},
                           {"Cross-Origin-Resource-Policy", "same-origin"},
                           {"Cache-Control", "no-store"}});
  return response;
}

HttpResponse Site::Route(const HttpRequest& request) {
  const bool posts = request.method == "POST";
  if (request.path == "/logout") return posts ? Logout(request) : NotAllowed("POST");
  if (posts) return request.path == "/login" ? Login(request) : NotAllowed("GET, HEAD");
  if (request.path == "/style.css") return Style();
  if (request.path == "/login") return LoginPage(request, absl::OkStatus());
  const std::optional<struct Route> route = RouteOf(request.path);
  const std::string token = TokenOf(request);
  if (token.empty()) return LoginPage(request, absl::OkStatus());
  absl::StatusOr<Principal> principal = parts_.gate.AdmitReader(
      token, request.peer, route ? route->methods : std::vector<absl::string_view>{kWhoAmI});
  if (!principal.ok()) {
    HttpResponse refused = ErrorPage(request, principal.status(), std::nullopt);
    // A token that is not valid any more is removed from the browser.
    if (absl::IsUnauthenticated(principal.status())) {
      refused.headers["Set-Cookie"] = CookieFor(request, "");
    }
    return refused;
  }
  const Reader reader{*std::move(principal), parts_.clock.Now()};
  if (!route) {
    return ErrorPage(request, absl::NotFoundError("there is no such page"), reader);
  }
  const absl::StatusOr<Page> page = route->view({parts_.book, parts_.coordinator}, request, reader);
  return page.ok() ? InFrame(request, *page, reader) : ErrorPage(request, page.status(), reader);
}

HttpResponse Site::Login(const HttpRequest& request) {
  if (ComesFromElsewhere(request)) {
    return {.status = 403, .body = "another site may not log anybody in\n"};
  }
  std::map<std::string, std::string> form = ParseForm(request.body);
  const std::string token = FirstWord(form["token"]);
  if (token.size() > kMostTokenBytes) {
    return LoginPage(request, absl::InvalidArgumentError(absl::StrCat(
                                  "the token has ", token.size(),
                                  " bytes; a browser keeps at most ", kMostTokenBytes)));
  }
  const absl::StatusOr<Principal> principal =
      parts_.gate.AdmitReader(token, request.peer, {&kWhoAmI, 1});
  if (!principal.ok()) return LoginPage(request, principal.status());
  HttpResponse response = GoTo(OwnPath(form["next"]));
  response.headers["Set-Cookie"] = CookieFor(request, token);
  return response;
}

HttpResponse Site::Logout(const HttpRequest& request) const {
  if (ComesFromElsewhere(request)) {
    return {.status = 403, .body = "another site may not log anybody out\n"};
  }
  HttpResponse response = GoTo("/login");
  response.headers["Set-Cookie"] = CookieFor(request, "");
  return response;
}

}  // namespace trainyard::controller
