#include "controller/page/frame.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/crc32.h"
#include "controller/page/browser.h"
#include "controller/page/style.h"

namespace trainyard::controller {
namespace {

constexpr int kRefreshSeconds = 5;

// When a reader follows a link from another site, the first request has no cookie
// (SameSite=Strict). Requests that come from this page do have the cookie.
bool FollowedALink(const HttpRequest& request) {
  const auto site = request.headers.find("sec-fetch-site");
  return request.method != "POST" && TokenOf(request).empty() && site != request.headers.end() &&
         site->second == "cross-site";
}

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    default:
      return 500;
  }
}

Html Navigation(const HttpRequest& request, const std::optional<Reader>& reader) {
  Html html;
  html << "<header><nav><a class=\"home\" href=\"/\">Trainyard</a>"_html;
  if (reader) {
    const bool workers = request.path == "/workers";
    html << "<a href=\"/\""_html << (workers ? Html() : Html() << " class=\"here\""_html)
         << ">Jobs</a><a href=\"/workers\""_html
         << (workers ? Html() << " class=\"here\""_html : Html()) << ">Workers</a>"_html
         << "<form method=\"post\" action=\"/logout\"><span class=\"who\">"_html
         << reader->principal.name;
    if (!reader->seen().empty()) html << " \u00b7 "_html << reader->seen();
    html << "</span><button>Log out</button></form>"_html;
  }
  html << "</nav></header>"_html;
  return html;
}

HttpResponse Document(const Html& head, const Html& body) {
  Html html;
  html << "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"_html
       << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"_html
       << "<meta name=\"color-scheme\" content=\"light dark\">"_html
       << "<link rel=\"stylesheet\" href=\""_html << StylePath() << "\">"_html << head
       << "</head><body>"_html << body << "</body></html>\n"_html;
  return {.content_type = "text/html; charset=utf-8", .body = std::move(html).text()};
}

std::string HrefOf(const std::string& path, const std::map<std::string, std::string>& query) {
  std::string href;
  for (const auto& [name, value] : query) {
    absl::StrAppend(&href, href.empty() ? "?" : "&", UrlValue(name), "=", UrlValue(value));
  }
  return absl::StrCat(path, href);
}

}  // namespace

std::string LinkWith(const HttpRequest& request, const std::string& name,
                     const std::string& value) {
  std::map<std::string, std::string> query = request.query;
  query.erase(name);
  if (!value.empty()) query[name] = value;
  return HrefOf(request.path, query);
}

HttpResponse InFrame(const HttpRequest& request, const Page& page,
                     const std::optional<Reader>& reader) {
  const bool paused = request.query.contains("pause");
  Html head, body;
  head << "<title>"_html << page.title << " \u00b7 Trainyard</title>"_html;
  if (page.changes && !paused) {
    head << "<meta http-equiv=\"refresh\" content=\""_html << kRefreshSeconds << "\">"_html;
  }
  body << Navigation(request, reader) << "<main>"_html << page.body << "</main>"_html;
  if (page.changes) {
    body << "<footer>"_html
         << (paused ? "Paused. " : absl::StrCat("Reloads every ", kRefreshSeconds, " s. "))
         << "<a href=\""_html << LinkWith(request, "pause", paused ? "" : "1") << "\">"_html
         << (paused ? "Continue" : "Pause") << "</a></footer>"_html;
  }
  return Document(head, body);
}

HttpResponse LoginPage(const HttpRequest& request, const absl::Status& why) {
  Html head, body;
  head << "<title>Log in \u00b7 Trainyard</title>"_html;
  if (why.ok() && FollowedALink(request)) {
    head << "<meta http-equiv=\"refresh\" content=\"0\">"_html;
  }
  const std::string next = request.path == "/login" ? OwnPath(ParseForm(request.body)["next"])
                                                    : HrefOf(request.path, request.query);
  body << Navigation(request, std::nullopt) << "<main class=\"login\"><h1>Log in</h1>"_html
       << "<form method=\"post\" action=\"/login\"><label for=\"token\">Token</label>"_html
       << "<input id=\"token\" name=\"token\" type=\"password\" required autofocus "_html
       << "autocomplete=\"current-password\"><input type=\"hidden\" name=\"next\" value=\""_html
       << next << "\"><button>Log in</button></form>"_html;
  if (!why.ok()) body << "<p class=\"wrong\" role=\"alert\">"_html << why.message() << "</p>"_html;
  body << "<p class=\"note\">A token of the API, as <code>trainyard token create</code> shows"_html
       << " it. On "_html
       << "the controller\u2019s own machine the file <code>STATE/token</code> has one."_html
       << "</p></main>"_html;
  HttpResponse response = Document(head, body);
  response.status = why.ok() ? 401 : HttpCode(why);
  return response;
}

HttpResponse ErrorPage(const HttpRequest& request, const absl::Status& error,
                       const std::optional<Reader>& reader) {
  if (absl::IsUnauthenticated(error)) return LoginPage(request, error);
  Page page{.title = "Not shown", .body = {}};
  page.body << "<h1>This cannot be shown</h1><p class=\"wrong\">"_html << error.message()
            << "</p><p><a href=\"/\">All jobs</a></p>"_html;
  HttpResponse response = InFrame(request, page, reader);
  response.status = HttpCode(error);
  return response;
}

std::string StylePath() {
  return absl::StrCat("/style.css?", Crc32(0, kStyle.data(), kStyle.size()));
}

HttpResponse Style() {
  return {.content_type = "text/css; charset=utf-8",
          .body = std::string(kStyle),
          .headers = {{"Cache-Control", "max-age=604800, immutable"}}};
}

}  // namespace trainyard::controller
