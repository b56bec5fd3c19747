#include "tests/simulation/pumped_store.h"

#include <iterator>

#include "common/status_macros.h"

namespace trainyard::simulation {
namespace {

constexpr absl::Duration kRetryEvery = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::unique_ptr<PumpedStore>> PumpedStore::Open(const std::string& directory,
                                                               EventQueue& queue, Process& process,
                                                               std::function<bool()> dead) {
  using controller::Database;
  ASSIGN_OR_RETURN(controller::StoreFiles files, controller::OpenStoreFiles(directory, {}));
  ASSIGN_OR_RETURN(Database looker, Database::Open(directory + "/store.db"));
  std::unique_ptr<PumpedStore> store(
      new PumpedStore(std::move(files), std::move(looker), queue, process));
  ASSIGN_OR_RETURN(store->writer_,
                   controller::SqliteWriter::Create(std::move(store->files_.writer), {},
                                                    store->files_.witness.get()));
  ASSIGN_OR_RETURN(store->generation_, store->writer_->NextGeneration());
  store->dead_ = std::move(dead);
  return store;
}

bool PumpedStore::HoldsStep(uint64_t number, uint64_t epoch, uint64_t step, uint32_t rank) {
  if (!look_) {
    look_ = *looker_.Prepare("SELECT epoch, ranks_seen FROM steps WHERE number = ? AND step = ?");
  }
  look_->Bind(1, int64_t(number)).Bind(2, int64_t(step));
  const auto row = look_->Next();
  if (!row.ok() || !*row) return false;
  const uint64_t stored = uint64_t(look_->Int(0));
  const std::string seen = look_->Text(1);
  look_->Reset();
  const bool told = rank / 8 < seen.size() && (seen[rank / 8] >> rank % 8 & 1) != 0;
  return stored > epoch || (stored == epoch && told);
}

Refusal PumpedStore::Write(WriteBatch batch, OnFailure on_failure, WriteDone done) {
  if (on_failure != OnFailure::kRetry && full()) {
    if (!done) return {};
    return [done = std::move(done)] {
      done(absl::UnavailableError("the disk does not keep up: try again later"));
    };
  }
  queued_.push_back({std::move(batch), on_failure, std::move(done)});
  if (kept_.empty()) Schedule(queue_.Between(absl::Microseconds(100), absl::Milliseconds(5)));
  return {};
}

void PumpedStore::Schedule(absl::Duration delay) {
  if (std::exchange(scheduled_, true)) return;
  process_.After(delay, [this] { Pump(); });
}

void PumpedStore::Pump() {
  scheduled_ = false;
  std::deque<Pending> group = std::exchange(kept_, {});
  std::move(queued_.begin(), queued_.end(), std::back_inserter(group));
  queued_.clear();
  if (group.empty()) return;
  const absl::Status status = WriteTogether(group);
  if (dead_()) return;
  if (status.ok()) {
    for (Pending& pending : group) Settle(std::move(pending), status);
  } else {
    WriteOneByOne(std::move(group), status);
  }
  if (!kept_.empty()) return Schedule(kRetryEvery);
  if (!queued_.empty()) Schedule(absl::ZeroDuration());
}

// As SqliteStore::WriteGroup: one batch may be at fault, but nothing overtakes a batch that is
// kept.
void PumpedStore::WriteOneByOne(std::deque<Pending> group, const absl::Status& status) {
  for (Pending& pending : group) {
    absl::Status one_status = status;
    if (group.size() > 1 && (kept_.empty() || pending.on_failure == OnFailure::kReport)) {
      std::deque<Pending> one;
      one.push_back(std::move(pending));
      one_status = WriteTogether(one);
      if (dead_()) return;
      pending = std::move(one.front());
    }
    Settle(std::move(pending), one_status);
  }
}

absl::Status PumpedStore::WriteTogether(const std::deque<Pending>& group) {
  absl::Status status = writer_->Begin();
  for (auto it = group.begin(); status.ok() && it != group.end(); ++it) {
    status = writer_->Put(it->batch);
  }
  if (status.ok()) status = writer_->Commit();
  if (!status.ok()) writer_->Rollback();
  return status;
}

void PumpedStore::Settle(Pending pending, const absl::Status& status) {
  if (!status.ok() && pending.on_failure == OnFailure::kRetry) {
    kept_.push_back(std::move(pending));
  } else if (pending.done) {
    pending.done(status);
  }
}

}  // namespace trainyard::simulation
