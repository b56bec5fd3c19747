// The store of a simulated controller: SQLite through the product's writer and reader, with
// SqliteStore's contract, but written by an event of the simulation instead of a thread.

#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/store/sqlite_reader.h"
#include "controller/store/sqlite_writer.h"
#include "controller/store/store.h"
#include "controller/store/store_files.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/process.h"

namespace trainyard::simulation {

using controller::OnFailure;
using controller::Refusal;
using controller::StoredJob;
using controller::WriteBatch;
using controller::WriteDone;

// Not thread-safe. `process` is the controller's: what was not written when it died is lost.
class PumpedStore final : public controller::Store {
 public:
  // `dead`: asked after each write; once true, the disk has taken its last, and nobody is told of
  // anything any more.
  static absl::StatusOr<std::unique_ptr<PumpedStore>> Open(const std::string& directory,
                                                           EventQueue& queue, Process& process,
                                                           std::function<bool()> dead);

  Refusal Write(WriteBatch batch, OnFailure on_failure, WriteDone done) override;
  bool full() const override { return queued_.size() + kept_.size() > kMostWaiting; }
  void Close() override {}
  uint64_t generation() const override { return generation_; }

  absl::StatusOr<std::vector<StoredJob>> LiveJobs() override { return reader_.LiveJobs(); }
  absl::StatusOr<StoredJob> GetJob(uint64_t number) override { return reader_.GetJob(number); }
  absl::StatusOr<std::vector<StoredJob>> ListJobs(const controller::JobFilter& filter,
                                                  uint64_t before, size_t limit) override {
    return reader_.ListJobs(filter, before, limit);
  }
  absl::StatusOr<uint64_t> FindRequest(const std::string& request_id) override {
    return reader_.FindRequest(request_id);
  }
  absl::StatusOr<uint64_t> NewestJob() override { return reader_.NewestJob(); }
  absl::StatusOr<std::vector<uint64_t>> CountByState() override { return reader_.CountByState(); }
  absl::StatusOr<std::vector<controller::EventRecord>> ReadEvents(uint64_t number) override {
    return reader_.ReadEvents(number);
  }
  absl::StatusOr<std::vector<controller::JobStep>> OpenSteps(
      uint64_t number, const std::vector<controller::Resume>& resumes) override {
    return reader_.OpenSteps(number, resumes);
  }
  absl::StatusOr<controller::JobStep> LastStep(uint64_t number, uint64_t epoch) override {
    return reader_.LastStep(number, epoch);
  }
  absl::StatusOr<controller::JobStep> LastValidated(
      uint64_t number, uint64_t up_to, const std::vector<controller::Resume>& resumes) override {
    return reader_.LastValidated(number, up_to, resumes);
  }
  absl::StatusOr<double> SumStepSeconds(uint64_t number) override {
    return reader_.SumStepSeconds(number);
  }
  absl::StatusOr<std::vector<controller::JobStep>> ReadSteps(uint64_t number, uint64_t after_step,
                                                             size_t limit) override {
    return reader_.ReadSteps(number, after_step, limit);
  }
  absl::StatusOr<LogPage> ReadLogs(uint64_t number, uint64_t after, int64_t rank,
                                   size_t limit) override {
    return reader_.ReadLogs(number, after, rank, limit);
  }
  absl::StatusOr<std::vector<controller::JobStep>> SampleSteps(
      uint64_t number, const std::vector<uint64_t>& wanted) override {
    return reader_.SampleSteps(number, wanted);
  }
  absl::StatusOr<std::vector<LogRecord>> LastLogs(uint64_t number, int64_t rank,
                                                  size_t limit) override {
    return reader_.LastLogs(number, rank, limit);
  }
  absl::StatusOr<std::vector<AuditEntry>> ReadAudit(uint64_t after, size_t limit) override {
    return reader_.ReadAudit(after, limit);
  }
  absl::StatusOr<uint64_t> NewestAudit() override { return reader_.NewestAudit(); }

  // Whether this rank's word of the step is durable, or a later attempt's is.
  bool HoldsStep(uint64_t number, uint64_t epoch, uint64_t step, uint32_t rank);

 private:
  static constexpr size_t kMostWaiting = 2'000;  // Batches.
  struct Pending {
    WriteBatch batch;
    OnFailure on_failure;
    WriteDone done;
  };

  PumpedStore(controller::StoreFiles files, controller::Database looker, EventQueue& queue,
              Process& process)
      : queue_(queue),
        process_(process),
        files_(std::move(files)),
        reader_(std::move(files_.reader)),
        looker_(std::move(looker)) {}
  void Schedule(absl::Duration delay);
  void Pump();
  absl::Status WriteTogether(const std::deque<Pending>& group);
  void WriteOneByOne(std::deque<Pending> group, const absl::Status& status);
  void Settle(Pending pending, const absl::Status& status);

  EventQueue& queue_;
  Process& process_;
  std::function<bool()> dead_;
  controller::StoreFiles files_;  // The witness; the rest has been handed on.
  std::unique_ptr<controller::SqliteWriter> writer_;
  controller::SqliteReader reader_;
  controller::Database looker_;  // Of the checks.
  std::optional<controller::Statement> look_;
  uint64_t generation_ = 0;
  std::deque<Pending> queued_, kept_;  // Kept: failed, to be tried again before anything newer.
  bool scheduled_ = false;
};

}  // namespace trainyard::simulation
