// Proves that submits are idempotent and durable, that directories are not shared, that readers see
// only durable states with growing revisions, and that steps are counted once.

#include "controller/book/job_book.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

#include "controller/jobs/job_id.h"
#include "tests/controller/testing/cluster_fixture.h"
#include "tests/testing/full_disk.h"

namespace trainyard::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class JobBookTest : public ClusterFixture {
 protected:
  // A job of one rank, which the worker runs.
  Snapshot SucceedAfterOneStep(FakeWorker& worker) {
    const std::string id = Submit(1);
    Tick();
    const Snapshot job = ReadyAll(id, worker);
    Step(worker, job, 0, 1);
    Say(worker, Status(job, 0, RankState::kExited, ExitCause::kCompleted));
    EXPECT_EQ(Get(id)->state, JobState::kSucceeded);
    return job;
  }
};

TEST_F(JobBookTest, SameRequestGetsTheSameJobEvenAfterARestart) {
  const auto spec = MakeSpec(1, "", "bytes");
  const std::string id = (*TrySubmit(spec, "request"))->id;
  EXPECT_EQ((*TrySubmit(spec, "request"))->id, id);
  RestartController();
  EXPECT_EQ((*TrySubmit(spec, "request"))->id, id);
  EXPECT_TRUE(absl::IsAlreadyExists(TrySubmit(MakeSpec(1, "", "other"), "request").status()));
  EXPECT_NE((*TrySubmit(spec, ""))->id, id);
  EXPECT_EQ(book_->Live().size(), 2u);
}

