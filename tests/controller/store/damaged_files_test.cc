// Proves that damage of the store's files is found at the start, wherever it is: three flipped
// bytes anywhere in the database, a log or a database that was cut short, removed or replaced, a
// damaged witness. Rows that are damaged are named and the rest is served; everything else is
// refused, and a refusal changes no file.

#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "controller/jobs/job_id.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kJobs = 300;

const StoreRecovery kAcceptLoss = {.accept_loss = true, .backup_directory = ""};

std::string BodyOf(uint64_t number) { return absl::StrCat("body ", number, std::string(900, 'b')); }

WriteBatch NewJob(uint64_t number) {
  WriteBatch batch;
  batch.new_jobs.push_back({number, number % 3 == 0 ? JobState::kFailed : JobState::kRunning,
                            "spec", "{}", "{}", BodyOf(number)});
  batch.new_requests.push_back({absl::StrCat("request-", number), number});
  batch.events.push_back({number, {absl::UnixEpoch(), EventType::kSubmitted, 0, "queued"}});
  JobStep step;
  step.step = 1;
  step.complete = true;
  batch.steps.push_back({number, step});
  return batch;
}

absl::Status Put(Store& store, WriteBatch batch) {
  std::promise<absl::Status> done;
  (void)store.Write(std::move(batch), OnFailure::kReport,
                    [&](const absl::Status& status) { done.set_value(status); });
  return done.get_future().get();
}

using Files = std::map<std::string, std::string>;

Files ReadFiles(const std::string& directory) {
  Files files;
  const auto names = ListDirectory(directory);
  CHECK(names.ok()) << names.status();
  for (const std::string& name : *names) {
    std::string bytes = *ReadFile(directory + "/" + name);
    const bool made_by_opening = name == "store.db-wal" && bytes.empty();
    if (name != "lock" && name != "store.db-shm" && !made_by_opening) {
      files[name] = std::move(bytes);
    }
  }
  return files;
}

void WriteFiles(const std::string& directory, const Files& files) {
  ASSERT_TRUE(RemoveTree(directory).ok());
  ASSERT_TRUE(MakeDirectories(directory).ok());
  for (const auto& [name, bytes] : files) {
    std::ofstream(directory + "/" + name, std::ios::binary) << bytes;
  }
}

class DamagedFilesTest : public ::testing::Test {
 protected:
  // With jobs 1 to `jobs`, each in a transaction of its own; closed, or as a kill leaves it.
  Files MakeStore(uint64_t jobs, bool killed) {
    auto store = SqliteStore::Open(directory_);
    EXPECT_TRUE(store.ok()) << store.status();
    for (uint64_t number = 1; number <= jobs; ++number) {
      EXPECT_TRUE(Put(**store, NewJob(number)).ok());
    }
    const Files killed_files = ReadFiles(directory_);
    store->reset();
    return killed ? killed_files : ReadFiles(directory_);
  }

  absl::Status OpenStatus(const StoreRecovery& recovery = {}) {
    return SqliteStore::Open(directory_, {}, recovery).status();
  }

  // Refused with DATA_LOSS, with these words, and every file is as it was.
  void ExpectRefused(const Files& files, const std::string& words) {
    WriteFiles(directory_, files);
    const absl::Status status = OpenStatus();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--restore"));
    EXPECT_TRUE(ReadFiles(directory_) == files) << "a refusal changed a file";
  }

  // What is read is as it was written, or is said to be damaged. Returns how much is damaged.
  int CountDamage(Store& store) {
    int damaged = 0;
    for (uint64_t number = 1; number <= kJobs; ++number) {
      const auto job = store.GetJob(number);
      const auto request = store.FindRequest(absl::StrCat("request-", number));
      const auto events = store.ReadEvents(number);
      const auto steps = store.ReadSteps(number, 0, 10);
      EXPECT_TRUE(!job.ok() || job->body == BodyOf(number)) << "served as if it were good";
      EXPECT_TRUE(!request.ok() || *request == number);
      EXPECT_TRUE(!events.ok() || (events->size() == 1 && events->at(0).message == "queued"));
      EXPECT_TRUE(!steps.ok() || (steps->size() == 1 && steps->at(0).step == 1));
      for (const absl::Status& status :
           {job.status(), request.status(), events.status(), steps.status()}) {
        EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
        damaged += !status.ok();
      }
    }
    return damaged;
  }

