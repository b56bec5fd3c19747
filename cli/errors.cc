#include "cli/errors.h"

#include "absl/strings/cord.h"

namespace trainyard::cli {
namespace {

constexpr char kExitCode[] = "trainyard/exit_code";

absl::Status WithExitCode(absl::Status status, absl::string_view digit) {
  status.SetPayload(kExitCode, absl::Cord(digit));
  return status;
}

}  // namespace

absl::Status UsageError(absl::string_view message) {
  return WithExitCode(absl::InvalidArgumentError(message), "2");
}
absl::Status OutcomeError(absl::string_view message) {
  return WithExitCode(absl::AbortedError(message), "3");
}
absl::Status UnreachableError(absl::string_view message) {
  return WithExitCode(absl::UnavailableError(message), "4");
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  const auto digit = status.GetPayload(kExitCode);
  return digit ? std::string(*digit)[0] - '0' : 1;
}

}  // namespace trainyard::cli
