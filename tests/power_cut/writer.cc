// What is recorded for the power cuts: a store that takes jobs, or attempts that save checkpoints.
//
//   power_cut_writer store|checkpoints DIRECTORY
//
// Each promise is marked once it has been made: "job N", "saved EPOCH STEP", and "continues EPOCH
// STEP": what that attempt saved later is not loaded any more.

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/check.h"
#include "controller/store/sqlite_store.h"
#include "tests/train/checkpoint/fixture.h"
#include "train/checkpoint/claim.h"
#include "train/checkpoint/lineage.h"

namespace trainyard {
namespace {

using controller::JobState;
using controller::OnFailure;
using controller::SqliteStore;
using controller::WriteBatch;

void Promised(const std::string& what) {
  static const auto mark =
      reinterpret_cast<void (*)(const char*)>(::dlsym(RTLD_DEFAULT, "RecordMark"));
  CHECK(mark != nullptr) << "wanted recorder.cc preloaded";
  mark(what.c_str());
}

// Twice opened, so that a log is folded into the file and made anew. Some batches share a sync.
void WriteStore(const std::string& directory) {
  uint64_t number = 0;
  for (int round = 0; round < 2; ++round) {
    const auto store = SqliteStore::Open(directory).value();
    for (int batch = 0; batch < 12; ++batch) {
      const uint64_t last = number + 1 + uint64_t(batch % 3);
      absl::Notification done;
      while (number < last) {
        const uint64_t mine = ++number;
        WriteBatch jobs;
        // One is too large for the witness.
        const size_t body = mine == 7 ? 200'000 : mine % 5 == 0 ? 9'000 : 300;
        jobs.new_jobs.push_back(
            {mine, JobState::kQueued, "spec", "{}", "{}", std::string(body, 'b')});
        jobs.new_requests.push_back({absl::StrCat("request-", mine), mine});
        store->Write(std::move(jobs), OnFailure::kReport, [&, mine](const absl::Status& status) {
          CHECK(status.ok()) << status;
          Promised(absl::StrCat("job ", mine));
          if (mine == last) done.Notify();
        });
      }
      done.WaitForNotification();
    }
  }
}

// Three attempts: each goes on from what the one before saved, and the second loses its last step.
void WriteCheckpoints(const std::string& directory) {
  Storage& storage = LocalStorage();
  std::optional<Continued> continued;
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    CHECK(ClaimDirectory(directory, "j-1", epoch, storage).ok());
    CHECK(WriteLineage(directory, epoch, continued, storage).ok());
    if (continued) Promised(absl::StrCat("continues ", continued->epoch, " ", continued->step));
    const int64_t from = continued ? continued->step : 0;
    for (int64_t step = from + 10; step <= from + 40; step += 10) {
      CHECK(testing_checkpoint::Save(directory, epoch, step).ok());
      Promised(absl::StrCat("saved ", epoch, " ", step));
      CHECK(ApplyRetention(directory, {.keep = 2, .epoch = epoch}, storage).ok());
    }
    continued = Continued{epoch, from + 30};
  }
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  CHECK(argc == 3) << "wanted store or checkpoints, and a directory";
  if (std::string(argv[1]) == "store") {
    trainyard::WriteStore(argv[2]);
  } else {
    trainyard::WriteCheckpoints(argv[2]);
  }
  return 0;
}
