// Proves that a row which is not as it was written is named when it is read, that a damaged job
// harms no other, and that a store of an older version gets its checksums.

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "controller/jobs/job_id.h"
#include "controller/store/sqlite.h"
#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

class DamagedRowsTest : public ClusterFixture {
 protected:
  // As a fault would: behind the store's back.
  void Damage(const std::string& sql) {
    auto database = Database::Open(directory_.path() + "/store.db");
    ASSERT_TRUE(database.ok()) << database.status();
    const absl::Status status = database->Execute(sql.c_str());
    ASSERT_TRUE(status.ok()) << status;
  }
  static std::string Where(const std::string& job_id) {
    return absl::StrCat(" WHERE number = ", *JobNumber(job_id));
  }
};

TEST_F(DamagedRowsTest, EveryColumnOfAJobIsGuarded) {
  const std::string id = (*TrySubmit(MakeSpec(1), ""))->id;
  RestartController();
  ASSERT_TRUE(book_->Get(id).ok());
  for (const std::string damage :
       {"spec = x'00'", "config = 'other'", "facts = '{}'", "body = '{}'", "state = 7",
        "body = CAST(body AS BLOB)", "checksum = checksum + 1"}) {
    SCOPED_TRACE(damage);
    StopController();
    Damage("CREATE TABLE saved AS SELECT * FROM jobs");
    Damage("UPDATE jobs SET " + damage);
    StartController();
    EXPECT_TRUE(book_->IsDamaged(id));
    EXPECT_TRUE(book_->Live().empty());
    const absl::Status status = book_->Get(id).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr(id), HasSubstr("--restore")));
    StopController();
    Damage("DELETE FROM jobs; INSERT INTO jobs SELECT * FROM saved; DROP TABLE saved");
    StartController();
    EXPECT_FALSE(book_->IsDamaged(id));
    EXPECT_TRUE(book_->Get(id).ok());
  }
}

// They may be all that is left of the job: nobody kills them, and nobody takes their device.
TEST_F(DamagedRowsTest, ADamagedJobsRanksAreLeftRunning) {
  FakeWorker worker = Connect("w", 1);
  const std::string id = Submit(1, "runs");
  Tick();
  const Snapshot job = ReadyAll(id, worker);
  StopController();
  Damage("UPDATE jobs SET body = '{}'" + Where(id));
  StartController();
  worker = Connect("w", 1, {Status(job, 0, RankState::kReady)});
  clock_.Advance(absl::Seconds(1));  // Numbers of jobs follow the clock.
  Submit(1);
  Advance(absl::Seconds(1));
  EXPECT_TRUE(worker.link->Take<StopOrder>().empty());
  EXPECT_TRUE(worker.link->Take<StartOrder>().empty()) << "the device is taken";
  EXPECT_EQ(coordinator_->DeviceHolders().size(), 1u);
}

TEST_F(DamagedRowsTest, OtherJobsAreListedAndAcceptedBesideADamagedOne) {
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back((*TrySubmit(MakeSpec(1), absl::StrCat("r", i)))->id);
  StopController();
  Damage("UPDATE jobs SET body = '{}'" + Where(ids[2]));
  StartController();
  const auto page = book_->List({}, 0, 3);
  ASSERT_TRUE(page.ok()) << page.status();
  std::vector<std::string> listed;
  for (const Snapshot& job : *page) listed.push_back(job->id);
  EXPECT_THAT(listed, ::testing::ElementsAre(ids[4], ids[3], ids[1])) << "a full page";
  EXPECT_EQ(book_->Live().size(), 4u);
  EXPECT_TRUE(TrySubmit(MakeSpec(1), "new").ok());
  EXPECT_TRUE(absl::IsDataLoss(TrySubmit(MakeSpec(1), "r2").status())) << "no second job";
  EXPECT_FALSE(book_->IsDamaged(ids[0]));
  // Where a row's number is what was damaged, the true job looks as if it had never been.
  EXPECT_TRUE(book_->IsDamaged(JobId(*JobNumber(ids[0]) - 7)));
}

TEST_F(DamagedRowsTest, ADamagedJobIsNeverForgotten) {
  StopController();
  auto store = *SqliteStore::Open(directory_.path(), {.ended_jobs = 10});
  const auto put = [&](uint64_t number) {
    WriteBatch batch;
    batch.new_jobs.push_back({number, JobState::kFailed, "s", "c", "f", "b"});
    std::promise<void> done;
    (void)store->Write(std::move(batch), OnFailure::kReport, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      done.set_value();
    });
    done.get_future().wait();
  };
  put(1), put(2);
  Damage("UPDATE jobs SET body = 'x' WHERE number = 1");
  for (uint64_t number = 3; number <= 600; ++number) put(number);
  EXPECT_TRUE(absl::IsNotFound(store->GetJob(2).status()));
  EXPECT_TRUE(absl::IsDataLoss(store->GetJob(1).status()));
}

// Catches a second job for one request_id: the row that says so is damaged, in either column.
TEST_F(DamagedRowsTest, ADamagedRequestNeverMakesASecondJob) {
  for (const std::string damage : {"number = 9", "request_id = 'requesu'"}) {
    SCOPED_TRACE(damage);
    ASSERT_TRUE(TrySubmit(MakeSpec(1), "request").ok());
    StopController();
    Damage("UPDATE requests SET " + damage);
    StartController();
    const absl::Status status = TrySubmit(MakeSpec(1), "request").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--restore"));
    EXPECT_TRUE(TrySubmit(MakeSpec(1), "").ok()) << "without a request_id nothing can double";
    StopController();
    Damage("DELETE FROM requests");
    StartController();
  }
}

TEST_F(DamagedRowsTest, DamagedHistoryIsNamedWhenItIsRead) {
  WriteBatch batch;
  for (const uint64_t step : {1, 2}) {
    JobStep record;
    record.step = step;
    record.epoch = 1;
    record.complete = true;
    record.seconds = -0.0;
    record.validation_loss = 1;
    batch.steps.push_back({1, record});
    batch.logs.push_back({1, {absl::UnixEpoch(), 1, 0, "line"}});
    batch.events.push_back({1, {absl::UnixEpoch(), EventType::kWarning, 1, "event"}});
  }
  std::promise<void> done;
  (void)store_->Write(std::move(batch), OnFailure::kReport,
                      [&](const absl::Status&) { done.set_value(); });
  done.get_future().wait();
  ASSERT_EQ(store_->ReadSteps(1, 0, 10)->size(), 2u);
  ASSERT_TRUE(store_->SumStepSeconds(1).ok());
  Damage("UPDATE steps SET loss = 7 WHERE step = 2");
  Damage("UPDATE logs SET text = 'lime' WHERE n = 1");
  Damage("UPDATE events SET type = 9 WHERE n = 2");
  const std::vector<absl::Status> statuses = {
      store_->ReadSteps(1, 0, 10).status(),     store_->LastStep(1, 1).status(),
      store_->OpenSteps(1, {}).status(),        store_->SumStepSeconds(1).status(),
      store_->LastValidated(1, 9, {}).status(), store_->ReadEvents(1).status(),
      store_->ReadLogs(1, 0, -1, 10).status()};
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(JobId(1)));
  }
  EXPECT_EQ(store_->ReadSteps(1, 0, 1)->size(), 1u) << "the first step is good";
}

}  // namespace
}  // namespace trainyard::controller
