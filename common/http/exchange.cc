#include "common/http/exchange.h"

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"

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

HttpResponse Refusal(int status, const char* why) { return {.status = status, .body = why}; }

HttpResponse ResponseTo(MHD_Connection* connection, const char* path, const std::string& method,
                        const HttpHandler& handler) {
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
    HttpResponse response = Refusal(MHD_HTTP_METHOD_NOT_ALLOWED, "wanted GET or HEAD\n");
    response.headers[MHD_HTTP_HEADER_ALLOW] = "GET, HEAD";
    return response;
  }
  const auto lower = [](const char* name) { return absl::AsciiStrToLower(name); };
  Values headers = ValuesOf(connection, MHD_HEADER_KIND, lower);
  if (HasBody(headers)) return Refusal(MHD_HTTP_BAD_REQUEST, "wanted a request without a body\n");
  const auto same = [](const char* name) { return std::string(name); };
  return handler({.method = method,
                  .path = path,
                  .query = ValuesOf(connection, MHD_GET_ARGUMENT_KIND, same),
                  .headers = std::move(headers)});
}

}  // namespace

MHD_Result AnswerRequest(MHD_Connection* connection, const char* path, const char* method,
                         const HttpHandler& handler) {
  HttpResponse response = ResponseTo(connection, path, method, handler);
  const std::unique_ptr<MHD_Response, decltype(&MHD_destroy_response)> made(
      MHD_create_response_from_buffer(response.body.size(), response.body.data(),
                                      MHD_RESPMEM_MUST_COPY),
      &MHD_destroy_response);
  if (made == nullptr) return MHD_NO;
  response.headers[MHD_HTTP_HEADER_CONTENT_TYPE] = response.content_type;
  // No connection is idle between requests: each takes its place for one answer, and with TLS each
  // request is checked against the newest credentials.
  response.headers[MHD_HTTP_HEADER_CONNECTION] = "close";
  for (const auto& [name, value] : response.headers) {
    if (MHD_add_response_header(made.get(), name.c_str(), value.c_str()) == MHD_NO) return MHD_NO;
  }
  return MHD_queue_response(connection, unsigned(response.status), made.get());
}

}  // namespace trainyard
