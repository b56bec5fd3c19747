#include "controller/service/metrics_page_adapter.h"

#include <prometheus/exposer.h>
#include <prometheus/registry.h>

#include <exception>

#include "absl/strings/str_cat.h"

namespace trainyard::controller {

MetricsPage::MetricsPage(std::unique_ptr<prometheus::Exposer> exposer, Address address)
    : exposer_(std::move(exposer)), address_(std::move(address)) {}

MetricsPage::~MetricsPage() = default;

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::Serve(
    const Address& address, std::shared_ptr<prometheus::Registry> registry) {
  Address bound = address;
  if (bound.host == "localhost") bound.host = "127.0.0.1";  // The web server wants numbers.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(bound.ToString(), 2);
    exposer->RegisterCollectable(registry);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (!ports.empty()) bound.port = ports.front();
    return std::unique_ptr<MetricsPage>(new MetricsPage(std::move(exposer), std::move(bound)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", bound.ToString(), ": ", error.what()));
  }
}

}  // namespace trainyard::controller
