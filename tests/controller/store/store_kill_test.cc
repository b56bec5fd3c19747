// Proves that no acknowledged write is lost: a child process writes and acknowledges over a pipe,
// is killed with SIGKILL at a random instant, and every job it acknowledged is there when the store
// is reopened.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/testing/temp_directory.h"

namespace trainyard::controller {
namespace {

// Writes jobs from `first` on, several batches in flight, until it is killed.
[[noreturn]] void WriteForever(const std::string& directory, uint64_t first, int acknowledgements) {
  auto store = SqliteStore::Open(directory);
  if (!store.ok()) ::_exit(1);
  for (uint64_t number = first;; ++number) {
    WriteBatch batch;
    batch.new_jobs.push_back(
        {number, JobState::kQueued, "spec", "{}", "{}", std::string(500, 'b')});
    batch.new_requests.push_back({absl::StrCat("request-", number), number});
    batch.audit.push_back({.target = absl::StrCat(number)});
    (*store)->Write(std::move(batch), OnFailure::kReport, [=](const absl::Status& status) {
      if (!status.ok()) ::_exit(2);
      [[maybe_unused]] const ssize_t n = ::write(acknowledgements, &number, sizeof(number));
    });
    if (number % 8 == 0) ::usleep(100);  // Lets groups of different sizes form.
  }
}

TEST(StoreKill, LosesNoAcknowledgedWrite) {
  const TempDirectory directory;
  constexpr uint32_t kSeed = 20261121;
  std::mt19937 random(kSeed);
  std::vector<uint64_t> acknowledged;
  uint64_t next = 1;
  for (int round = 0; round < 30; ++round) {
    std::array<int, 2> ends;
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteForever(directory.path(), next, ends[1]);
    ::close(ends[1]);
    // Killed after a random number of acknowledgements and a random moment on top.
    const uint64_t wanted = 1 + random() % 60;
    uint64_t number = 0;
    for (uint64_t i = 0; i < wanted && ::read(ends[0], &number, sizeof(number)) == sizeof(number);
         ++i) {
      acknowledged.push_back(number);
    }
    ::usleep(random() % 2000);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    while (::read(ends[0], &number, sizeof(number)) == sizeof(number)) {
      acknowledged.push_back(number);
    }
    ::close(ends[0]);

    const auto store = SqliteStore::Open(directory.path());
    ASSERT_TRUE(store.ok()) << store.status();
    next = (*store)->NewestJob().value() + 1;
    for (const uint64_t n : acknowledged) {
      ASSERT_TRUE((*store)->GetJob(n).ok()) << "lost job " << n << " in round " << round;
      ASSERT_EQ((*store)->FindRequest(absl::StrCat("request-", n)).value_or(0), n);
    }
    // Each job's entry is in its place in the audit log, and the chain is whole.
    std::string previous;
    const std::vector<AuditEntry> entries = (*store)->ReadAudit(0, 1'000'000).value();
    for (const AuditEntry& entry : entries) {
      ASSERT_EQ(absl::StrCat(entry.number), entry.target) << "in round " << round;
      ASSERT_EQ(entry.hash, ChainedHash(previous, entry));
      previous = entry.hash;
    }
    ASSERT_EQ((*store)->NewestAudit().value(), next - 1);
  }
  EXPECT_GT(acknowledged.size(), 500u);
}

}  // namespace
}  // namespace trainyard::controller
