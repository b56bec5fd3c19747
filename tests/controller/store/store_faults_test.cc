// Proves that the store survives a failure at every single call that changes a file, those of the
// witness included: an error, a full disk, a short write, a death in the middle of a write, a power
// cut that loses what was not synced. After each, what was acknowledged is there when the store is
// reopened, every batch is there whole or not at all, and the store works. Tried by committing
// without a sync, which the power cut finds.

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <set>

#include "absl/strings/str_cat.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/store/faulty_disk.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard::controller {
namespace {

constexpr uint64_t kJobs = 4;
constexpr uint64_t kManyJobs = 160;  // More transactions than the witness has slots.

std::string RequestOf(uint64_t number) { return absl::StrCat("request-", number); }

// A batch with a row in every table.
WriteBatch NewJob(uint64_t number) {
  WriteBatch batch;
  batch.new_jobs.push_back({number, JobState::kQueued, "spec", "{}", "{}", std::string(3000, 'b')});
  batch.new_requests.push_back({RequestOf(number), number});
  batch.events.push_back({number, {absl::UnixEpoch(), EventType::kSubmitted, 0, "queued"}});
  batch.logs.push_back({number, {absl::UnixEpoch(), 1, 0, "line"}});
  JobStep step;
  step.step = 1;
  step.complete = true;
  batch.steps.push_back({number, step});
  return batch;
}

WriteBatch Change(uint64_t number) {
  WriteBatch batch;
  batch.changed_jobs.push_back({number, JobState::kRunning, "", "", "", "changed"});
  return batch;
}

struct Acknowledged {
  std::set<uint64_t> jobs, changes;
};

absl::Status Submit(SqliteStore& store, uint64_t number) {
  std::promise<absl::Status> done;
  (void)store.Write(NewJob(number), OnFailure::kReport,
                    [&](const absl::Status& status) { done.set_value(status); });
  return done.get_future().get();
}

// Two lives of a controller: both submit, and change what they submitted.
Acknowledged RunTwoLives(const std::string& directory, uint64_t jobs = kJobs) {
  Acknowledged told;
  for (const uint64_t first : {uint64_t{1}, jobs / 2 + 1}) {
    const auto store = SqliteStore::Open(directory);
    if (!store.ok()) continue;
    for (uint64_t number = first; number < first + jobs / 2; ++number) {
      if (!Submit(**store, number).ok()) continue;
      told.jobs.insert(number);
      (void)(*store)->Write(Change(number), OnFailure::kRetry, [&, number](const absl::Status& s) {
        if (s.ok()) told.changes.insert(number);
      });
    }
    (*store)->Close();
  }
  return told;
}

void ExpectKept(const std::string& directory, const Acknowledged& told, uint64_t jobs = kJobs) {
  const FaultyDisk sound(Fault::kNone, 0);
  const auto opened = SqliteStore::Open(directory);
  ASSERT_TRUE(opened.ok()) << opened.status();
  SqliteStore& store = **opened;
  for (uint64_t number = 1; number <= jobs; ++number) {
    SCOPED_TRACE(absl::StrCat("job ", number));
    const auto job = store.GetJob(number);
    ASSERT_TRUE(job.ok() || !told.jobs.contains(number)) << "lost: " << job.status();
    ASSERT_TRUE(!told.changes.contains(number) || job->body == "changed") << "lost its change";
    ASSERT_EQ(store.FindRequest(RequestOf(number)).ok(), job.ok());
    ASSERT_EQ(store.ReadEvents(number)->size(), job.ok() ? 1u : 0u);
    ASSERT_EQ(store.ReadSteps(number, 0, 10)->size(), job.ok() ? 1u : 0u);
    ASSERT_EQ(store.ReadLogs(number, 0, -1, 10)->lines.size(), job.ok() ? 1u : 0u);
  }
  ASSERT_TRUE(Submit(store, jobs + 1).ok());
}

struct Sweep {
  const char* name;
  Fault fault;
};
void PrintTo(const Sweep& sweep, std::ostream* out) { *out << sweep.name; }

class EveryCall : public ::testing::TestWithParam<Sweep> {};

TEST_P(EveryCall, KeepsWhatWasAcknowledgedAndNoHalves) {
  const TempDirectory top;
  const std::string directory = top.path() + "/state";
  int call = 0;
  for (bool hit = true; hit;) {
    SCOPED_TRACE(absl::StrCat("call ", ++call));
    std::filesystem::remove_all(directory);
    Acknowledged told;
    {
      FaultyDisk disk(GetParam().fault, call);
      told = RunTwoLives(directory);
      hit = disk.hit();
      if (GetParam().fault == Fault::kPowerCut) disk.LosePower();
    }
    ExpectKept(directory, told);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(hit || told.changes.size() == kJobs) << "the script itself";
  }
  EXPECT_GT(call, 100);
}

// Catches a slot of the witness that is used again before the log is durable.
TEST(LongLife, PowerCutsLoseNothingAfterManyTransactions) {
  const TempDirectory top;
  const std::string directory = top.path() + "/state";
  for (int call = 150; call < 3500; call += 197) {
    SCOPED_TRACE(absl::StrCat("call ", call));
    std::filesystem::remove_all(directory);
    Acknowledged told;
    {
      FaultyDisk disk(Fault::kPowerCut, call);
      told = RunTwoLives(directory, kManyJobs);
      disk.LosePower();
    }
    ExpectKept(directory, told, kManyJobs);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryCall,
                         ::testing::Values(Sweep{"Error", Fault::kError},
                                           Sweep{"Full", Fault::kFull},
                                           Sweep{"Short", Fault::kShort},
                                           Sweep{"Death", Fault::kDeath},
                                           Sweep{"PowerCut", Fault::kPowerCut}),
                         [](const auto& sweep) { return std::string(sweep.param.name); });

}  // namespace
}  // namespace trainyard::controller
