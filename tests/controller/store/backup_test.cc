// Proves that a backup of a store in use is whole, that a damaged one is neither made nor restored,
// that going back keeps the old files and raises what must not go back, and that a fault at any
// call of either leaves a store that opens or is refused, and a second try works.

#include "controller/store/backup.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "controller/jobs/job_codec.h"
#include "controller/jobs/job_id.h"
#include "controller/store/backup_keeper.h"
#include "controller/store/store_files.h"
#include "tests/controller/store/faulty_disk.h"
#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'795'374'000);

class BackupTest : public ClusterFixture {
 protected:
  const std::string& state() const { return directory_.path(); }
  absl::StatusOr<std::string> Make(absl::Time now = kNow) {
    return BackUp(state(), backups_, now, [] { return false; });
  }
  std::vector<std::string> Kept() const { return Backups(backups_, absl::InfiniteFuture()); }
  static void Flip(const std::string& path, size_t at) {
    std::string bytes = *ReadFile(path);
    bytes[at] ^= 1;
    std::ofstream(path, std::ios::binary) << bytes;
  }
  const TempDirectory top_;
  const std::string backups_ = top_.path() + "/backups";
};

TEST_F(BackupTest, MadeWhileJobsAreSubmittedHoldsAllThatWasAcknowledgedBefore) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(TrySubmit(MakeSpec(1), absl::StrCat("r", i)).ok());
  std::atomic<bool> stop = false;
  std::thread submitter([&] {
    while (!stop) EXPECT_TRUE(TrySubmit(MakeSpec(1), "").ok());
  });
  const auto backup = Make();
  stop = true;
  submitter.join();
  ASSERT_TRUE(backup.ok()) << backup.status();
  EXPECT_THAT(*backup, ::testing::EndsWith("/store-20261122T190000Z.db"));
  EXPECT_THAT(*ListDirectory(backups_), SizeIs(1));
  auto database = Database::Open(*backup);
  EXPECT_TRUE(VerifyStore(*database, *backup).ok());
  EXPECT_EQ(database->QueryInt("SELECT count(*) FROM requests").value(), 50);
}

TEST_F(BackupTest, OnlyTheNewestAreKept) {
  for (size_t i = 0; i < kBackupsKept + 3; ++i) {
    ASSERT_TRUE(Make(kNow + absl::Minutes(i)).ok());
  }
  const auto kept = Kept();
  ASSERT_THAT(kept, SizeIs(kBackupsKept));
  EXPECT_EQ(BackupTime(kept.front()), kNow + absl::Minutes(3));
}

// Catches new backups that are removed as they are made, after a clock that was ahead for a while.
TEST_F(BackupTest, ThoseOfAClockThatWasAheadAreTheFirstToGo) {
  const absl::Time ahead = kNow + absl::Hours(24 * 365);
  for (size_t i = 0; i < kBackupsKept; ++i) {
    ASSERT_TRUE(Make(ahead + absl::Minutes(i)).ok());
  }
  for (size_t i = 1; i <= 2; ++i) {
    const absl::Time now = kNow + absl::Minutes(i);
    const auto made = Make(now);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(Exists(*made));
    const std::vector<std::string> kept = Backups(backups_, now);
    ASSERT_THAT(kept, SizeIs(kBackupsKept));
    EXPECT_EQ(kept.back(), *made);
    EXPECT_EQ(BackupTime(kept.front()), ahead + absl::Minutes(i));
    EXPECT_THAT(WithNewestBackup(absl::DataLossError("damaged"), backups_, now).message(),
                HasSubstr(*made));
  }
}

TEST_F(BackupTest, ADamagedStoreIsNotBackedUp) {
  ASSERT_TRUE(TrySubmit(MakeSpec(1), "r").ok());
  auto database = Database::Open(state() + "/store.db");
  ASSERT_TRUE(database->Execute("UPDATE jobs SET body = '{}'").ok());
  EXPECT_TRUE(absl::IsDataLoss(Make().status()));
  EXPECT_THAT(*ListDirectory(backups_), SizeIs(0));
}

