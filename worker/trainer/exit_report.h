// How a trainer ended: its exit report (docs/formats.md) and exit code.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/collective/collective.h"
#include "train/step/trainer.h"
#include "worker/channel/exit_cause.h"

namespace trainyard {

struct ExitReport {
  ExitCause cause = ExitCause::kOther;
  std::string message;
};

ExitReport ReportOf(const TrainingResult& result);
ExitReport ReportOf(const absl::Status& status);  // Not OK.
ExitReport ReportOf(const DeviceError& error);
int ExitCode(const ExitReport& report);

// Atomically. A failure is logged: there is nobody left to tell.
void WriteExitReport(const std::string& path, const ExitReport& report);

}  // namespace trainyard
