#include "controller/access/audit.h"

#include <utility>

#include "absl/time/time.h"
#include "common/text.h"

namespace trainyard::controller {
namespace {

constexpr size_t kMaxTextBytes = 256;  // What callers send must not fill the disk.

std::string Cut(const std::string& text) {
  return std::string(CutUtf8(ValidUtf8(text), kMaxTextBytes));
}

}  // namespace

AuditEntry Audit::Entry(const Principal& caller, const std::string& method,
                        const std::string& peer) const {
  return {.time = absl::FromUnixMicros(absl::ToUnixMicros(clock_.Now())),
          .caller = caller.name,
          .credential = caller.grant_id,
          .peer = peer,
          .method = method,
          .outcome = absl::StatusCodeToString(absl::StatusCode::kOk)};
}

void Audit::Write(AuditEntry entry, const absl::Status& outcome, WriteDone done) {
  entry.target = Cut(entry.target);
  entry.detail = Cut(entry.detail);
  entry.outcome = absl::StatusCodeToString(outcome.code());
  entry.message = Cut(std::string(outcome.message()));
  WriteBatch batch;
  batch.audit.push_back(std::move(entry));
  const OnFailure on_failure = done ? OnFailure::kReport : OnFailure::kDrop;
  if (const Refusal refuse = store_.Write(std::move(batch), on_failure, std::move(done))) refuse();
}

}  // namespace trainyard::controller
