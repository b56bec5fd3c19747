// The page that Prometheus scrapes: a registry at /metrics, and the metrics of process_metrics.h.
// The same server can have pages for people, too.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/server.h"
#include "common/net/address.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace trainyard {

// Not thread-safe.
class MetricsPage {
 public:
  // Serves the page. Port 0 picks a free port. An address off loopback needs TLS, and then the
  // metrics are only for readers with a certificate. If `site` is not null, it answers all other
  // paths, including POST. `site` must find out by itself who the reader is, because with a site
  // clients without a certificate are connected, too. ALREADY_EXISTS: the port is taken.
  // UNAVAILABLE: the address cannot be listened on. FAILED_PRECONDITION: the address is off
  // loopback, and there is no `tls`. On loopback the metrics are only for requests whose Host is
  // this machine.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Serve(
      const Address& listen, std::shared_ptr<prometheus::Registry> registry,
      const std::optional<TlsMaterial>& tls, const HttpHandler& site = nullptr);

  // Replaces the page's TLS material if it has changed and the page has TLS. Logs material that
  // cannot be used.
  void Renew(const std::optional<TlsMaterial>& tls);

  const Address& address() const { return server_->address(); }  // With the real port.
  std::string url() const;                                       // The address of /metrics.

 private:
  MetricsPage(std::unique_ptr<HttpServer> server, std::optional<TlsMaterial> tls);

  const std::unique_ptr<HttpServer> server_;
  std::optional<TlsMaterial> tls_;  // Absent: the page has no TLS.
};

}  // namespace trainyard