TEST_F(JobBookTest, ConcurrentSubmitsOfOneRequestMakeOneJob) {
  std::vector<std::string> ids(16);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ids.size(); ++i) {
    threads.emplace_back([&, i] { ids[i] = (*TrySubmit(MakeSpec(1), "one"))->id; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(ids, ::testing::Each(ids[0]));
  EXPECT_EQ(book_->Live().size(), 1u);
}

// Bug it must catch: a clock past 2054, for one submit, numbers and dates that job and later ones.
TEST_F(JobBookTest, AJobIsNumberedAndDatedByTheBelievedTime) {
  const absl::Time before = clock_.Now();
  constexpr absl::Duration kLeap = absl::Hours(24 * 365 * 40);
  clock_.JumpWall(kLeap);
  const auto during = TrySubmit(MakeSpec(1));
  ASSERT_TRUE(during.ok()) << during.status();
  EXPECT_EQ((*during)->create_time, before);
  EXPECT_EQ((*during)->id, JobId(NextJobNumber(0, before)));
  clock_.JumpWall(-kLeap);
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ((*TrySubmit(MakeSpec(1)))->create_time, before + absl::Hours(1));
}

// Bug it must catch: a clock that was set right at night dates the first jobs of the morning by the
// wrong time.
TEST_F(JobBookTest, ALeapCountsFromWhenItHappens) {
  clock_.JumpWall(absl::Hours(24));
  Tick();
  clock_.Advance(absl::Minutes(11));
  Tick();
  EXPECT_EQ((*TrySubmit(MakeSpec(1)))->create_time, clock_.Now());
  // A wrong time that does not hold between two submits is not believed by the second.
  const absl::Time before = clock_.Now();
  clock_.JumpWall(absl::Hours(24));
  EXPECT_EQ((*TrySubmit(MakeSpec(1)))->create_time, before);
  clock_.JumpWall(-absl::Hours(24));
  Tick();
  clock_.Advance(absl::Minutes(11));
  clock_.JumpWall(absl::Hours(24));
  EXPECT_EQ((*TrySubmit(MakeSpec(1)))->create_time, before + absl::Minutes(11));
}

// Passes everything on; before each read, somebody else uses the book.
class WatchedStore final : public Store {
 public:
  explicit WatchedStore(Store& store) : store_(store) {}
  std::function<void()> on_read = [] {};

  Refusal Write(WriteBatch batch, OnFailure on_failure, WriteDone done) override {
    return store_.Write(std::move(batch), on_failure, std::move(done));
  }
  bool full() const override { return store_.full(); }
  void Close() override { store_.Close(); }
  uint64_t generation() const override { return store_.generation(); }
  absl::StatusOr<std::vector<StoredJob>> LiveJobs() override { return Read().LiveJobs(); }
  absl::StatusOr<StoredJob> GetJob(uint64_t n) override { return Read().GetJob(n); }
  absl::StatusOr<std::vector<StoredJob>> ListJobs(const JobFilter& filter, uint64_t before,
                                                  size_t limit) override {
    return Read().ListJobs(filter, before, limit);
  }
  absl::StatusOr<uint64_t> FindRequest(const std::string& id) override {
    return Read().FindRequest(id);
  }
  absl::StatusOr<uint64_t> NewestJob() override { return Read().NewestJob(); }
  absl::StatusOr<std::vector<uint64_t>> CountByState() override { return Read().CountByState(); }
  absl::StatusOr<std::vector<EventRecord>> ReadEvents(uint64_t n) override {
    return Read().ReadEvents(n);
  }
  absl::StatusOr<std::vector<JobStep>> OpenSteps(uint64_t n,
                                                 const std::vector<Resume>& r) override {
    return Read().OpenSteps(n, r);
  }
  absl::StatusOr<JobStep> LastStep(uint64_t n, uint64_t epoch) override {
    return Read().LastStep(n, epoch);
  }
  absl::StatusOr<JobStep> LastValidated(uint64_t n, uint64_t up_to,
                                        const std::vector<Resume>& r) override {
    return Read().LastValidated(n, up_to, r);
  }
  absl::StatusOr<double> SumStepSeconds(uint64_t n) override { return Read().SumStepSeconds(n); }
  absl::StatusOr<std::vector<JobStep>> ReadSteps(uint64_t n, uint64_t after,
                                                 size_t limit) override {
    return Read().ReadSteps(n, after, limit);
  }
  absl::StatusOr<LogPage> ReadLogs(uint64_t n, uint64_t after, int64_t rank,
                                   size_t limit) override {
    return Read().ReadLogs(n, after, rank, limit);
  }
  absl::StatusOr<std::vector<JobStep>> SampleSteps(uint64_t n,
                                                   const std::vector<uint64_t>& wanted) override {
    return Read().SampleSteps(n, wanted);
  }
  absl::StatusOr<std::vector<LogRecord>> LastLogs(uint64_t n, int64_t rank, size_t limit) override {
    return Read().LastLogs(n, rank, limit);
  }
  absl::StatusOr<std::vector<AuditEntry>> ReadAudit(uint64_t after, size_t limit) override {
    return Read().ReadAudit(after, limit);
  }
  absl::StatusOr<uint64_t> NewestAudit() override { return Read().NewestAudit(); }

 private:
  Store& Read() {
    on_read();
    return store_;
  }
  Store& store_;
};

// A slow disk must not stop the scheduler: catches a read under the book's lock, by hanging.
TEST_F(JobBookTest, StoreIsReadWithoutTheBooksLock) {
  WatchedStore watched(*store_);
  const auto book = JobBook::Create(*time_, watched, *metrics_);
  ASSERT_TRUE(book.ok()) << book.status();
  int reads = 0;
  watched.on_read = [&] {
    ++reads;
    (void)(*book)->Live();
  };
  const auto submit = [&] {
    std::promise<std::string> id;
    (*book)->Submit("request", MakeSpec(1),
                    [&](absl::StatusOr<Snapshot> job) { id.set_value((*job)->id); });
    return id.get_future().get();
  };
  const std::string id = submit();
  EXPECT_EQ(submit(), id);
  EXPECT_EQ(reads, 2) << "one look-up a submit";
  Placed placed;
  placed.ranks.push_back({.worker_id = "w", .hostname = "host"});
  ASSERT_TRUE((*book)->Apply(id, {clock_.Now(), placed}).ok());
  StepReport report{.job_id = id, .rank = 0, .worker_id = "w", .record = {}};
  report.record.epoch = 1;
  for (const uint64_t step : {1, 2, 2, 1}) {
    report.record.step = step;
    (*book)->RecordStep(report, {}, {});
  }
  EXPECT_EQ(reads, 2) << "a step needs none";
  store_->Close();
}

// Catches a submit that failed and takes a place in the queue for good.
TEST_F(JobBookTest, SubmitsThatFailTakeNoPlaceInTheQueue) {
  auto book = JobBook::Create(*time_, *store_, *metrics_, {.live_jobs = 4});
  ASSERT_TRUE(book.ok()) << book.status();
  coordinator_.reset();
  book_ = *std::move(book);
  {
    const FullDisk full;
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(TrySubmit(MakeSpec(1)).ok());
  }
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = TrySubmit(MakeSpec(1)).status();
    EXPECT_TRUE(status.ok()) << status;
  }
  const absl::Status third = TrySubmit(MakeSpec(1)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(third)) << third;
  EXPECT_THAT(std::string(third.message()), HasSubstr("the namespace default, which has 2 jobs"));
}

// Bug it must catch: one submitter fills the queue, and nobody else submits until its jobs have
// run.
TEST_F(JobBookTest, ANamespaceLeavesPlacesInTheQueueForOthers) {
  const auto start = [&] {
    auto book = JobBook::Create(*time_, *store_, *metrics_, {.live_jobs = 12});
    ASSERT_TRUE(book.ok()) << book.status();
    coordinator_.reset();
    book_ = *std::move(book);
  };
  // How many are accepted, and the last one's id.
  const auto fill = [&](const std::string& name_space, std::string* last = nullptr) {
    Spec spec = *MakeSpec(1);
    spec.facts.name_space = name_space;
    for (int accepted = 0;; ++accepted) {
      const auto job = TrySubmit(std::make_shared<const Spec>(spec));
      if (!job.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(job.status())) << job.status();
        return accepted;
      }
      if (last != nullptr) *last = (*job)->id;
    }
  };
  start();
  std::string last;
  EXPECT_EQ(fill("a", &last), 6);
  EXPECT_EQ(fill("b"), 3);
  EXPECT_EQ(fill("c"), 2);
  EXPECT_EQ(fill("a"), 0);
  start();
  EXPECT_EQ(fill("a") + fill("b") + fill("c"), 0) << "as it was before a restart";
  EXPECT_EQ(fill("d"), 1);
  EXPECT_EQ(fill("e"), 0) << "the queue is full for everybody";
  ASSERT_TRUE(book_->Apply(last, {clock_.Now(), CancelRequested{""}}).ok());
  Flush();
  EXPECT_EQ(fill("a"), 0) << "it has more than there are free places";
  EXPECT_EQ(fill("e"), 1);
}

