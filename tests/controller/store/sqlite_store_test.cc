// Proves that what was written is read back after reopening, that history is bounded, and that a
// file that is newer, foreign or damaged is refused with words that help.

#include "controller/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <future>
#include <mutex>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "controller/store/schema.h"
#include "controller/store/sqlite_reader.h"
#include "tests/controller/testing/temp_directory.h"
#include "tests/testing/full_disk.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<SqliteStore> Open(const std::string& directory, const StoreLimits& limits = {}) {
  auto store = SqliteStore::Open(directory, limits);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? std::move(*store) : nullptr;
}

absl::Status Put(Store& store, WriteBatch batch, OnFailure on_failure = OnFailure::kReport) {
  std::promise<absl::Status> done;
  const Refusal refuse = store.Write(std::move(batch), on_failure,
                                     [&](const absl::Status& status) { done.set_value(status); });
  if (refuse) refuse();
  return done.get_future().get();
}

StoredJob Row(uint64_t number, JobState state = JobState::kQueued) {
  return {number, state, std::string("spec\0", 5), "{}", "facts", absl::StrCat("body ", number)};
}

WriteBatch NewJob(uint64_t number, JobState state = JobState::kQueued) {
  WriteBatch batch;
  batch.new_jobs.push_back(Row(number, state));
  return batch;
}

TEST(SqliteStore, ReadsBackAfterReopening) {
  const TempDirectory directory;
  uint64_t generation;
  {
    const auto store = Open(directory.path());
    generation = store->generation();
    WriteBatch batch = NewJob(5);
    batch.new_requests.push_back({"request", 5});
    batch.events.push_back({5, {absl::FromUnixSeconds(9), EventType::kSubmitted, 0, "queued"}});
    ASSERT_TRUE(Put(*store, std::move(batch)).ok());
    ASSERT_TRUE(Put(*store, NewJob(6, JobState::kSucceeded)).ok());
    WriteBatch change;
    change.changed_jobs.push_back({5, JobState::kRunning, "", "", "", "changed"});
    ASSERT_TRUE(Put(*store, std::move(change)).ok());
  }
  const auto store = Open(directory.path());
  EXPECT_EQ(store->generation(), generation + 1);
  const auto live = store->LiveJobs();
  ASSERT_EQ(live->size(), 1u);
  EXPECT_EQ(live->front().body, "changed");
  EXPECT_EQ(live->front().spec, std::string("spec\0", 5));
  EXPECT_EQ(store->FindRequest("request").value(), 5);
  EXPECT_TRUE(absl::IsNotFound(store->FindRequest("other").status()));
  EXPECT_EQ(store->NewestJob().value(), 6);
  EXPECT_EQ(store->ReadEvents(5)->front().message, "queued");
  EXPECT_EQ(store->CountByState()->at(size_t(JobState::kSucceeded)), 1);
  EXPECT_TRUE(absl::IsNotFound(store->GetJob(7).status()));
}

TEST(SqliteStore, ListsNewestFirstByPageAndState) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  for (uint64_t n = 1; n <= 5; ++n) {
    ASSERT_TRUE(Put(*store, NewJob(n, n % 2 ? JobState::kFailed : JobState::kQueued)).ok());
  }
  const auto page = store->ListJobs({}, 0, 2);
  ASSERT_EQ(page->size(), 2u);
  EXPECT_EQ((*page)[0].number, 5);
  EXPECT_EQ(store->ListJobs({}, 4, 10)->front().number, 3);
  EXPECT_EQ(store->ListJobs({.states = {JobState::kQueued}}, 0, 10)->size(), 2u);
}

