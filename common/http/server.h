// A small HTTP/1.1 server for pages that machines and people read, based on libmicrohttpd. It
// serves GET, HEAD and small POSTs, one request for each connection, with or without TLS.
// common/http/connections.h has the limits: a peer that is slow or opens many connections is cut
// off, and delays nobody.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/connections.h"
#include "common/http/credentials.h"
#include "common/http/exchange.h"
#include "common/mutex.h"
#include "common/net/address.h"
#include "common/net/listener.h"

namespace trainyard {

// Memory for a request's line and headers and for the answer's headers. Prometheus sends about 300
// bytes, a browser with cookies a few thousand. A larger request is answered with 431.
inline constexpr size_t kConnectionMemoryBytes = 8 << 10;

struct HttpOptions {
  std::optional<TlsMaterial> tls = {};                           // Absent: no TLS.
  ClientCertificate certificate = ClientCertificate::kRequired;  // Used only with TLS.
  // The largest body of a POST. The body is part of the request, so a slow one is cut off at the
  // headers' deadline. 0: POST is not allowed.
  size_t most_body_bytes = 0;
};

class HttpServer {
 public:
  // Starts a server. Port 0 picks a free port. ALREADY_EXISTS: the port is taken. UNAVAILABLE: the
  // address cannot be listened on. INVALID_ARGUMENT: `options.tls` cannot be used.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Address& listen,
                                                           HttpHandler handler,
                                                           const HttpOptions& options = {});
  // Ends all connections at once, but waits for the handler's current call.
  ~HttpServer();

  const Address& address() const { return listeners_.front().address(); }  // With the real port.

  // New connections use `tls` from now on. Open connections keep the old material and end within
  // kRequestWithin and kAnswerWithin. No connection is refused meanwhile. May be called from any
  // thread. INVALID_ARGUMENT: `tls` cannot be used, and nothing has changed. FAILED_PRECONDITION:
  // the server was started without TLS.
  absl::Status ReplaceTls(const TlsMaterial& tls);

 private:
  using Credentials = std::shared_ptr<const TlsCredentials>;

  HttpServer(std::vector<Listener> listeners, HttpHandler handler, const HttpOptions& options,
             Credentials tls);
  absl::Status StartDaemon();
  void Run();
  // Returns false if no connection can be accepted now, whoever waits.
  bool AcceptOne(const Listener& listener);
  bool MakeRoomFor(const std::string& peer);
  int PollMilliseconds() const;
  // Called by libmicrohttpd for each request: once when its headers are complete, then, for a POST,
  // with each part of the body, and without a part when the body is complete.
  MHD_Result Hear(MHD_Connection* connection, const char* path, const char* method,
                  absl::string_view part);
  HttpRequest ReadWhole(MHD_Connection* connection, const char* path, const char* method);
  void Began(MHD_Connection* connection);
  void Ended(MHD_Connection* connection);
  Credentials CurrentTls();

  const std::vector<Listener> listeners_;
  const HttpHandler handler_;
  const ClientCertificate certificate_;
  const size_t most_body_bytes_;
  const FileDescriptor stop_;  // An eventfd.
  Mutex mutex_;
  Credentials tls_ ABSL_GUARDED_BY(mutex_);  // Null: no TLS.

  // The members below are used by the thread alone.
  HttpConnections connections_;
  std::map<int, Credentials> tls_in_use_;  // By connection. Must outlive the session.
  std::map<int, HttpRequest> begun_;       // By connection: POSTs with incomplete bodies.
  bool short_of_descriptors_ = false;      // By the last call of accept.
  absl::Duration accept_after_;            // When to accept again; a monotonic reading.
  std::unique_ptr<MHD_Daemon, void (*)(MHD_Daemon*)> daemon_;
  std::thread thread_;
};

}  // namespace trainyard