TEST_F(JobBookTest, CheckpointDirectoryBelongsToOneLiveJob) {
  const std::string id = Submit(1, "runs/a");
  const absl::Status second = TrySubmit(MakeSpec(1, "./runs//b/../a/")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(second));
  EXPECT_THAT(std::string(second.message()), HasSubstr("checkpoint.directory"));
  EXPECT_THAT(std::string(second.message()), HasSubstr(id));
  EXPECT_TRUE(absl::IsInvalidArgument(book_->CheckSubmit(*MakeSpec(1, "runs/a"))));
  RestartController();
  EXPECT_FALSE(TrySubmit(MakeSpec(1, "runs/a")).ok());
  coordinator_->Cancel(id, {""}, [](absl::StatusOr<Snapshot>) {});
  Flush();
  EXPECT_TRUE(TrySubmit(MakeSpec(1, "runs/a")).ok());
}

// Bug it must catch: one queued job with the directory "." keeps every other namespace out.
TEST_F(JobBookTest, NamespacesApartDoNotTakeEachOthersDirectories) {
  coordinator_.reset();
  book_->SetAdmission([](const Spec&) { return RootPaths{"/data"}; });
  const auto of = [&](const std::string& name_space, const std::string& directory) {
    Spec spec = *MakeSpec(1, directory);
    spec.facts.name_space = name_space;
    spec.facts.roots = {"/data/" + name_space};
    return std::make_shared<const Spec>(spec);
  };
  const auto taker = TrySubmit(of("a", "."));
  ASSERT_TRUE(taker.ok()) << taker.status();
  EXPECT_TRUE(TrySubmit(of("b", "run")).ok());
  EXPECT_TRUE(TrySubmit(of("b", "/data/b/other")).ok());
  EXPECT_TRUE(book_->CheckSubmit(*of("c", "run")).ok()) << "and what b uses, c does not learn";
  const std::string own(book_->CheckSubmit(*of("a", "run")).message());
  EXPECT_THAT(own, HasSubstr((*taker)->id));
  Spec around = *of("all", "/data/b");
  around.facts.roots = {"/data"};
  const std::string others(book_->CheckSubmit(around).message());
  EXPECT_THAT(others, AllOf(HasSubstr("another namespace"), Not(HasSubstr("j-"))));
}

