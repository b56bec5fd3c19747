// A small HTTP/1.1 server for pages that machines and people read, over libmicrohttpd. It serves
// GET and HEAD, one request a connection, with TLS or without. common/http/connections.h has the
// limits: a peer that is slow, or that opens many connections, is cut off and delays nobody.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

class HttpServer {
 public:
  // Port 0 picks a free port. With `tls`, a client gets nothing unless it has a certificate that
  // TlsCredentials accepts. UNAVAILABLE: the address cannot be listened on. INVALID_ARGUMENT: `tls`
  // cannot be used.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const Address& listen, HttpHandler handler, const std::optional<TlsMaterial>& tls = {});
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

  HttpServer(Listener listener, HttpHandler handler, Credentials tls);
  absl::Status StartDaemon();
  void Run();
  void AcceptOne();
  bool MakeRoomFor(const std::string& peer);
  int PollMilliseconds() const;
  void Began(MHD_Connection* connection);
  void Ended(MHD_Connection* connection);
  Credentials CurrentTls();

  const Listener listener_;
  const HttpHandler handler_;
  const FileDescriptor stop_;  // An eventfd.
  Mutex mutex_;
  Credentials tls_ ABSL_GUARDED_BY(mutex_);  // Null: no TLS.

  // The rest is the thread's.
  HttpConnections connections_;
  std::map<int, Credentials> tls_in_use_;  // By connection. A session must not outlive its own.
  bool short_of_descriptors_ = false;      // Since the last call of accept.
  absl::Duration accept_after_;            // While they are short; a monotonic reading.
  std::unique_ptr<MHD_Daemon, void (*)(MHD_Daemon*)> daemon_;
  std::thread thread_;
};

}  // namespace trainyard