  const TempDirectory top_;
  const std::string directory_ = top_.path() + "/state";
};

// Each round is a store of its own with three flipped bytes.
TEST_F(DamagedFilesTest, ThreeFlippedBytesAnywhereAreFound) {
  const Files whole = MakeStore(kJobs, false);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  constexpr int kRounds = 60;
  int refused = 0, named = 0;
  for (int round = 0; round < kRounds; ++round) {
    Files files = whole;
    std::string& database = files["store.db"];
    std::string where;
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % database.size();
      database[at] = char(database[at] ^ (1 + random() % 255));
      absl::StrAppend(&where, " ", at);
    }
    SCOPED_TRACE("bytes" + where);
    WriteFiles(directory_, files);
    const auto store = SqliteStore::Open(directory_);
    if (!store.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(store.status()) || absl::IsFailedPrecondition(store.status()))
          << store.status();
      ++refused;
      continue;
    }
    CountDamage(**store);
    named += (*store)->damaged_pages() > 0;
  }
  EXPECT_EQ(refused + named, kRounds) << "some damage was not found";
  EXPECT_GT(refused, 0);
  EXPECT_GT(named, 0);
}

TEST_F(DamagedFilesTest, AFlippedByteInARowNamesTheRowAndServesTheRest) {
  Files files = MakeStore(kJobs, false);
  std::string& database = files["store.db"];
  const size_t at = database.find("body 7b");
  ASSERT_NE(at, std::string::npos);
  database[at + 50] ^= 1;
  WriteFiles(directory_, files);
  for (const char* life : {"first", "second"}) {
    SCOPED_TRACE(life);
    const auto store = SqliteStore::Open(directory_);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(CountDamage(**store), 1);
    EXPECT_TRUE(absl::IsDataLoss((*store)->GetJob(7).status()));
    EXPECT_TRUE(Put(**store, NewJob(kJobs + (life[0] == 'f' ? 1 : 2))).ok());
  }
}

TEST_F(DamagedFilesTest, AFlippedByteInAnIndexOrTheHeaderIsRefused) {
  const Files whole = MakeStore(kJobs, false);
  auto database = Database::Open(directory_ + "/store.db");
  for (const std::string index :
       {"jobs_by_state", "jobs_by_namespace", "requests_by_number", "sqlite_schema"}) {
    SCOPED_TRACE(index);
    const auto page = database->QueryInt(
        absl::StrCat("SELECT max(pageno) FROM dbstat WHERE name = '", index, "'").c_str());
    ASSERT_TRUE(page.ok() && *page > 0) << page.status();
    Files files = whole;
    files["store.db"][size_t(*page) * 4096 - 20] ^= 4;
    ExpectRefused(files, "store.db is damaged");
  }
  for (const size_t at : {0, 16, 18, 20, 24, 28, 40, 60, 68, 96}) {
    SCOPED_TRACE(absl::StrCat("header byte ", at));
    Files files = whole;
    files["store.db"][at] ^= 1;
    WriteFiles(directory_, files);
    EXPECT_FALSE(OpenStatus().ok());
  }
}

