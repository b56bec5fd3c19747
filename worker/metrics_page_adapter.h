// Serves a registry at http://ADDRESS/metrics. An adapter, because prometheus-cpp throws.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/exposer.h"
#include "prometheus/registry.h"

namespace trainyard {

struct MetricsPage {
  std::unique_ptr<prometheus::Exposer> exposer;  // Takes about two seconds to destroy.
  std::string url;                               // With the port that was picked for port 0.
};

// `address` is HOST:PORT. UNAVAILABLE when it cannot be listened on.
absl::StatusOr<MetricsPage> ServeMetrics(const std::string& address,
                                         const std::shared_ptr<prometheus::Registry>& registry);

}  // namespace trainyard
