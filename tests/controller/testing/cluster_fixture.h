// A whole controller without network: real store in a temporary directory, fake clock, scripted
// workers.

#pragma once

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "controller/book/job_book.h"
#include "controller/store/sqlite_store.h"
#include "controller/workers/coordinator.h"
#include "tests/controller/testing/temp_directory.h"
#include "tests/testing/fake_clock.h"

namespace trainyard::controller {

// Records the orders that a worker is sent.
class FakeLink final : public WorkerLink {
 public:
  void Send(Order order) override {
    std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  void Close(absl::Status why) override {
    std::lock_guard lock(mutex_);
    if (closed_.ok()) closed_ = std::move(why);
  }
  bool holding() const override { return holds; }
  std::atomic<bool> holds = false;
  absl::Status closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  // Takes out the orders of one kind sent so far.
  template <typename T>
  std::vector<T> Take() {
    std::lock_guard lock(mutex_);
    std::vector<T> taken;
    for (auto it = orders_.begin(); it != orders_.end();) {
      if (const T* order = std::get_if<T>(&*it)) {
        taken.push_back(*order);
        it = orders_.erase(it);
      } else {
        ++it;
      }
    }
    return taken;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Order> orders_;
  absl::Status closed_;
};

class ClusterFixture : public ::testing::Test {
 protected:
  ClusterFixture() { StartController(); }
  ~ClusterFixture() override { StopController(); }

  void StartController() {
    auto store = SqliteStore::Open(directory_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    registry_ = std::make_shared<prometheus::Registry>();
    metrics_ = std::make_unique<ControllerMetrics>(*registry_);
    time_ = std::make_unique<BelievedTime>(clock_);
    auto book = JobBook::Create(*time_, *store_, *metrics_, limits_);
    ASSERT_TRUE(book.ok()) << book.status();
    book_ = *std::move(book);
    coordinator_ = std::make_unique<Coordinator>(
        *time_, *book_, *metrics_, [] {}, CoordinatorOptions{.gauges_every = {}});
  }
  void StopController() {
    if (store_ != nullptr) store_->Close();
    coordinator_.reset();
    book_.reset();
    store_.reset();
  }
  void RestartController() {
    StopController();
    StartController();
  }

  // Everything told so far is durable and published.
  void Flush() {
    std::promise<void> done;
    store_->Write({}, OnFailure::kRetry, [&](const absl::Status&) { done.set_value(); });
    done.get_future().wait();
  }
  void Tick() {
    Flush();
    coordinator_->Tick();
    Flush();
  }
  // In steps, as the ticker would.
  void Advance(absl::Duration by) {
    for (; by > absl::ZeroDuration(); by -= absl::Milliseconds(500)) {
      clock_.Advance(std::min(by, absl::Milliseconds(500)));
      Tick();
    }
  }

  static std::shared_ptr<const Spec> MakeSpec(uint32_t ranks, const std::string& directory = "",
                                              const std::string& bytes = "spec") {
    Spec spec;
    spec.bytes = bytes;
    spec.config = "{}";
    spec.facts.name = "tiny";
    spec.facts.ranks = ranks;
    spec.facts.steps = 10;
    spec.facts.precision = "F32";
    spec.facts.global_batch = 4;
    spec.facts.checkpoint_directory = directory;
    return std::make_shared<const Spec>(spec);
  }

  absl::StatusOr<Snapshot> TrySubmit(std::shared_ptr<const Spec> spec,
                                     const std::string& request_id = "") {
    std::promise<absl::StatusOr<Snapshot>> done;
    book_->Submit(request_id, std::move(spec),
                  [&](absl::StatusOr<Snapshot> job) { done.set_value(std::move(job)); });
    return done.get_future().get();
  }
  std::string Submit(uint32_t ranks, const std::string& directory = "") {
    const auto job = TrySubmit(MakeSpec(ranks, directory));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? (*job)->id : "";
  }
  Snapshot Get(const std::string& id) {
    Flush();
    const auto job = book_->Get(id);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : std::make_shared<const Job>();
  }

  struct FakeWorker {
    std::shared_ptr<FakeLink> link;
    Session session;
  };
  FakeWorker Connect(const std::string& id, uint32_t devices, std::vector<RankStatus> running = {},
                     DeviceKind kind = DeviceKind::kCpu) {
    Registration registration;
    registration.worker_id = id;
    registration.instance_id = id + "-instance";
    registration.hostname = "host-of-" + id;
    for (uint32_t i = 0; i < devices; ++i) {
      Device& device = registration.devices.emplace_back();
      device = {{.index = i, .memory_bytes = 1, .threads = 1, .peaks = {{"f32", 1e9, true}}}, kind};
      device.model = kind == DeviceKind::kCpu ? "cpu" : "gpu";
    }
    registration.running = std::move(running);
    registration.detach = detach_;
    FakeWorker worker{std::make_shared<FakeLink>(), {}};
    const auto session = coordinator_->Connect(registration, worker.link);
    EXPECT_TRUE(session.ok()) << session.status();
    if (session.ok()) worker.session = *session;
    Flush();
    return worker;
  }
  static RankStatus Status(const Snapshot& job, uint32_t rank, RankState state,
                           ExitCause cause = ExitCause::kNone, int signal = 0) {
    RankStatus status;
    status.job_id = job->id;
    status.epoch = job->epoch;
    status.rank = rank;
    status.device = rank < job->ranks.size() ? job->ranks[rank].device : 0;
    status.state = state;
    status.cause = cause;
    status.signal = signal;
    return status;
  }
  // True if it became durable.
  bool Say(const FakeWorker& worker, const RankStatus& status) {
    bool durable = false;
    coordinator_->OnRankStatus(worker.session, status,
                               [&](const absl::Status& stored) { durable = stored.ok(); });
    Flush();
    return durable;
  }
  // Rank 0 has loaded the checkpoint of this step; of 0, none.
  bool Ready(const FakeWorker& worker, const Snapshot& job, uint64_t resumed_step) {
    RankStatus status = Status(job, 0, RankState::kReady);
    status.resumed = StartRecord{.step = resumed_step};
    return Say(worker, status);
  }
  bool Step(const FakeWorker& worker, const Snapshot& job, uint32_t rank, uint64_t step,
            double seconds = 0.5) {
    StepReport report;
    report.job_id = job->id;
    report.rank = rank;
    report.record.step = step;
    report.record.epoch = job->epoch;
    report.record.seconds = seconds;
    report.record.tokens = 100;
    report.record.loss = 3.5;
    report.record.model_flops = 1'000'000;
    report.record.mfu = 0.25 + rank;  // Of rank 1 nonsense, which nobody may be shown.
    report.record.peak_flops = 2e9;
    report.record.finish_time = clock_.Now();
    bool durable = false;
    coordinator_->OnStep(worker.session, report,
                         [&](const absl::Status& stored) { durable = stored.ok(); });
    Flush();
    return durable;
  }
  bool Save(const FakeWorker& worker, const Snapshot& job, uint64_t step) {
    bool durable = false;
    coordinator_->OnCheckpoint(worker.session,
                               {{job->id, job->epoch, 0},
                                {step, "runs/step-" + std::to_string(step), 10, 1.0},
                                clock_.Now()},
                               [&](const absl::Status& stored) { durable = stored.ok(); });
    Flush();
    return durable;
  }
  Snapshot ReadyAll(const std::string& id, const FakeWorker& worker) {
    const Snapshot job = Get(id);
    for (uint32_t i = 0; i < job->ranks.size(); ++i) {
      if (job->ranks[i].worker_id == worker.session.worker_id) {
        Say(worker, Status(job, i, RankState::kStarting));
        Say(worker, Status(job, i, RankState::kReady));
      }
    }
    return Get(id);
  }

  // The sum over a family's series; over those that have the label's value, where one is given.
  double Metric(const std::string& name, const std::string& value = "") const {
    double sum = 0;
    for (const auto& family : registry_->Collect()) {
      if (family.name != "trainyard_" + name) continue;
      for (const auto& metric : family.metric) {
        const bool wanted =
            value.empty() || std::any_of(metric.label.begin(), metric.label.end(),
                                         [&](const auto& l) { return l.value == value; });
        if (wanted) sum += metric.counter.value + metric.gauge.value;
      }
    }
    return sum;
  }

  // Whether the job has a series of the family.
  bool HasSeries(const std::string& name, const std::string& job_id) const {
    for (const auto& family : registry_->Collect()) {
      if (family.name != "trainyard_" + name) continue;
      for (const auto& metric : family.metric) {
        for (const auto& label : metric.label) {
          if (label.name == "job_id" && label.value == job_id) return true;
        }
      }
    }
    return false;
  }

  absl::Duration detach_;  // Of the workers that connect next.
  JobBookLimits limits_;   // Of the controller that starts next.
  const TempDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<BelievedTime> time_;
  std::unique_ptr<SqliteStore> store_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<ControllerMetrics> metrics_;
  std::unique_ptr<JobBook> book_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace trainyard::controller