TEST(SqliteStore, ListsOneNamespaceNewestFirstByPageAndState) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  for (uint64_t n = 1; n <= 12; ++n) {
    WriteBatch batch = NewJob(n, n % 2 ? JobState::kFailed : JobState::kQueued);
    if (n % 3 != 0) {
      batch.new_jobs[0].facts = absl::StrCat(R"({"namespace":"n)", n % 3, R"(","name":"x"})");
    } else if (n > 3) {
      batch.new_jobs[0].facts = "{}";  // From before there were namespaces.
    }
    ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  }
  const auto list = [&](const JobFilter& filter, uint64_t before, size_t limit) {
    std::vector<uint64_t> numbers;
    const auto rows = store->ListJobs(filter, before, limit);
    EXPECT_TRUE(rows.ok()) << rows.status();
    for (const StoredJob& row : *rows) numbers.push_back(row.number);
    return numbers;
  };
  EXPECT_THAT(list({.name_space = "n1"}, 0, 3), ElementsAre(10, 7, 4));
  EXPECT_THAT(list({.name_space = "n1"}, 4, 3), ElementsAre(1));
  EXPECT_THAT(list({.states = {JobState::kFailed}, .name_space = "n2"}, 0, 3), ElementsAre(11, 5));
  EXPECT_THAT(list({.states = {JobState::kFailed, JobState::kQueued, JobState::kFailed}}, 12, 4),
              ElementsAre(11, 10, 9, 8));
  EXPECT_THAT(list({.name_space = "default"}, 0, 9), ElementsAre(12, 9, 6));
  EXPECT_THAT(list({.name_space = "other"}, 0, 9), ElementsAre());
  WriteBatch change;
  change.changed_jobs.push_back({11, JobState::kCancelled, "", "", "", "body"});
  ASSERT_TRUE(Put(*store, std::move(change)).ok());
  EXPECT_THAT(list({.states = {JobState::kFailed}, .name_space = "n2"}, 0, 3), ElementsAre(5));
}

// Bug it must catch: who lists a namespace with few jobs reads all jobs of all others, and nobody
// else reads meanwhile.
TEST(SqliteStore, ListsReadNoJobsOfOthers) {
  const TempDirectory directory;
  { ASSERT_NE(Open(directory.path()), nullptr); }
  auto database = Database::Open(directory.path() + "/store.db");
  ASSERT_TRUE(database.ok()) << database.status();
  const std::vector<JobState> states = {JobState::kQueued, JobState::kFailed};
  for (const JobFilter& filter :
       {JobFilter{}, JobFilter{.states = states}, JobFilter{.name_space = "n"},
        JobFilter{.states = states, .name_space = "n"}}) {
    auto explain = database->Prepare("EXPLAIN QUERY PLAN " + ListJobsSql(filter));
    ASSERT_TRUE(explain.ok()) << explain.status();
    std::string plan;
    while (explain->Next().value()) absl::StrAppend(&plan, explain->Text(3), "\n");
    SCOPED_TRACE(plan);
    const bool by_state = !filter.states.empty();
    if (!filter.name_space.empty()) {
      EXPECT_THAT(plan, HasSubstr("jobs_by_namespace (<expr>=? AND state=? AND number<?)"));
    } else if (by_state) {
      EXPECT_THAT(plan, HasSubstr("jobs_by_state (state=? AND number<?)"));
    }
    EXPECT_THAT(plan, Not(HasSubstr("SCAN jobs")));
    EXPECT_THAT(plan, Not(HasSubstr("TEMP B-TREE")));
  }
}

