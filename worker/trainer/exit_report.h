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

// Writes atomically. A failure is only logged, because nobody is left to handle it.
void WriteExitReport(const std::string& path, const ExitReport& report);

}  // namespace trainyard
