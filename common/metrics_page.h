// The page that Prometheus scrapes: a registry at /metrics.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/address.h"
#include "common/http/server.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace trainyard {

class MetricsPage {
 public:
  // Port 0 picks a free port. UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Serve(
      const Address& listen, std::shared_ptr<prometheus::Registry> registry);

  const Address& address() const { return server_->address(); }  // With the real port.
  std::string url() const;

 private:
  explicit MetricsPage(std::unique_ptr<HttpServer> server);

  const std::unique_ptr<HttpServer> server_;
};

}  // namespace trainyard
