// A request and its answer, and what lies between them and libmicrohttpd.

#pragma once

#include <microhttpd.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace trainyard {

struct HttpRequest {
  std::string method;                          // GET, HEAD, or POST where the server takes it.
  std::string path;                            // Decoded, without the query: "/metrics".
  std::map<std::string, std::string> query;    // Decoded. Of a name that comes twice, the first.
  std::map<std::string, std::string> headers;  // By lower-case name. Of two, the first.
  std::string body = {};                       // Of a POST, as sent.
  std::string peer = {};  // By which the peer's connections are counted: PeerKey. No text.
  bool tls = false;       // Nobody on the way reads it or its answer.
  bool certified =
      false;  // The client has shown a certificate that the server's authorities signed.
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;  // A HEAD request gets its length alone.
  std::map<std::string, std::string> headers = {};
};

// Answers one request. Called on the server's only thread, and must be quick: nobody else is served
// meanwhile.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// The request of a connection whose headers are complete, without what concerns the connection.
HttpRequest ReadRequest(MHD_Connection* connection, const char* path, const char* method);

// Why a request is refused before its body is read: another method than GET, HEAD and, where
// `most_body_bytes` is not 0, POST; a body that is not a POST's, that is larger than that, or whose
// size is not said. Absent: nothing is wrong.
std::optional<HttpResponse> RefusalOf(const HttpRequest& request, size_t most_body_bytes);

// The connection ends with the answer.
MHD_Result SendResponse(MHD_Connection* connection, const HttpResponse& response);

}  // namespace trainyard
