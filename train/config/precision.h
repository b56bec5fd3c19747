// What a job's precision means. Whoever has to know, asks this table: the spec's parser for the
// names, the engine and the planner for the formats, the service for the devices. Another precision
// is another row; a product of another format is a row of the second table.

#pragma once

#include <vector>

#include "kernels/device/exec.h"
#include "models/program/precision.h"
#include "train/config/job_config.h"

namespace trainyard {

struct PrecisionRow {
  PrecisionName precision;
  const char* name;  // For users; the proto's, without its prefix.
  Precision formats;

  // Whether that kind of device multiplies in all of its formats.
  bool RunsOn(DeviceKind kind) const;
};

// Which kinds of devices have products of a format. Any device holds any storage.
struct ProductFormatRow {
  ProductFormat format;
  std::vector<DeviceKind> devices;
};
const std::vector<ProductFormatRow>& ProductFormatRows();

// In the order in which messages list the names.
const std::vector<PrecisionRow>& Precisions();
const PrecisionRow& RowOf(PrecisionName precision);

}  // namespace trainyard
