// A request and its answer, and what lies between them and libmicrohttpd.

#pragma once

#include <microhttpd.h>

#include <functional>
#include <map>
#include <string>

namespace trainyard {

struct HttpRequest {
  std::string method;                          // GET or HEAD.
  std::string path;                            // Decoded, without the query: "/metrics".
  std::map<std::string, std::string> query;    // Decoded. Of a name that comes twice, the first.
  std::map<std::string, std::string> headers;  // By lower-case name. Of two, the first.
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

// Answers the request of a connection whose headers are complete. Methods other than GET and HEAD
// and requests with a body are refused here. The connection ends with the answer.
MHD_Result AnswerRequest(MHD_Connection* connection, const char* path, const char* method,
                         const HttpHandler& handler);

}  // namespace trainyard
