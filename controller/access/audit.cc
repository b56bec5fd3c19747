#include "controller/access/audit.h"

#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/text.h"

namespace trainyard::controller {
namespace {

constexpr size_t kMaxTextBytes = 256;  // Keeps callers from filling the disk.
constexpr absl::Duration kMinute = absl::Minutes(1);

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
  if ((!outcome.ok() || !done) && Counted(entry)) {
    if (done) done(absl::OkStatus());
    return;
  }
  Put(std::move(entry), std::move(done));
}

bool Audit::Counted(const AuditEntry& entry) {
  const MutexLock lock(mutex_);
  Minute& minute = minutes_
                       .try_emplace(absl::StrCat(entry.caller, "\n", entry.credential),
                                    Minute{clock_.Monotonic()})
                       .first->second;
  if (minute.written < kEachMinute) {
    ++minute.written;
    return false;
  }
  ++minute.counted;
  minute.last = entry;
  return true;
}

void Audit::WriteCounts(bool all) {
  std::vector<AuditEntry> counts;
  {
    const MutexLock lock(mutex_);
    std::erase_if(minutes_, [&](const auto& one) {
      const Minute& minute = one.second;
      if (!all && clock_.Monotonic() - minute.begin < kMinute) return false;
      if (minute.counted == 0) return true;
      counts.push_back(minute.last);
      if (minute.counted == 1) return true;
      counts.back().detail =
          absl::StrCat("the last of ", minute.counted,
                       " calls of this caller for which there is no other entry");
      return true;
    });
  }
  for (AuditEntry& entry : counts) Put(std::move(entry), {});
}

absl::Status Audit::WriteIntent(AuditEntry entry) {
  entry.target = Cut(entry.target);
  entry.detail = Cut(entry.detail);
  entry.outcome = "STARTED";
  std::promise<absl::Status> written;
  Put(std::move(entry), [&](const absl::Status& status) { written.set_value(status); });
  return written.get_future().get();
}

void Audit::Put(AuditEntry entry, WriteDone done) {
  WriteBatch batch;
  batch.audit.push_back(std::move(entry));
  const OnFailure on_failure = done ? OnFailure::kReport : OnFailure::kDrop;
  if (const Refusal refuse = store_.Write(std::move(batch), on_failure, std::move(done))) refuse();
}

}  // namespace trainyard::controller