// What the log lost of the newest transactions is put back; beyond that the loss is told.
TEST_F(DamagedFilesTest, ALogCutShortIsRepairedOrRefused) {
  const Files whole = MakeStore(40, true);
  const size_t bytes = whole.at("store.db-wal").size();
  ASSERT_GT(bytes, 100'000u);
  int repaired = 0, refused = 0;
  for (size_t keep = 0; keep < bytes; keep += 12'000) {
    SCOPED_TRACE(absl::StrCat("cut to ", keep));
    Files files = whole;
    files["store.db-wal"].resize(keep);
    WriteFiles(directory_, files);
    const auto store = SqliteStore::Open(directory_);
    if (store.ok()) {
      ++repaired;
      for (uint64_t number = 1; number <= 40; ++number) {
        ASSERT_TRUE((*store)->GetJob(number).ok()) << "lost job " << number;
      }
    } else {
      ++refused;
      EXPECT_THAT(std::string(store.status().message()),
                  HasSubstr("acknowledged transactions are missing"));
    }
  }
  EXPECT_GT(repaired, 5);
  EXPECT_GT(refused, 5);
}

TEST_F(DamagedFilesTest, AFlippedByteInTheLogIsRepairedOrRefused) {
  const Files whole = MakeStore(40, true);
  const size_t bytes = whole.at("store.db-wal").size();
  for (size_t at = 5; at < bytes; at += 19'919) {
    SCOPED_TRACE(absl::StrCat("byte ", at));
    Files files = whole;
    files["store.db-wal"][at] ^= 1;
    WriteFiles(directory_, files);
    const auto store = SqliteStore::Open(directory_);
    if (!store.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(store.status())) << store.status();
      continue;
    }
    for (uint64_t number = 1; number <= 40; ++number) {
      ASSERT_TRUE((*store)->GetJob(number).ok()) << "lost job " << number;
    }
  }
}

TEST_F(DamagedFilesTest, ALostFileIsRefused) {
  const Files before = MakeStore(5, true);
  ASSERT_TRUE(RemoveTree(directory_).ok());
  const Files after = MakeStore(40, true);
  for (const std::string name : {"store.db", "store.db-wal"}) {
    SCOPED_TRACE("removed " + name);
    Files files = after;
    files.erase(name);
    if (name == "store.db") files["store.db"] = "";  // Opening it makes an empty one.
    WriteFiles(directory_, files);
    EXPECT_TRUE(absl::IsDataLoss(OpenStatus()));
  }
  Files files = before;
  files["witness"] = after.at("witness");
  ExpectRefused(files, "acknowledged transactions are missing");
}

