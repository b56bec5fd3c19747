#include "worker/metrics_page_adapter.h"

#include <exception>

#include "absl/strings/str_cat.h"

namespace trainyard {

absl::StatusOr<MetricsPage> ServeMetrics(const std::string& address,
                                         const std::shared_ptr<prometheus::Registry>& registry) {
  MetricsPage page;
  try {
    page.exposer = std::make_unique<prometheus::Exposer>(address, 1);
    page.exposer->RegisterCollectable(registry);
    const std::string host = address.substr(0, address.rfind(':'));
    page.url =
        absl::StrCat("http://", host, ":", page.exposer->GetListeningPorts().at(0), "/metrics");
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics at ", address, ": ", error.what()));
  }
  return page;
}

}  // namespace trainyard
