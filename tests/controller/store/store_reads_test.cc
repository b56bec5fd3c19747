// Proves that a store whose files cannot be read for a moment is neither served in part nor taken
// for damaged, missing or new: the start is refused, nothing is changed, and the next start has
// everything. Damage that comes on top is found or repaired all the same. Later reads, of the
// audit's records too, give all or say that they cannot.

#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/testing/temp_directory.h"
#include "tests/testing/read_faults.h"

namespace trainyard::controller {
namespace {

constexpr uint64_t kJobs = 60;
constexpr const char* kFiles[] = {"/store.db", "/store.db-wal", "/store.db-shm", "/witness"};
constexpr ReadFault kFaults[] = {ReadFault::kEio, ReadFault::kEmfile, ReadFault::kEacces,
                                 ReadFault::kEnoent, ReadFault::kShort};

using Files = std::map<std::string, std::string>;

class StoreReadsTest : public ::testing::Test {
 protected:
  StoreReadsTest() {
    auto store = *SqliteStore::Open(directory_);
    for (uint64_t number = 1; number <= kJobs; ++number) {
      WriteBatch batch;
      batch.new_jobs.push_back(
          {number, JobState::kRunning, "spec", "{}", "{}", std::string(900, 'b')});
      batch.new_requests.push_back({absl::StrCat("request-", number), number});
      batch.audit.push_back(
          {.caller = "ada", .method = "Submit", .message = std::string(200, 'm')});
      std::promise<absl::Status> done;
      (void)store->Write(std::move(batch), OnFailure::kReport,
                         [&](const absl::Status& status) { done.set_value(status); });
      EXPECT_TRUE(done.get_future().get().ok());
    }
    killed_ = ReadFiles();
    store.reset();
    closed_ = ReadFiles();
  }

  // But the lock, and what SQLite makes anew at each start.
  Files ReadFiles() {
    Files files;
    const std::vector<std::string> names = *ListDirectory(directory_);
    for (const std::string& name : names) {
      std::string bytes = *ReadFile(directory_ + "/" + name);
      const bool made_by_opening = name == "store.db-wal" && bytes.empty();
      if (name != "lock" && name != "store.db-shm" && !made_by_opening) {
        files[name] = std::move(bytes);
      }
    }
    return files;
  }

  void WriteFiles(const Files& files) {
    ASSERT_TRUE(RemoveTree(directory_).ok());
    ASSERT_TRUE(MakeDirectories(directory_).ok());
    for (const auto& [name, bytes] : files) {
      std::ofstream(directory_ + "/" + name, std::ios::binary) << bytes;
    }
  }

  static void ExpectAll(SqliteStore& store) {
    EXPECT_EQ(store.LiveJobs()->size(), kJobs);
    EXPECT_EQ(*store.NewestJob(), kJobs);
    EXPECT_EQ(store.ReadAudit(0, 1000)->size(), kJobs);
    for (uint64_t number = 1; number <= kJobs; ++number) {
      EXPECT_EQ(*store.FindRequest(absl::StrCat("request-", number)), number);
    }
  }

  // All, or an error.
  static void ExpectAllOrNone(SqliteStore& store) {
    const auto jobs = store.LiveJobs();
    const auto newest = store.NewestJob();
    const auto request = store.FindRequest("request-7");
    const auto audit = store.ReadAudit(0, 1000);
    const auto newest_audit = store.NewestAudit();
    EXPECT_TRUE(!jobs.ok() || jobs->size() == kJobs) << jobs->size();
    EXPECT_TRUE(!newest.ok() || *newest == kJobs) << *newest;
    EXPECT_TRUE(request.ok() ? *request == 7 : !absl::IsNotFound(request.status()));
    EXPECT_TRUE(!audit.ok() || audit->size() == kJobs) << audit->size();
    EXPECT_TRUE(!newest_audit.ok() || *newest_audit == kJobs) << *newest_audit;
  }

  const TempDirectory top_;
  const std::string directory_ = top_.path() + "/state";
  Files killed_, closed_;  // As a kill leaves them, and a proper end.
};

TEST_F(StoreReadsTest, AStartThatCannotReadIsRefusedAndChangesNothing) {
  int refused = 0;
  for (const Files& files : {killed_, closed_}) {
    for (const char* file : kFiles) {
      for (const ReadFault fault : kFaults) {
        for (const int times : {1, 100}) {
          SCOPED_TRACE(absl::StrCat(file, " with fault ", int(fault), " ", times, " times, ",
                                    &files == &killed_ ? "killed" : "closed"));
          WriteFiles(files);
          bool served = false;
          {
            const FaultyReads faulty(fault, file, times);
            const auto store = SqliteStore::Open(directory_);
            served = store.ok();
            if (served) {
              ExpectAllOrNone(**store);
            } else {
              EXPECT_FALSE(absl::IsDataLoss(store.status())) << store.status();
            }
          }
          refused += !served;
          // A fault that goes away may let the start get as far as the first writes.
          EXPECT_TRUE(served || times == 1 || ReadFiles() == files) << "a refusal changed a file";
          const auto store = SqliteStore::Open(directory_);
          ASSERT_TRUE(store.ok()) << store.status();
          ExpectAll(**store);
        }
      }
    }
  }
  EXPECT_GT(refused, 20);
}

TEST_F(StoreReadsTest, FaultsAndDamageTogetherLoseNothingUnnamed) {
  std::mt19937 random(43);
  const auto below = [&](size_t count) { return size_t(random() % count); };
  int refused = 0, served = 0;
  for (int round = 0; round < 60; ++round) {
    Files files = below(2) == 0 ? killed_ : closed_;
    std::string what;
    std::vector<std::unique_ptr<FaultyReads>> faulty;
    std::string& damaged = std::next(files.begin(), long(below(files.size())))->second;
    const size_t kind = below(3);
    const size_t at = below(damaged.size());
    if (kind == 1) damaged[at] = char(damaged[at] ^ (1 << below(8)));
    if (kind == 2) damaged.resize(at);
    absl::StrAppend(&what, "damage ", kind, " at ", at);
    WriteFiles(files);
    for (int i = 0; i < 2; ++i) {
      const char* file = kFiles[below(std::size(kFiles))];
      const size_t fault = below(std::size(kFaults));
      absl::StrAppend(&what, "; ", file, " with fault ", fault);
      faulty.push_back(std::make_unique<FaultyReads>(kFaults[fault], file, 1 + int(below(2))));
    }
    SCOPED_TRACE(what);
    (void)SqliteStore::Open(directory_);
    faulty.clear();
    const auto store = SqliteStore::Open(directory_);
    if (!store.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(store.status()) || absl::IsFailedPrecondition(store.status()))
          << store.status();
      ++refused;
    } else if ((*store)->damaged_pages() == 0) {
      ExpectAll(**store);
      ++served;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(served, 0);
}

// Bug it must catch: an auditor sees fewer records than there are.
TEST_F(StoreReadsTest, LaterReadsGiveAllOrAnError) {
  int failed = 0;
  for (const char* file : {"/store.db", "/store.db-wal"}) {
    for (const ReadFault fault : {ReadFault::kEio, ReadFault::kShort}) {
      SCOPED_TRACE(absl::StrCat(file, " with fault ", int(fault)));
      WriteFiles(killed_);
      auto store = *SqliteStore::Open(directory_);
      {
        const FaultyReads faulty(fault, file);
        failed += !store->ReadAudit(0, 1000).ok();
        ExpectAllOrNone(*store);
      }
      ExpectAll(*store);
    }
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace trainyard::controller
