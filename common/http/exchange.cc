#include "common/http/exchange.h"

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

using Values = std::map<std::string, std::string>;

template <typename Key>
Values ValuesOf(MHD_Connection* connection, MHD_ValueKind kind, Key key_of) {
  struct Target {
    Values values;
    Key key_of;
  } target = {{}, key_of};
  MHD_get_connection_values(
      connection, kind,
      [](void* context, MHD_ValueKind, const char* key, const char* value) {
        auto& into = *static_cast<Target*>(context);
        into.values.emplace(into.key_of(key), value == nullptr ? "" : value);
        return MHD_YES;
      },
      &target);
  return std::move(target.values);
}

bool HasBody(const Values& headers) {
  const auto length = headers.find("content-length");
  return (length != headers.end() && length->second != "0") ||
         headers.contains("transfer-encoding");
}

HttpResponse Refusal(int status, const std::string& why) { return {.status = status, .body = why}; }

std::optional<HttpResponse> RefusalOfBody(const Values& headers, size_t most_bytes) {
  const auto length = headers.find("content-length");
  // A body in chunks does not tell its size beforehand.
  if (length == headers.end() || headers.contains("transfer-encoding")) {
    return Refusal(MHD_HTTP_LENGTH_REQUIRED, "wanted a body with a Content-Length\n");
  }
  size_t bytes = 0;
  if (!absl::SimpleAtoi(length->second, &bytes) || bytes > most_bytes) {
    return Refusal(MHD_HTTP_CONTENT_TOO_LARGE,
                   absl::StrCat("wanted a body of at most ", most_bytes, " bytes\n"));
  }
  return std::nullopt;
}

}  // namespace

HttpRequest ReadRequest(MHD_Connection* connection, const char* path, const char* method) {
  const auto same = [](const char* name) { return std::string(name); };
  const auto lower = [](const char* name) { return absl::AsciiStrToLower(name); };
  return {.method = method,
          .path = path,
          .query = ValuesOf(connection, MHD_GET_ARGUMENT_KIND, same),
          .headers = ValuesOf(connection, MHD_HEADER_KIND, lower)};
}

std::optional<HttpResponse> RefusalOf(const HttpRequest& request, size_t most_body_bytes) {
  const bool posts = most_body_bytes > 0;
  if (posts && request.method == MHD_HTTP_METHOD_POST) {
    return RefusalOfBody(request.headers, most_body_bytes);
  }
  if (request.method != MHD_HTTP_METHOD_GET && request.method != MHD_HTTP_METHOD_HEAD) {
    HttpResponse response = Refusal(MHD_HTTP_METHOD_NOT_ALLOWED,
                                    posts ? "wanted GET, HEAD or POST\n" : "wanted GET or HEAD\n");
    response.headers[MHD_HTTP_HEADER_ALLOW] = posts ? "GET, HEAD, POST" : "GET, HEAD";
    return response;
  }
  if (!HasBody(request.headers)) return std::nullopt;
  return Refusal(MHD_HTTP_BAD_REQUEST, "wanted a request without a body\n");
}

MHD_Result SendResponse(MHD_Connection* connection, const HttpResponse& response) {
  const std::unique_ptr<MHD_Response, decltype(&MHD_destroy_response)> made(
      MHD_create_response_from_buffer(response.body.size(), const_cast<char*>(response.body.data()),
                                      MHD_RESPMEM_MUST_COPY),
      &MHD_destroy_response);
  if (made == nullptr) return MHD_NO;
  Values headers = response.headers;
  headers[MHD_HTTP_HEADER_CONTENT_TYPE] = response.content_type;
  // Connections are not reused. Each then takes a place for one answer only, and with TLS each
  // request is checked against the newest credentials.
  headers[MHD_HTTP_HEADER_CONNECTION] = "close";
  for (const auto& [name, value] : headers) {
    if (MHD_add_response_header(made.get(), name.c_str(), value.c_str()) == MHD_NO) return MHD_NO;
  }
  return MHD_queue_response(connection, unsigned(response.status), made.get());
}

}  // namespace trainyard
