#include "controller/store/sqlite_store.h"

#include <iterator>

#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace trainyard::controller {
namespace {
// How often a write to a full disk is retried.
constexpr absl::Duration kRetryEvery = absl::Milliseconds(500);

uint64_t BytesOf(const WriteBatch& batch) {
  uint64_t bytes = sizeof(batch);
  for (const auto* jobs : {&batch.new_jobs, &batch.changed_jobs}) {
    for (const StoredJob& job : *jobs) {
      bytes +=
          sizeof(job) + job.spec.size() + job.config.size() + job.facts.size() + job.body.size();
    }
  }
  for (const auto& event : batch.events) bytes += sizeof(event) + event.event.message.size();
  for (const auto& step : batch.steps) bytes += sizeof(step) + step.record.ranks_seen.size();
  for (const auto& log : batch.logs) bytes += sizeof(log) + log.line.text.size();
  for (const AuditEntry& entry : batch.audit) {
    bytes += sizeof(entry) + entry.detail.size() + entry.message.size();
  }
  return bytes;
}
}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& directory,
                                                               const StoreLimits& limits,
                                                               const StoreRecovery& recovery,
                                                               OnCommit on_commit) {
  ASSIGN_OR_RETURN(StateLock lock, StateLock::Take(directory));
  auto opened = OpenStoreFiles(directory, recovery);
  if (!opened.ok()) {
    return WithNewestBackup(opened.status(), recovery.backup_directory, RealClock().Now());
  }
  StoreFiles files = *std::move(opened);
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteWriter> writer,
                   SqliteWriter::Create(std::move(files.writer), limits, files.witness.get()));
  ASSIGN_OR_RETURN(const uint64_t generation, writer->NextGeneration());
  std::unique_ptr<SqliteStore> store(new SqliteStore(
      std::move(lock), std::move(files.witness), std::move(writer), std::move(files.reader),
      {generation, limits.waiting_bytes, files.damaged_pages, std::move(on_commit)}));
  ASSIGN_OR_RETURN(const uint64_t damaged, store->reader_.CheckRequests());
  if (damaged > 0) {
    LogError("requests_damaged", {{"state", directory}, {"rows", damaged}});
    if (recovery.accept_loss) store->reader_.ForgetDamagedRequests();
  }
  return store;
}

SqliteStore::SqliteStore(StateLock lock, std::unique_ptr<Witness> witness,
                         std::unique_ptr<SqliteWriter> writer, Database reader, Settings settings)
    : lock_(std::move(lock)),
      settings_(std::move(settings)),
      witness_(std::move(witness)),
      writer_(std::move(writer)),
      reader_(std::move(reader)),
      thread_([this] { Run(); }) {}

SqliteStore::~SqliteStore() { Close(); }

void SqliteStore::Close() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

Refusal SqliteStore::Write(WriteBatch batch, OnFailure on_failure, WriteDone done) {
  MutexLock lock(mutex_);
  const bool full = on_failure != OnFailure::kRetry && waiting_bytes_ > settings_.max_waiting_bytes;
  if (stopping_ || full) {
    if (!done) return {};
    return [done = std::move(done), stopping = stopping_] {
      done(absl::UnavailableError(stopping ? "the controller is stopping"
                                           : "the disk does not keep up: try again later"));
    };
  }
  const uint64_t bytes = BytesOf(batch);
  waiting_bytes_ += bytes;
  queue_.push_back({std::move(batch), on_failure, std::move(done), bytes});
  changed_.NotifyOne();
  return {};
}

bool SqliteStore::full() const {
  MutexLock lock(mutex_);
  return waiting_bytes_ > settings_.max_waiting_bytes;
}

absl::Status SqliteStore::WriteTogether(const std::deque<Pending>& group) {
  const absl::Duration start = RealClock().Monotonic();
  absl::Status status = writer_->Begin();
  for (auto it = group.begin(); status.ok() && it != group.end(); ++it) {
    status = writer_->Put(it->batch);
  }
  if (status.ok()) status = writer_->Commit();
  if (!status.ok()) writer_->Rollback();
  if (settings_.on_commit) settings_.on_commit(RealClock().Monotonic() - start);
  return status;
}

absl::Status SqliteStore::WriteGroup(std::deque<Pending> group, bool stopping,
                                     std::deque<Pending>& kept) {
  absl::Status status = WriteTogether(group);
  if (status.ok() || group.size() == 1) {
    for (Pending& pending : group) Settle(std::move(pending), status, stopping, kept);
    return kept.empty() ? absl::OkStatus() : status;
  }
  // One batch may be at fault, and the others must not fail with it. But no batch may overtake a
  // batch that is kept, or an older state of a job would later overwrite a newer one.
  for (Pending& pending : group) {
    absl::Status one_status = status;
    if (kept.empty() || pending.on_failure == OnFailure::kReport) {
      std::deque<Pending> one;
      one.push_back(std::move(pending));
      one_status = WriteTogether(one);
      pending = std::move(one.front());
    }
    Settle(std::move(pending), one_status, stopping, kept);
  }
  return kept.empty() ? absl::OkStatus() : status;
}

void SqliteStore::Settle(Pending pending, const absl::Status& status, bool stopping,
                         std::deque<Pending>& kept) {
  if (!status.ok() && pending.on_failure == OnFailure::kRetry && !stopping) {
    kept.push_back(std::move(pending));
    return;
  }
  {
    MutexLock lock(mutex_);
    waiting_bytes_ -= pending.bytes;
  }
  if (pending.done) pending.done(status);
}

void SqliteStore::Run() {
  std::deque<Pending> kept;  // Failed batches, to be retried before newer ones.
  bool failing = false;
  for (;;) {
    std::deque<Pending> group = std::move(kept);
    kept.clear();
    bool stopping;
    {
      MutexLock lock(mutex_);
      const absl::Duration until =
          group.empty() ? absl::InfiniteDuration() : RealClock().Monotonic() + kRetryEvery;
      while (!stopping_ && queue_.empty() && changed_.WaitUntil(mutex_, until)) continue;
      std::move(queue_.begin(), queue_.end(), std::back_inserter(group));
      queue_.clear();
      stopping = stopping_;
    }
    if (group.empty()) return;
    const absl::Status status = WriteGroup(std::move(group), stopping, kept);
    if (failing && status.ok()) LogInfo("store_writes_again");
    if (!failing && !status.ok()) LogError("store_cannot_write", {{"error", status.message()}});
    failing = !status.ok();
  }
}

}  // namespace trainyard::controller
