// A small HTTP/1.1 server for pages that machines and people read, over libmicrohttpd. It serves
// GET, HEAD and small POSTs, one request a connection, with TLS or without.
// common/http/connections.h has the limits: a peer that is slow, or that opens many connections, is
// cut off and delays nobody.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/address.h"
#include "common/http/connections.h"
#include "common/http/credentials.h"
#include "common/http/exchange.h"
#include "common/http/listener.h"
#include "common/mutex.h"

namespace trainyard {

// For a request's line and headers, and for the answer's headers. Prometheus sends about 300 bytes,
// a browser with cookies a few thousand. A larger request gets 431.
inline constexpr size_t kConnectionMemoryBytes = 8 << 10;

struct HttpOptions {
  std::optional<TlsMaterial> tls = {};                           // Absent: no TLS.
  ClientCertificate certificate = ClientCertificate::kRequired;  // With TLS.
  // Of a POST. It counts as part of the request: what is slow to come is cut off with the headers'
  // deadline. 0: POST is not allowed.
  size_t most_body_bytes = 0;
};

class HttpServer {
 public:
  // Port 0 picks a free port. UNAVAILABLE: the address cannot be listened on. INVALID_ARGUMENT:
  // `options.tls` cannot be used.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Address& listen,
                                                           HttpHandler handler,
                                                           const HttpOptions& options = {});
  // Ends all connections at once. Takes as long as the handler's current call.
  ~HttpServer();

  const Address& address() const { return listener_.address(); }  // With the real port.

  // Connections that begin from now on use `tls`; those that have begun end with what they have,
  // at the latest after kRequestWithin and kAnswerWithin. No connection is refused meanwhile. From
  // any thread. INVALID_ARGUMENT: `tls` cannot be used, and nothing has changed.
  // FAILED_PRECONDITION: the server was started without TLS.
  absl::Status ReplaceTls(const TlsMaterial& tls);

 private:
  using Credentials = std::shared_ptr<const TlsCredentials>;

  HttpServer(Listener listener, HttpHandler handler, const HttpOptions& options, Credentials tls);
  absl::Status StartDaemon();
  void Run();
  void AcceptOne();
  bool MakeRoomFor(const std::string& peer);
  int PollMilliseconds() const;
  // What libmicrohttpd tells of a request: once when its headers are complete, then for a POST with
  // each part of the body, and without any when the body is complete.
  MHD_Result Hear(MHD_Connection* connection, const char* path, const char* method,
                  absl::string_view part);
  HttpRequest ReadWhole(MHD_Connection* connection, const char* path, const char* method);
  void Began(MHD_Connection* connection);
  void Ended(MHD_Connection* connection);
  Credentials CurrentTls();

  const Listener listener_;
  const HttpHandler handler_;
  const ClientCertificate certificate_;
  const size_t most_body_bytes_;
  const FileDescriptor stop_;  // An eventfd.
  Mutex mutex_;
  Credentials tls_ ABSL_GUARDED_BY(mutex_);  // Null: no TLS.

  // The rest is the thread's.
  HttpConnections connections_;
  std::map<int, Credentials> tls_in_use_;  // By connection. A session must not outlive its own.
  std::map<int, HttpRequest> begun_;       // By connection: POSTs whose body is not complete.
  bool short_of_descriptors_ = false;      // Since the last call of accept.
  absl::Duration accept_after_;            // While they are short; a monotonic reading.
  std::unique_ptr<MHD_Daemon, void (*)(MHD_Daemon*)> daemon_;
  std::thread thread_;
};

}  // namespace trainyard
