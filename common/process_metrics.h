// What a program's metrics page says of the program itself: processor time, memory, descriptors and
// start, under the names that Prometheus' own client libraries use.

#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace trainyard {

// Returns the values as they are now. What /proc does not tell is left out. From any thread.
std::vector<prometheus::MetricFamily> ProcessMetrics();

}  // namespace trainyard