TEST(SqliteStore, StepsReplaceAndOnlyFinishedHistoryIsRead) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  const auto put = [&](uint64_t step, uint64_t epoch, bool complete) {
    JobStep record;
    record.step = step;
    record.epoch = epoch;
    record.complete = complete;
    record.loss = std::nan("");
    record.phases.checkpoint = 0.5;
    record.model_flops = 3e19;
    if (step == 1) record.load_balancing_loss = 1.5;
    // Shares a column with what comes after it.
    if (step == 1) record.model_flops_per_second_per_device = 1.0 / 3;
    if (step == 3) record.model_flops_per_second_per_device = std::nan("");
    if (step == 1) {
      record.gpu = {.utilization = 0.97,
                    .power_watts = 612.5,
                    .sm_clock_hertz = 1.755e9,
                    .temperature_celsius = 61,
                    .throttle_reasons = {"hw_slowdown", "sw_power_cap"}};
    }
    record.ranks_seen = std::string("\3\0", 2);
    WriteBatch batch;
    batch.steps.push_back({1, record});
    ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  };
  put(1, 1, true);
  put(2, 1, false);
  put(3, 1, true);
  put(4, 1, false);
  put(3, 2, true);
  const auto steps = store->ReadSteps(1, 0, 10);
  ASSERT_EQ(steps->size(), 3u) << "step 4 is not finished; step 2 never will be";
  EXPECT_EQ((*steps)[2].epoch, 2);
  EXPECT_TRUE(std::isnan((*steps)[2].loss));
  EXPECT_EQ((*steps)[2].phases.checkpoint, 0.5);
  EXPECT_EQ((*steps)[2].model_flops, 3e19);
  EXPECT_FALSE((*steps)[2].mfu.has_value());
  EXPECT_EQ((*steps)[0].load_balancing_loss, 1.5);
  EXPECT_FALSE((*steps)[2].load_balancing_loss.has_value());
  EXPECT_EQ((*steps)[0].model_flops_per_second_per_device, 1.0 / 3);
  EXPECT_FALSE((*steps)[1].model_flops_per_second_per_device.has_value());
  EXPECT_TRUE(std::isnan((*steps)[2].model_flops_per_second_per_device.value_or(0)));
  const GpuReading &read = (*steps)[0].gpu, &none = (*steps)[2].gpu;
  EXPECT_EQ(read.utilization, 0.97);
  EXPECT_EQ(read.power_watts, 612.5);
  EXPECT_EQ(read.sm_clock_hertz, 1.755e9);
  EXPECT_EQ(read.temperature_celsius, 61);
  EXPECT_EQ(read.throttle_reasons, (std::vector<std::string>{"hw_slowdown", "sw_power_cap"}));
  EXPECT_FALSE(none.utilization || none.power_watts || none.sm_clock_hertz);
  EXPECT_TRUE(none.throttle_reasons.empty());
  EXPECT_EQ((*steps)[2].ranks_seen, std::string("\3\0", 2));
  EXPECT_EQ(store->ReadSteps(1, 2, 10)->size(), 1u);
  EXPECT_EQ(store->LastStep(1, 1)->step, 1);
  EXPECT_EQ(store->LastStep(1, 2)->step, 3);
  EXPECT_TRUE(absl::IsNotFound(store->LastStep(1, 3).status()));
}

TEST(SqliteStore, KeepsWhatTheModelWrote) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  WriteBatch batch = NewJob(1);
  JobStep record;
  record.step = 1, record.epoch = 1;
  record.complete = true;
  batch.steps.push_back({1, record});
  record.step = 2;
  record.generated = {{"\"[one\\", "line\n\x01 \xe2\x82\xac"}, {"", ""}};
  batch.steps.push_back({1, record});
  ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  const auto steps = store->ReadSteps(1, 0, 10);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_TRUE((*steps)[0].generated.empty());
  EXPECT_EQ((*steps)[1].generated, record.generated);
}

// Bug it must catch: the loss of a step that a later attempt has gone back behind.
TEST(SqliteStore, TheLastValidatedStepIsOneThatCounts) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  WriteBatch batch = NewJob(1);
  for (const uint64_t step : {2, 4, 6, 7}) {
    JobStep record;
    record.step = step;
    record.epoch = step == 4 ? 2 : 1;
    record.complete = true;
    if (step < 7) record.validation_loss = double(step);
    batch.steps.push_back({1, record});
  }
  ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  EXPECT_EQ(store->LastValidated(1, 9, {{1, 0}})->step, 6u);
  EXPECT_EQ(store->LastValidated(1, 5, {{1, 0}})->step, 4u);
  EXPECT_EQ(store->LastValidated(1, 9, {{1, 0}, {2, 3}})->validation_loss, 4);
  EXPECT_EQ(store->LastValidated(1, 9, {{1, 0}, {2, 3}, {3, 3}})->step, 2u);
  EXPECT_TRUE(absl::IsNotFound(store->LastValidated(1, 1, {}).status()));
}

