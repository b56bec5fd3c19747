// Requests and answers, and their conversion from and to libmicrohttpd's.

#pragma once

#include <microhttpd.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace trainyard {

struct HttpRequest {
  std::string method;                        // GET, HEAD, or POST if the server accepts it.
  std::string path;                          // Decoded, without the query: "/metrics".
  std::map<std::string, std::string> query;  // Decoded. If a name comes twice, the first counts.
  // By lower-case name. If one comes twice, the first counts.
  std::map<std::string, std::string> headers;
  std::string body = {};  // The body of a POST, as sent.
  std::string peer = {};  // PeerKey of the peer; bytes, not text.
  bool tls = false;       // Nobody between can read the request or its answer.
  // The client has shown a certificate that an authority of the server has signed.
  bool certified = false;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;  // For a HEAD request, only its length is sent.
  std::map<std::string, std::string> headers = {};
};

// Answers one request. It is called on the server's only thread and must be quick, because nobody
// else is served meanwhile.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// Reads the request of a connection whose headers are complete. Does not set the members about the
// connection.
HttpRequest ReadRequest(MHD_Connection* connection, const char* path, const char* method);

// Returns the answer that refuses a request before its body is read, because of its method (not GET
// or HEAD, nor POST if `most_body_bytes` is not 0) or its body (not of a POST, too large, or of
// unknown size). Absent: the request is accepted.
std::optional<HttpResponse> RefusalOf(const HttpRequest& request, size_t most_body_bytes);

// Sends the response. The connection then ends.
MHD_Result SendResponse(MHD_Connection* connection, const HttpResponse& response);

}  // namespace trainyard
