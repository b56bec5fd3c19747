#include "worker/trainer/exit_report.h"

#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/json.h"
#include "common/log.h"
#include "common/reserved_file.h"
#include "common/text.h"
#include "train/checkpoint/lineage.h"

namespace trainyard {
namespace {

constexpr size_t kExitReportBytes = 16 << 10;

}  // namespace

ExitReport ReportOf(const TrainingResult& result) {
  switch (result.outcome) {
    case Outcome::kCompleted:
      return {ExitCause::kCompleted, result.message};
    case Outcome::kStopped:
      return {ExitCause::kStopped, result.message};
    case Outcome::kNotFinite:
      break;
  }
  return {ExitCause::kNotFinite, result.message};
}

ExitReport ReportOf(const absl::Status& status) {
  const std::string message(status.message());
  if (IsStorageFault(status)) return {ExitCause::kStorage, message};
  if (IsSuperseded(status)) return {ExitCause::kSuperseded, message};
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return {ExitCause::kBadInput, message};
    case absl::StatusCode::kCancelled:
      return {ExitCause::kStopped, message};
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
      return {ExitCause::kPeerLost, message};
    default:
      return {ExitCause::kOther, message};
  }
}

ExitReport ReportOf(const DeviceError& error) {
  const bool peer = error.kind == DeviceError::Kind::kPeerLost;
  return {peer ? ExitCause::kPeerLost : ExitCause::kDeviceError, error.what()};
}

int ExitCode(const ExitReport& report) {
  return report.cause == ExitCause::kCompleted || report.cause == ExitCause::kStopped ? 0 : 1;
}

void ReserveExitReport(const std::string& path) {
  if (path.empty()) return;
  const absl::Status status = ReserveFile(path, kExitReportBytes);
  if (!status.ok()) LogWarning("exit_report_not_reserved", {{"error", status.message()}});
}

void WriteExitReport(const std::string& path, const ExitReport& report) {
  if (path.empty()) return;
  const auto text = [&](absl::string_view message) {
    const nlohmann::json json = {
        {"version", 1}, {"cause", Name(report.cause)}, {"message", std::string(message)}};
    return JsonText(json, 2) + "\n";
  };
  absl::Status status = WriteFileAtomic(path, text(report.message));
  if (status.ok()) {
    ReleaseReserve(path);
    return;
  }
  // JSON may need six bytes for one.
  status = WriteReservedFile(path, text(CutUtf8(report.message, kExitReportBytes / 8)));
  if (!status.ok()) LogError("exit_report_failed", {{"error", status.message()}});
}

}  // namespace trainyard
