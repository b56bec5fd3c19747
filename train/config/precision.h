// The table of precisions. All code that needs to know about a job's precision asks this table: the
// spec's parser for the names, the engine and the planner for the formats, the service for the
// devices. To add a precision, add a row. If it has products of a new format, add a row to the
// second table, too.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/device/exec.h"
#include "models/program/precision.h"
#include "train/config/job_config.h"

namespace trainyard {

struct PrecisionRow {
  PrecisionName precision;
  const char* name;  // For users: the proto's name without its prefix.
  Precision formats;

  // Whether a device of this kind computes products in all of the formats.
  bool RunsOn(DeviceKind kind) const;
};

// The kinds of devices that compute products of a format. Every device can hold any storage.
struct ProductFormatRow {
  ProductFormat format;
  std::vector<DeviceKind> devices;
};
const std::vector<ProductFormatRow>& ProductFormatRows();

// The names of the precisions in which devices of a kind compute.
std::vector<std::string> PrecisionNamesOn(DeviceKind kind);
// The first of them whose activations are nearest in size to this precision's.
std::string NearestPrecisionOn(DeviceKind kind, absl::string_view name);

// In the order in which messages list the names.
const std::vector<PrecisionRow>& Precisions();
const PrecisionRow& RowOf(PrecisionName precision);
// The formats of a valid job: those of its precision, with the optimizer's state as the job has it.
Precision FormatsOf(const JobConfig& job);

}  // namespace trainyard