// The pairs themselves are directories_test's; here, that the book asks, of whom, and when.
TEST_F(JobBookTest, DirectoriesOfLiveJobsMayNotLieInsideEachOther) {
  const std::string id = Submit(1, "runs/a");
  for (const char* inside : {"runs/a/b", "runs", "."}) {
    const absl::Status status = TrySubmit(MakeSpec(1, inside)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << inside;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(inside), HasSubstr(id), HasSubstr("'runs/a'")));
  }
  // Where no worker has said what its root is, nothing tells.
  EXPECT_TRUE(book_->CheckSubmit(*MakeSpec(1, "/data/runs/a")).ok());
  Registration registration;
  registration.worker_id = "w";
  registration.roots = {"/data"};
  ASSERT_TRUE(coordinator_->Connect(registration, std::make_shared<FakeLink>()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(TrySubmit(MakeSpec(1, "/data/runs/a/")).status()));
  EXPECT_TRUE(TrySubmit(MakeSpec(1, "/data/runs/b")).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(TrySubmit(MakeSpec(1, "runs/b/c")).status()));
}

TEST_F(JobBookTest, TracesMayNotLieInsideCheckpoints) {
  Submit(1, "runs/a");
  Registration registration;
  registration.worker_id = "w";
  registration.roots = {"/data"};
  ASSERT_TRUE(coordinator_->Connect(registration, std::make_shared<FakeLink>()).ok());
  const auto with_traces = [](const std::string& directory, const std::string& traces) {
    Spec spec = *MakeSpec(1, directory);
    spec.facts.paths = {{"checkpoint.directory", directory}, {"profile.directory", traces}};
    return spec;
  };
  for (const Spec& spec :
       {with_traces("runs/b", "runs/a/traces"), with_traces("runs/b", "/data/runs/b/traces"),
        with_traces("", "runs/a")}) {
    const absl::Status status = book_->CheckSubmit(spec);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << spec.facts.paths[1].path;
    EXPECT_THAT(std::string(status.message()), HasSubstr("profile.directory: wanted"));
  }
  EXPECT_TRUE(book_->CheckSubmit(with_traces("runs/b", "runs/traces")).ok());
}

TEST_F(JobBookTest, FinishedJobsAreReadFromTheStore) {
  const std::string id = Submit(1), other = Submit(1);
  coordinator_->Cancel(id, {"no"}, [](absl::StatusOr<Snapshot>) {});
  Flush();
  EXPECT_EQ(book_->Published(id), nullptr);
  EXPECT_EQ(Get(id)->state, JobState::kCancelled);
  EXPECT_EQ(Get(id)->spec->bytes, "spec");
  EXPECT_TRUE(absl::IsNotFound(book_->Get("j-0000000000").status()));
  EXPECT_TRUE(absl::IsNotFound(book_->Get("nonsense").status()));
  const auto list = book_->List({}, 0, 10);
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0]->id, other) << "newest first";
}

TEST_F(JobBookTest, RevisionsGrowAcrossProgressAndRestart) {
  const std::string id = Submit(1);
  FakeWorker worker = Connect("w", 1);
  Tick();
  Snapshot job = ReadyAll(id, worker);
  uint64_t last = job->revision;
  for (uint64_t step = 1; step <= 5; ++step) {
    clock_.Advance(absl::Seconds(1));
    Step(worker, job, 0, step);
    EXPECT_GT(Get(id)->revision, last) << "progress is a change";
    last = Get(id)->revision;
  }
  RestartController();
  EXPECT_GT(Get(id)->revision, last);
  EXPECT_EQ(Get(id)->progress.step, 5) << "read from the steps";
}

