// The exit report of a trainer (docs/formats.md) and its exit code.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/collective/collective.h"
#include "train/trainer/trainer.h"
#include "worker/channel/exit_cause.h"

namespace trainyard {

struct ExitReport {
  ExitCause cause = ExitCause::kOther;
  std::string message;
};

ExitReport ReportOf(const TrainingResult& result);
ExitReport ReportOf(const absl::Status& status);  // The status must not be OK.
ExitReport ReportOf(const DeviceError& error);
int ExitCode(const ExitReport& report);

// Reserves room on the disk for the report. A failure is only logged: usually the report needs no
// room of its own.
void ReserveExitReport(const std::string& path);
// Writes atomically. If the disk is full, the report goes into the reserved room, with as much of
// its message as fits. A failure is only logged, because nobody is left to handle it.
void WriteExitReport(const std::string& path, const ExitReport& report);

}  // namespace trainyard