TEST_F(BackupTest, ADamagedStoreGoesBackToABackup) {
  const std::string id = (*TrySubmit(MakeSpec(1), "r"))->id;
  const std::string backup = *Make();
  const std::string later = (*TrySubmit(MakeSpec(1), "later"))->id;
  const uint64_t generation = store_->generation();
  EXPECT_TRUE(absl::IsFailedPrecondition(RestoreStore(state(), backup, kNow).status()));
  const std::string log = *ReadFile(state() + "/store.db-wal");
  StopController();
  std::ofstream(state() + "/store.db-wal", std::ios::binary) << log;  // As a kill leaves it.
  Flip(state() + "/store.db", 16);
  const StoreRecovery recovery = {.accept_loss = false, .backup_directory = backups_};
  const absl::Status refused = SqliteStore::Open(state(), {}, recovery).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the newest backup is " + backup));
  const std::string damaged = *ReadFile(state() + "/store.db");

  const auto aside = RestoreStore(state(), backup, kNow);
  ASSERT_TRUE(aside.ok()) << aside.status();
  EXPECT_EQ(*ReadFile(*aside + "/store.db"), damaged) << "nothing is deleted";
  EXPECT_EQ(*ReadFile(*aside + "/store.db-wal"), log);
  EXPECT_FALSE(Exists(state() + "/store.db-wal")) << "another database's log";
  StartController();
  EXPECT_TRUE(absl::IsNotFound(book_->Get(later).status()));
  const Snapshot job = *book_->Get(id);
  EXPECT_EQ(job->epoch, 217'537'200u) << "seconds since 2020";
  EXPECT_GT(store_->generation(), generation);
  EXPECT_EQ((*TrySubmit(MakeSpec(1), "r"))->id, id);
  RestartController();
  EXPECT_EQ((*book_->Get(id))->epoch, 217'537'200u) << "raised once";

  // Once more to the same backup: above what the first time gave out.
  StopController();
  ASSERT_TRUE(RestoreStore(state(), backup, kNow + absl::Seconds(9)).ok());
  StartController();
  EXPECT_EQ((*book_->Get(id))->epoch, 217'537'209u);
}

// Bug it must catch: a restore after 2156 made revisions begin again with 0.
TEST_F(BackupTest, RevisionsGrowWhateverTheClockSays) {
  const std::string id = (*TrySubmit(MakeSpec(1), "r"))->id;
  const std::string backup = *Make();
  for (const int year : {1970, 2026, 2087, 2200}) {
    const uint64_t revision = (*book_->Get(id))->revision;
    StopController();
    const absl::Time now = absl::FromCivil(absl::CivilYear(year), absl::UTCTimeZone());
    ASSERT_TRUE(RestoreStore(state(), backup, now).ok()) << year;
    StartController();
    const Snapshot job = *book_->Get(id);
    EXPECT_LT(job->revision, uint64_t{1} << 63) << year;
    if (year > 1970) {
      EXPECT_GT(job->revision, revision) << year;
    }
  }
}

TEST_F(BackupTest, ADamagedBackupIsRefusedAndNothingIsMoved) {
  ASSERT_TRUE(TrySubmit(MakeSpec(1), "r").ok());
  const std::string backup = *Make();
  StopController();
  const std::string store = *ReadFile(state() + "/store.db");
  for (size_t at = 8; at < store.size(); at += 2777) {
    SCOPED_TRACE(absl::StrCat("byte ", at));
    Flip(backup, at);
    EXPECT_FALSE(RestoreStore(state(), backup, kNow).ok());
    Flip(backup, at);
  }
  EXPECT_EQ(*ReadFile(state() + "/store.db"), store);
  EXPECT_FALSE(RestoreStore(state(), backups_ + "/absent", kNow).ok());
  StartController();
}

TEST_F(BackupTest, TheKeeperMakesTheFirstAtOnceAndTellsOfFailures) {
  const auto run = [&](const std::string& directory) {
    std::promise<absl::Status> first;
    std::atomic<bool> told = false;
    BackupKeeper keeper(clock_, {state(), directory, absl::Hours(1)}, [&](const absl::Status& s) {
      if (!told.exchange(true)) first.set_value(s);
    });
    return first.get_future().get();
  };
  EXPECT_TRUE(run(backups_).ok());
  EXPECT_FALSE(run(state() + "/store.db/no-directory").ok());
  EXPECT_THAT(Kept(), SizeIs(1));
}

