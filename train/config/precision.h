// What a job's precision means. Whoever has to know, asks this table: the spec's parser for the
// names, the engine for the dtypes, the service for the devices. Another precision is another row.

#pragma once

#include <vector>

#include "kernels/device/exec.h"
#include "models/program/program.h"
#include "train/config/job_config.h"

namespace trainyard {

struct PrecisionRow {
  PrecisionName precision;
  const char* name;                 // For users; the proto's, without its prefix.
  Precision dtypes;                 // A device's peak, for the MFU, is that of dtypes.compute.
  std::vector<DeviceKind> devices;  // Kinds that have kernels for all of these dtypes.

  bool RunsOn(DeviceKind kind) const;
};

// In the order in which messages list the names.
const std::vector<PrecisionRow>& Precisions();
const PrecisionRow& RowOf(PrecisionName precision);

}  // namespace trainyard