// An attempt went on from far beyond what is stored, and a controller that starts then must know.
TEST(SqliteStore, StepsThatNobodyToldAreOpenHoweverMany) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  WriteBatch batch = NewJob(1);
  for (const uint64_t step : {1, 2, 3}) {
    JobStep record;
    record.step = step;
    record.epoch = 1;
    record.complete = true;
    batch.steps.push_back({1, record});
  }
  ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  const auto numbers = [&](const std::vector<Resume>& resumes) {
    std::set<uint64_t> numbers;
    const auto open = store->OpenSteps(1, resumes);
    for (const JobStep& step : *open) numbers.insert(step.step);
    return numbers;
  };
  EXPECT_THAT(numbers({}), ElementsAre(3)) << "the newest one";
  EXPECT_THAT(numbers({{1, 0}, {2, 1}, {3, 2}}), ElementsAre(2)) << "of attempt 2, told by none";
  EXPECT_THAT(numbers({{1, 0}, {2, 5}}), ElementsAre(4, 5));
  const std::set<uint64_t> far = numbers({{1, 0}, {2, 1'000'000}});
  EXPECT_EQ(far.size(), 65'536u);
  EXPECT_EQ(*far.rbegin(), 1'000'000u);
}

TEST(SqliteStore, HistoryIsBounded) {
  const TempDirectory directory;
  const auto store = Open(directory.path(),
                          {.steps_per_job = 100, .log_lines_per_job = 300, .events_per_job = 10});
  WriteBatch batch;
  for (uint64_t i = 1; i <= 1024; ++i) {
    batch.logs.push_back({1, {absl::FromUnixSeconds(1), 1, uint32_t(i % 2), absl::StrCat(i)}});
    batch.events.push_back({1, {absl::FromUnixSeconds(1), EventType::kWarning, 1, "w"}});
    JobStep step;
    step.step = i;
    step.complete = true;
    batch.steps.push_back({1, step});
  }
  ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  const auto page = store->ReadLogs(1, 0, -1, 10'000);
  EXPECT_EQ(page->lines.size(), 300u);
  EXPECT_EQ(page->lines.back().text, "1024");
  EXPECT_TRUE(store->ReadLogs(1, page->last, -1, 10)->lines.empty());
  EXPECT_EQ(page->numbers.front(), 725u);
  EXPECT_EQ(page->numbers.back(), 1024u);
  EXPECT_EQ(store->ReadLogs(1, 0, 1, 10'000)->lines.size(), 150u);
  EXPECT_EQ(store->ReadSteps(1, 0, 10'000)->size(), 100u);
  EXPECT_EQ(store->ReadEvents(1)->size(), 10u);
}

// SQLite's integers are signed: the greatest cursors of a request are none of them.
TEST(SqliteStore, NothingComesAfterACursorBeyondAllNumbers) {
  const TempDirectory directory;
  const auto store = Open(directory.path(), {});
  WriteBatch batch;
  batch.logs.push_back({1, {absl::FromUnixSeconds(1), 1, 0, "line"}});
  JobStep step;
  step.step = 1;
  step.complete = true;
  batch.steps.push_back({1, step});
  batch.audit.push_back({.caller = "alice"});
  ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  EXPECT_EQ(store->ReadSteps(1, 0, 10)->size(), 1u);
  EXPECT_EQ(store->ReadLogs(1, 0, -1, 10)->lines.size(), 1u);
  EXPECT_EQ(store->ReadAudit(0, 10)->size(), 1u);
  for (const uint64_t after : {uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_TRUE(store->ReadSteps(1, after, 10)->empty()) << after;
    EXPECT_TRUE(store->ReadLogs(1, after, -1, 10)->lines.empty()) << after;
    EXPECT_TRUE(store->ReadAudit(after, 10)->empty()) << after;
  }
}

TEST(SqliteStore, OldEndedJobsAreForgottenWithTheirHistory) {
  const TempDirectory directory;
  const auto store = Open(directory.path(), {.ended_jobs = 100});
  for (uint64_t n = 1; n <= 512; ++n) {
    WriteBatch batch = NewJob(n, n == 7 ? JobState::kRunning : JobState::kFailed);
    batch.new_requests.push_back({absl::StrCat("request-", n), n});
    batch.events.push_back({n, {absl::FromUnixSeconds(1), EventType::kSubmitted, 0, "queued"}});
    ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  }
  EXPECT_EQ(store->ListJobs({}, 0, 1000)->size(), 101u);
  EXPECT_TRUE(store->GetJob(7).ok()) << "it lives";
  EXPECT_TRUE(absl::IsNotFound(store->GetJob(412).status()));
  EXPECT_TRUE(store->ReadEvents(412)->empty());
  EXPECT_TRUE(absl::IsNotFound(store->FindRequest("request-412").status()));
  EXPECT_EQ(store->ReadEvents(413)->size(), 1u);
}

TEST(SqliteStore, BatchIsWrittenWholeOrNotAtAll) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  ASSERT_TRUE(Put(*store, NewJob(1)).ok());
  WriteBatch batch = NewJob(2);
  batch.new_jobs.push_back(Row(1));  // Taken.
  EXPECT_EQ(Put(*store, std::move(batch)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(absl::IsNotFound(store->GetJob(2).status()));
  EXPECT_TRUE(Put(*store, NewJob(3)).ok());
}

// Catches a bad batch that takes down those that happened to share its transaction.
TEST(SqliteStore, NeighboursOfABadBatchAreWritten) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  ASSERT_TRUE(Put(*store, NewJob(1)).ok());
  std::promise<void> gate;
  store->Write({}, OnFailure::kReport, [&](const absl::Status&) { gate.get_future().wait(); });
  std::vector<std::promise<absl::Status>> done(3);
  for (const uint64_t number : {2, 1, 3}) {  // All wait for the gate, so they share a transaction.
    store->Write(NewJob(number), OnFailure::kReport,
                 [&, number](const absl::Status& status) { done[number - 1].set_value(status); });
  }
  gate.set_value();
  EXPECT_FALSE(done[0].get_future().get().ok());
  EXPECT_TRUE(done[1].get_future().get().ok());
  EXPECT_TRUE(done[2].get_future().get().ok());
}

// Catches a newer state of a job that an older one, written late, overwrites.
TEST(SqliteStore, WhatCannotBeWrittenIsKeptInOrderUntilItCan) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  ASSERT_TRUE(Put(*store, NewJob(1)).ok());
  std::optional<FullDisk> full(std::in_place);
  std::vector<std::future<absl::Status>> kept;
  std::mutex mutex;
  std::vector<std::string> order;
  for (const std::string body : {"older", "newer"}) {
    auto done = std::make_shared<std::promise<absl::Status>>();
    kept.push_back(done->get_future());
    WriteBatch batch;
    batch.changed_jobs.push_back({1, JobState::kRunning, "", "", "", body});
    store->Write(std::move(batch), OnFailure::kRetry, [&, done, body](const absl::Status& status) {
      std::lock_guard lock(mutex);
      order.push_back(body);
      done->set_value(status);
    });
  }
  EXPECT_FALSE(Put(*store, NewJob(2)).ok()) << "news is refused, not kept";
  EXPECT_EQ(store->GetJob(1)->body, "body 1");
  full.reset();
  for (auto& done : kept) EXPECT_TRUE(done.get().ok());
  EXPECT_EQ(store->GetJob(1)->body, "newer");
  EXPECT_THAT(order, ::testing::ElementsAre("older", "newer"));
  EXPECT_TRUE(absl::IsNotFound(store->GetJob(2).status()));
  EXPECT_TRUE(Put(*store, NewJob(3)).ok());
}

// The disk has room for a small state, but not for the large one before it.
TEST(SqliteStore, WhatFitsDoesNotOvertakeWhatIsKept) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  ASSERT_TRUE(Put(*store, NewJob(1)).ok());
  std::optional<FullDisk> full(std::in_place, 6 << 20);  // More than the witness has.
  std::vector<std::future<absl::Status>> kept;
  for (const std::string& body : {std::string(8 << 20, 'x'), std::string("newer")}) {
    auto done = std::make_shared<std::promise<absl::Status>>();
    kept.push_back(done->get_future());
    WriteBatch batch;
    batch.changed_jobs.push_back({1, JobState::kRunning, "", "", "", body});
    (void)store->Write(std::move(batch), OnFailure::kRetry,
                       [done](const absl::Status& status) { done->set_value(status); });
  }
  EXPECT_TRUE(Put(*store, NewJob(2)).ok()) << "it is small, and waits for nothing";
  EXPECT_EQ(store->GetJob(1)->body, "body 1");
  full.reset();
  for (auto& done : kept) EXPECT_TRUE(done.get().ok());
  EXPECT_TRUE(store->GetJob(1)->body == "newer") << "the older one was written after it";
}

TEST(SqliteStore, NewsThatFailedDoesNotCountAsWaiting) {
  const TempDirectory directory;
  const auto store = Open(directory.path(), {.waiting_bytes = 1000});
  {
    const FullDisk full;
    for (uint64_t n = 1; n <= 10; ++n) EXPECT_FALSE(Put(*store, NewJob(n)).ok());
  }
  EXPECT_FALSE(store->full());
  const absl::Status status = Put(*store, NewJob(1));
  EXPECT_TRUE(status.ok()) << status;
}

// Catches a queue that grows for as long as the disk is full.
TEST(SqliteStore, WhenTooMuchWaitsNewsIsRefusedAndWhatHappenedIsKept) {
  const TempDirectory directory;
  const auto store = Open(directory.path(), {.waiting_bytes = 10'000});
  ASSERT_TRUE(Put(*store, NewJob(1)).ok());
  std::optional<FullDisk> disk(std::in_place);
  std::vector<std::future<absl::Status>> kept;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(store->full(), i >= 5) << i;
    auto done = std::make_shared<std::promise<absl::Status>>();
    kept.push_back(done->get_future());
    WriteBatch batch;
    batch.changed_jobs.push_back({1, JobState::kRunning, "", "", "", std::string(2000, 'x')});
    batch.events.push_back({1, {absl::UnixEpoch(), EventType::kWarning, 1, absl::StrCat(i)}});
    (void)store->Write(std::move(batch), OnFailure::kRetry,
                       [done](const absl::Status& status) { done->set_value(status); });
  }
  EXPECT_TRUE(absl::IsUnavailable(Put(*store, NewJob(2))));
  EXPECT_TRUE(absl::IsUnavailable(Put(*store, {}, OnFailure::kDrop)));
  disk.reset();
  for (auto& done : kept) EXPECT_TRUE(done.get().ok());
  EXPECT_FALSE(store->full());
  EXPECT_EQ(store->ReadEvents(1)->size(), 10u);
  EXPECT_TRUE(Put(*store, NewJob(2)).ok());
}

TEST(SqliteStore, OneProcessOwnsADirectory) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  const absl::Status second = SqliteStore::Open(directory.path()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("process ", ::getpid())));
}

TEST(SqliteStore, RefusesANewerSchema) {
  const TempDirectory directory;
  Open(directory.path());
  {
    auto database = Database::Open(directory.path() + "/store.db");
    ASSERT_TRUE(database->Execute("PRAGMA user_version = 99").ok());
  }
  const absl::Status status = SqliteStore::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 99"));
}

TEST(SqliteStore, RefusesAnotherProgramsDatabase) {
  const TempDirectory directory;
  {
    auto database = Database::Open(directory.path() + "/store.db");
    ASSERT_TRUE(database->Execute("CREATE TABLE recipes (cake TEXT)").ok());
  }
  EXPECT_THAT(std::string(SqliteStore::Open(directory.path()).status().message()),
              HasSubstr("another program's"));
}

TEST(SqliteStore, RefusesADamagedFile) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/store.db";
  {
    const auto store = Open(directory.path());
    for (uint64_t n = 1; n <= 200; ++n) ASSERT_TRUE(Put(*store, NewJob(n)).ok());
  }
  const std::string whole = *ReadFile(path);
  ASSERT_GT(whole.size(), 12'288u);
  std::string torn = whole;
  for (size_t i = 8192; i < 12'288; ++i) torn[i] = '\xa5';
  for (const std::string& damaged : {torn, std::string(whole.size(), 'x'), std::string("short")}) {
    ASSERT_TRUE(WriteFileAtomic(path, damaged).ok());
    const absl::Status status = SqliteStore::Open(directory.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(SqliteStore, AfterCloseWritesAreRefusedAndReadingGoesOn) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  ASSERT_TRUE(Put(*store, NewJob(1)).ok());
  store->Close();
  EXPECT_TRUE(absl::IsUnavailable(Put(*store, NewJob(2))));
  EXPECT_TRUE(store->GetJob(1).ok());
}

// A full disk, made by SQLite's own limit on pages: no privilege needed, and the same error.
TEST(SqliteStore, FullDiskRefusesNewsAndKeepsWhatHappened) {
  const TempDirectory directory;
  Open(directory.path());
  auto writer_database = Database::Open(directory.path() + "/store.db");
  ASSERT_TRUE(writer_database->Execute("PRAGMA max_page_count = 60").ok());
  auto writer = SqliteWriter::Create(*std::move(writer_database), {});
  absl::Status status;
  for (uint64_t n = 1; status.ok() && n < 1000; ++n) {
    WriteBatch batch = NewJob(n);
    batch.new_jobs[0].body.assign(3000, 'x');
    ASSERT_TRUE((*writer)->Begin().ok());
    status = (*writer)->Put(batch);
    if (status.ok()) status = (*writer)->Commit();
    if (!status.ok()) (*writer)->Rollback();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  WriteBatch small;
  small.changed_jobs.push_back({1, JobState::kRunning, "", "", "", "b"});
  ASSERT_TRUE((*writer)->Begin().ok());
  EXPECT_TRUE((*writer)->Put(small).ok()) << "what fits is still written";
  EXPECT_TRUE((*writer)->Commit().ok());
}

TEST(SqliteStore, TheOldestAuditEntriesGoInLotsAndTheChainStays) {
  const TempDirectory directory;
  const auto store = Open(directory.path(), {.audit_entries = 100});
  for (int i = 0; i < 600; ++i) {
    WriteBatch batch;
    batch.audit.push_back({.caller = absl::StrCat("caller ", i)});
    ASSERT_TRUE(Put(*store, std::move(batch)).ok());
  }
  const std::vector<AuditEntry> entries = store->ReadAudit(0, 1'000).value();
  ASSERT_EQ(entries.front().number, 413u) << "512 - 100, and the first one beyond";
  ASSERT_EQ(entries.back().number, 600u);
  for (size_t i = 1; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].hash, ChainedHash(entries[i - 1].hash, entries[i]));
  }
  EXPECT_EQ(store->ReadAudit(598, 1).value().at(0).number, 599u);
}

TEST(SqliteStore, AnAuditEntryThatWasNotWrittenLeavesNoGap) {
  const TempDirectory directory;
  const auto store = Open(directory.path());
  const auto put = [&](const std::string& caller) {
    WriteBatch batch;
    batch.audit.push_back({.caller = caller});
    return Put(*store, std::move(batch));
  };
  ASSERT_TRUE(put("first").ok());
  {
    const FullDisk full;
    ASSERT_FALSE(put("lost").ok());
  }
  ASSERT_TRUE(put("second").ok());
  const std::vector<AuditEntry> entries = store->ReadAudit(0, 9).value();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1].number, 2u);
  EXPECT_EQ(entries[1].hash, ChainedHash(entries[0].hash, entries[1]));
}

}  // namespace
}  // namespace trainyard::controller