// Catches a controller that restarts more often than it backs up, after a clock that was ahead.
TEST_F(BackupTest, TheKeeperDoesNotCountFromABackupOfTheFuture) {
  ASSERT_TRUE(Make(clock_.Now() + absl::Hours(1)).ok());
  std::promise<absl::Status> first;
  std::atomic<bool> told = false;
  const BackupKeeper keeper(clock_, {state(), backups_, absl::Hours(1)},
                            [&](const absl::Status& s) {
                              if (!told.exchange(true)) first.set_value(s);
                            });
  EXPECT_TRUE(first.get_future().get().ok());
}

// Catches a controller that dies again and again, and each time replaces its oldest backup.
TEST_F(BackupTest, TheKeeperCountsFromTheNewestOfThoseThatAreThere) {
  for (const absl::Duration age : {absl::Hours(25), absl::Minutes(1)}) {
    ASSERT_TRUE(Make(clock_.Now() - age).ok());
  }
  std::atomic<bool> told = false;
  {
    const BackupKeeper keeper(clock_, {state(), backups_, absl::Hours(1)},
                              [&](const absl::Status&) { told = true; });
    for (int i = 0; i < 5; ++i) {  // Meanwhile it would make one, too.
      const auto other =
          BackUp(state(), top_.path() + "/others", kNow + absl::Seconds(i), [] { return false; });
      ASSERT_TRUE(other.ok()) << other.status();
    }
  }
  EXPECT_FALSE(told);
  EXPECT_THAT(Kept(), SizeIs(2));
}

struct Sweep {
  const char* name;
  Fault fault;
};
void PrintTo(const Sweep& sweep, std::ostream* out) { *out << sweep.name; }

class BackupFaults : public BackupTest, public ::testing::WithParamInterface<Sweep> {};

TEST_P(BackupFaults, ABackupIsWholeOrNotThere) {
  ASSERT_TRUE(TrySubmit(MakeSpec(1), "r").ok());
  int call = 0;
  for (bool hit = true; hit;) {
    SCOPED_TRACE(absl::StrCat("call ", ++call));
    absl::Status status;
    {
      FaultyDisk disk(GetParam().fault, call);
      status = Make(kNow + absl::Seconds(call)).status();
      hit = disk.hit();
    }
    EXPECT_TRUE(hit || status.ok()) << status;
    const FaultyDisk sound(Fault::kNone, 0);
    for (const std::string& backup : Kept()) {
      auto database = Database::Open(backup);
      ASSERT_TRUE(VerifyStore(*database, backup).ok());
    }
    ASSERT_TRUE(Make(kNow).ok());
  }
  EXPECT_GT(call, 10);
}

TEST_P(BackupFaults, AnInterruptedRestoreIsRepeated) {
  const std::string id = (*TrySubmit(MakeSpec(1), "r"))->id;
  const std::string backup = *Make();
  ASSERT_TRUE(TrySubmit(MakeSpec(1), "later").ok());
  StopController();
  int call = 0;
  for (bool hit = true; hit;) {
    SCOPED_TRACE(absl::StrCat("call ", ++call));
    absl::Status status;
    {
      FaultyDisk disk(GetParam().fault, call);
      status = RestoreStore(state(), backup, kNow + absl::Seconds(call)).status();
      hit = disk.hit();
    }
    EXPECT_TRUE(hit || status.ok()) << status;
    const FaultyDisk sound(Fault::kNone, 0);
    // The store of before, the restored one, or a refusal; never an empty store.
    auto opened = SqliteStore::Open(state());
    EXPECT_TRUE(opened.ok() || absl::IsDataLoss(opened.status())) << opened.status();
    EXPECT_TRUE(!opened.ok() || (*opened)->GetJob(*JobNumber(id)).ok());
    opened = absl::UnknownError("closed");
    if (!status.ok()) {
      ASSERT_TRUE(RestoreStore(state(), backup, kNow + absl::Seconds(call)).ok());
    }
    StartController();
    ASSERT_TRUE(book_->Get(id).ok());
    ASSERT_TRUE(TrySubmit(MakeSpec(1), "later").ok());
    StopController();
  }
  EXPECT_GT(call, 10);
}

INSTANTIATE_TEST_SUITE_P(Faults, BackupFaults,
                         ::testing::Values(Sweep{"Error", Fault::kError},
                                           Sweep{"Full", Fault::kFull},
                                           Sweep{"Short", Fault::kShort},
                                           Sweep{"Death", Fault::kDeath}),
                         [](const auto& sweep) { return std::string(sweep.param.name); });

}  // namespace
}  // namespace trainyard::controller