TEST_F(JobBookTest, StepsAreMergedAndCountedOnceThoughToldTwice) {
  const std::string id = Submit(2);
  FakeWorker worker = Connect("w", 2);
  Tick();
  Snapshot job = ReadyAll(id, worker);
  for (int told = 0; told < 2; ++told) {
    EXPECT_TRUE(Step(worker, job, 0, 1, 0.25));
    EXPECT_TRUE(Step(worker, job, 1, 1, 0.5)) << "acknowledged each time";
  }
  EXPECT_EQ(Metric("steps_total"), 1);
  EXPECT_EQ(Metric("phase_seconds_total", "host"), 0.5) << "the ranks report no other phase";
  EXPECT_EQ(Metric("tokens_total"), 100);
  const auto steps = store_->ReadSteps(job->number, 0, 10);
  ASSERT_EQ(steps->size(), 1u);
  EXPECT_EQ(steps->front().seconds, 0.5);
  EXPECT_EQ(steps->front().mfu, 0.25) << "rank 0's";
  EXPECT_EQ(Get(id)->progress.mfu(), 0.25);
  EXPECT_EQ(Metric("mfu_ratio"), 0.25);
  EXPECT_EQ(Metric("peak_flops"), 2e9);

  RestartController();
  worker = Connect("w", 2, {Status(job, 0, RankState::kReady), Status(job, 1, RankState::kReady)});
  EXPECT_TRUE(Step(worker, job, 0, 1, 0.25)) << "resent, because the acknowledgement was lost";
  EXPECT_EQ(Metric("steps_total"), 0) << "counted before the restart";
  EXPECT_EQ(store_->ReadSteps(job->number, 0, 10)->front().seconds, 0.5);
}

// Catches a step taken for news because the one before it was a repeated one, and a controller that
// after its restart takes the furthest step of an earlier attempt for the progress of this one.
TEST_F(JobBookTest, EveryStepThatARecoveryRepeatsCountsAsRepeated) {
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  Snapshot job = ReadyAll(id, worker);
  const auto run = [&](uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) {
      clock_.Advance(absl::Seconds(1));
      EXPECT_TRUE(Step(worker, job, 0, step, 0.5));
    }
  };
  run(1, 2);
  Save(worker, job, 2);
  run(3, 5);
  EXPECT_EQ(Metric("badput_seconds_total", "repeated_steps"), 0);
  EXPECT_DOUBLE_EQ(Metric("goodput_ratio"), 2.5 / 5);
  Say(worker, Status(job, 0, RankState::kExited, ExitCause::kSignal, 9));
  Tick();
  job = ReadyAll(id, worker);
  ASSERT_EQ(job->epoch, 2);
  run(3, 4);
  EXPECT_DOUBLE_EQ(Metric("badput_seconds_total", "repeated_steps"), 1);
  EXPECT_DOUBLE_EQ(Metric("goodput_ratio"), 2.5 / 7);

  RestartController();
  EXPECT_EQ(Get(id)->progress.step, 4) << "step 5 was the superseded attempt's";
  worker = Connect("w", 1, {Status(job, 0, RankState::kReady)});
  run(5, 6);
  EXPECT_EQ(Get(id)->progress.step, 6);
  EXPECT_DOUBLE_EQ(Metric("badput_seconds_total", "repeated_steps"), 0.5);
  EXPECT_DOUBLE_EQ(Metric("goodput_ratio"), 3.0 / 9);
}

TEST_F(JobBookTest, OnlySoManyJobsThatHaveEndedHaveSeries) {
  limits_.old_series = 2;
  RestartController();
  FakeWorker worker = Connect("w", 1);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(Submit(1));
    Tick();
    const Snapshot job = ReadyAll(ids.back(), worker);
    EXPECT_TRUE(HasSeries("restarts_total", ids.back()));
    Say(worker, Status(job, 0, RankState::kExited, ExitCause::kCompleted));
    ASSERT_EQ(Get(ids.back())->state, JobState::kSucceeded);
  }
  EXPECT_FALSE(HasSeries("restarts_total", ids[0]));
  EXPECT_TRUE(HasSeries("restarts_total", ids[1]));
  EXPECT_TRUE(HasSeries("restarts_total", ids[2]));
}