// Bug it must catch: both files were made anew without a word, and 260 jobs were gone.
TEST_F(DamagedFilesTest, AStoreThatIsLostWithItsWitnessIsRefused) {
  Files log = MakeStore(5, true);
  log.erase("store.db");
  log.erase("witness");
  ExpectRefused(log, "`store.db-wal` beside them");
  ASSERT_TRUE(OpenStatus(kAcceptLoss).ok());
  EXPECT_TRUE(Exists(directory_ + "/store.db-wal.lost"));
  EXPECT_TRUE(OpenStatus().ok()) << "asked once";

  for (const std::string name : {"grants", "authority"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(RemoveTree(directory_).ok());
    ASSERT_TRUE(MakeDirectories(directory_ + "/" + name).ok());
    EXPECT_TRUE(OpenStatus().ok()) << "`init` and `token` come before the first start";
    for (const char* file : {"/store.db", "/witness", "/lock"}) {
      ASSERT_TRUE(RemoveTree(directory_ + file).ok());
    }
    const absl::Status refused = OpenStatus();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
    EXPECT_FALSE(Exists(directory_ + "/store.db"));
    EXPECT_TRUE(OpenStatus(kAcceptLoss).ok());
    EXPECT_TRUE(OpenStatus().ok());
  }
}

// A file system that lost its newest changes may leave empty files.
TEST_F(DamagedFilesTest, AStoreThatIsLostToAnEmptyFileIsRefused) {
  const Files whole = MakeStore(5, false);
  Files empty = whole, both = whole;
  empty["store.db"].clear();
  empty.erase("witness");
  both["store.db"].clear();
  both["witness"].clear();
  for (const Files& files : {empty, both}) {
    ExpectRefused(files, "a controller has kept jobs here");
    EXPECT_TRUE(OpenStatus(kAcceptLoss).ok());
    EXPECT_TRUE(OpenStatus().ok()) << "asked once";
  }
}

// Bug it must catch: the disk is full at the first start after `init`, and the next one is refused
// because a controller is said to have kept jobs there.
TEST_F(DamagedFilesTest, AFirstStartThatFailedMayBeRepeated) {
  ASSERT_TRUE(MakeDirectories(directory_ + "/authority").ok());
  ASSERT_TRUE(MakeDirectories(directory_ + "/grants").ok());
  std::ofstream(directory_ + "/lock") << "4711\n";
  EXPECT_TRUE(OpenStatus().ok());
  ASSERT_TRUE(RemoveTree(directory_ + "/store.made").ok());
  EXPECT_TRUE(OpenStatus().ok()) << "earlier releases made no marker";
  EXPECT_TRUE(Exists(directory_ + "/store.made"));
}

TEST_F(DamagedFilesTest, WithoutAWitnessNothingTellsWhatIsMissing) {
  const Files whole = MakeStore(40, false);
  Files gone = whole, damaged = whole;
  gone.erase("witness");
  for (char& c : damaged["witness"]) c ^= 1;
  for (const Files& files : {gone, damaged}) {
    ExpectRefused(files, "witness");
    EXPECT_TRUE(OpenStatus(kAcceptLoss).ok());
    EXPECT_TRUE(OpenStatus().ok()) << "asked once";
  }
}

TEST_F(DamagedFilesTest, AcceptedLossStartsWithWhatThereIs) {
  Files files = MakeStore(40, true);
  files.erase("store.db-wal");
  WriteFiles(directory_, files);
  ASSERT_TRUE(absl::IsDataLoss(OpenStatus()));
  {
    const auto store = SqliteStore::Open(directory_, {}, kAcceptLoss);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->NewestJob().value(), 0u);
    EXPECT_TRUE(Put(**store, NewJob(1)).ok());
  }
  const auto store = SqliteStore::Open(directory_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->GetJob(1).ok());
}

// An older version kept transaction N in slot N modulo 16, and had no more slots.
TEST_F(DamagedFilesTest, AWitnessOfSixteenSlotsIsReadAndGrows) {
  constexpr size_t kSlot = 128 << 10;
  Files files = MakeStore(20, true);
  const std::string now = std::move(files.at("witness"));
  std::string& old = files["witness"] = std::string(16 * kSlot, '\0');
  for (size_t number = 1; number <= 21; ++number) {
    old.replace(number % 16 * kSlot, kSlot, now, number * kSlot, kSlot);
  }
  for (uint64_t jobs = 20; jobs <= 60; jobs += 20) {
    SCOPED_TRACE(absl::StrCat(jobs, " jobs"));
    std::string& log = files.at("store.db-wal");
    log.resize(log.size() - 4000);
    WriteFiles(directory_, files);
    const auto store = SqliteStore::Open(directory_);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE((*store)->GetJob(jobs).ok()) << "lost the newest job";
    for (uint64_t number = jobs + 1; number <= jobs + 20; ++number) {
      ASSERT_TRUE(Put(**store, NewJob(number)).ok());
    }
    files = ReadFiles(directory_);
  }
}

// A transaction that fits no slot: its number alone is witnessed, after the log's own sync.
TEST_F(DamagedFilesTest, ALargeTransactionIsWitnessed) {
  auto store = SqliteStore::Open(directory_);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(Put(**store, NewJob(1)).ok());
  WriteBatch large;
  for (uint64_t number = 2; number <= 400; ++number) {
    large.new_jobs.push_back(std::move(NewJob(number).new_jobs[0]));
  }
  ASSERT_TRUE(Put(**store, std::move(large)).ok());
  Files files = ReadFiles(directory_);
  store->reset();
  WriteFiles(directory_, files);
  EXPECT_TRUE(OpenStatus().ok());
  files["store.db-wal"].resize(files["store.db-wal"].size() - 4000);
  ExpectRefused(files, "1 acknowledged transactions are missing");
}

}  // namespace
}  // namespace trainyard::controller
