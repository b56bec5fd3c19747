#include "common/patient_read.h"

#include "common/log.h"

namespace trainyard {

bool MayPass(const absl::Status& read) {
  switch (read.code()) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

bool ReadPatience::TryAgain(const absl::Status& read, absl::Duration now) {
  if (!MayPass(read)) {
    since_.reset();
    return false;
  }
  if (!since_) {
    LogWarning("read_failed",
               {{"error", read.message()}, {"effect", "it is read again, and nothing is removed"}});
    since_ = now;
  }
  if (now - *since_ < patience_) return true;
  LogError("read_given_up", {{"error", read.message()},
                             {"tried_for", absl::FormatDuration(now - *since_)},
                             {"effect", "the file stays as it is"}});
  since_.reset();
  return false;
}

}  // namespace trainyard