TEST_F(JobBookTest, WhatIsToldAfterTheStoreClosedIsRefusedAndDoesNotHang) {
  const std::string id = Submit(1);
  FakeWorker worker = Connect("w", 1);
  Tick();
  const Snapshot job = ReadyAll(id, worker);
  store_->Close();
  absl::Status submitted, applied, recorded;
  // Readers of the book take its lock, so these hang if they are told while it is held.
  book_->Submit("", MakeSpec(1), [&](absl::StatusOr<Snapshot> answer) {
    submitted = answer.status();
    EXPECT_EQ(book_->Live().size(), 1u);
  });
  EXPECT_TRUE(absl::IsUnavailable(submitted)) << submitted;
  StepReport report{.job_id = id, .rank = 0, .worker_id = "w", .record = {}};
  report.record.step = 1;
  report.record.epoch = job->epoch;
  book_->RecordStep(report, {}, [&](const absl::Status& status) {
    recorded = status;
    EXPECT_EQ(book_->Live().size(), 1u);
  });
  EXPECT_TRUE(absl::IsUnavailable(recorded)) << recorded;
  book_->AppendLogs(id, "w", {{clock_.Now(), 1, 0, "line"}});
  (void)book_->Apply(id, {clock_.Now(), CancelRequested{"late"}}, [&](const absl::Status& status) {
    applied = status;
    EXPECT_EQ(book_->Live().size(), 1u);
  });
  EXPECT_TRUE(absl::IsUnavailable(applied)) << applied;
}

TEST_F(JobBookTest, NoTimeIsLeftBeyondTheLastStep) {
  const std::string id = Submit(1);
  FakeWorker worker = Connect("w", 1);
  Tick();
  const Snapshot job = ReadyAll(id, worker);
  Step(worker, job, 0, job->spec->facts.steps - 1);
  EXPECT_EQ(Metric("estimated_seconds_remaining"), 0.5);
  Step(worker, job, 0, job->spec->facts.steps + 1);
  EXPECT_EQ(Metric("estimated_seconds_remaining"), 0);
}

class Counter final : public JobListener {
 public:
  void OnJobChanged() override { ++calls; }
  std::atomic<int> calls = 0;
};

// Catches the lost wake-up: a reader that came after the write was queued and looked before it was
// durable.
TEST_F(JobBookTest, ReadersThatComeDuringAWriteHearOfIt) {
  const std::string id = Submit(1);
  FakeWorker worker = Connect("w", 1);
  Tick();
  const Snapshot job = ReadyAll(id, worker);
  std::promise<void> gate;
  store_->Write({}, OnFailure::kRetry, [&](const absl::Status&) { gate.get_future().wait(); });
  book_->AppendLogs(id, "w", {{clock_.Now(), 1, 0, "line"}});
  const auto reader = std::make_shared<Counter>();
  book_->Subscribe(id, reader);
  gate.set_value();
  Flush();
  EXPECT_EQ(reader->calls, 1);
  Step(worker, job, 0, 1);
  EXPECT_EQ(reader->calls, 2);
}

// Bug it must catch: a worker's disk could not be read for some minutes, and the job's history ends
// where the disk failed, although the worker has read the rest since.
TEST_F(JobBookTest, StepsThatComeAfterTheEndOfTheirJobAreKept) {
  FakeWorker worker = Connect("w", 1);
  const Snapshot job = SucceedAfterOneStep(worker);
  Step(worker, job, 0, 2);
  Step(worker, job, 0, 3);
  Step(worker, job, 0, 3);
  EXPECT_EQ(store_->ReadSteps(job->number, 0, 10)->size(), 3u);
  EXPECT_EQ(Get(job->id)->state, JobState::kSucceeded);
  FakeWorker stranger = Connect("stranger", 1);
  Step(stranger, job, 0, 4);
  EXPECT_EQ(store_->ReadSteps(job->number, 0, 10)->size(), 3u);
}

TEST_F(JobBookTest, SeriesOfAnEndedJobGoAwayLater) {
  FakeWorker worker = Connect("w", 1);
  const Snapshot job = SucceedAfterOneStep(worker);
  EXPECT_EQ(Metric("steps_total"), 1);
  Advance(absl::Minutes(16));
  EXPECT_EQ(Metric("steps_total"), 0);
}

}  // namespace
}  // namespace trainyard::controller
