// The page that Prometheus scrapes: a registry at /metrics, with what process_metrics.h adds.
// Beside it lies what people read.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/address.h"
#include "common/http/server.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace trainyard {

// Not thread-safe.
class MetricsPage {
 public:
  // Port 0 picks a free port. Off loopback there is TLS, and the page is for readers with a
  // certificate. `site` answers all other paths, POST included, where it is not null. It has to
  // find out by itself who reads, because with it a client that shows no certificate is connected,
  // too. UNAVAILABLE: the address cannot be listened on. FAILED_PRECONDITION: it is off loopback,
  // and there is no `tls`.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Serve(
      const Address& listen, std::shared_ptr<prometheus::Registry> registry,
      const std::optional<TlsMaterial>& tls, const HttpHandler& site = nullptr);

  // Where the page has TLS: from now on this, if it is another. Logs what cannot be used.
  void Renew(const std::optional<TlsMaterial>& tls);

  const Address& address() const { return server_->address(); }  // With the real port.
  std::string url() const;                                       // Of /metrics.

 private:
  MetricsPage(std::unique_ptr<HttpServer> server, std::optional<TlsMaterial> tls);

  const std::unique_ptr<HttpServer> server_;
  std::optional<TlsMaterial> tls_;  // Absent: the page has none.
};

}  // namespace trainyard
