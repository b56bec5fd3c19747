// The metrics of a program itself on its metrics page: processor time, memory, descriptors and
// start time, with the names that Prometheus' own client libraries use.

#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace trainyard {

// Returns the present values, except those that /proc does not have. May be called from any thread.
std::vector<prometheus::MetricFamily> ProcessMetrics();

}  // namespace trainyard
