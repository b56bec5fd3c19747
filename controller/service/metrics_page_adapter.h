// The page that Prometheus scrapes, /metrics. The one file here that meets a throwing library
// (prometheus-cpp's web server throws when it cannot listen).

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "controller/service/address.h"

namespace prometheus {
class Exposer;
class Registry;
}  // namespace prometheus

namespace trainyard::controller {

class MetricsPage {
 public:
  // UNAVAILABLE: cannot listen there.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Serve(
      const Address& address, std::shared_ptr<prometheus::Registry> registry);
  ~MetricsPage();

  const Address& address() const { return address_; }  // With the real port.

 private:
  MetricsPage(std::unique_ptr<prometheus::Exposer> exposer, Address address);

  const std::unique_ptr<prometheus::Exposer> exposer_;
  const Address address_;
};

}  // namespace trainyard::controller
