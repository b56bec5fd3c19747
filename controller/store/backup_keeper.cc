#include "controller/store/backup_keeper.h"

#include <algorithm>

#include "common/log.h"
#include "controller/store/backup.h"

namespace trainyard::controller {

BackupKeeper::BackupKeeper(const Clock& clock, BackupOptions options,
                           std::function<void(const absl::Status&)> done)
    : clock_(clock),
      options_(std::move(options)),
      done_(std::move(done)),
      thread_([this] { Run(); }) {}

BackupKeeper::~BackupKeeper() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

bool BackupKeeper::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

void BackupKeeper::Run() {
  const absl::Time now = clock_.Now();
  const auto earlier = Backups(options_.backup_directory, now);
  absl::Duration wait;
  if (!earlier.empty() && BackupTime(earlier.back()) <= now) {
    const absl::Duration age = now - BackupTime(earlier.back());
    wait = std::max(options_.every - age, absl::ZeroDuration());
  }
  for (;;) {
    {
      MutexLock lock(mutex_);
      const absl::Duration due = RealClock().Monotonic() + wait;
      while (!stopping_ && changed_.WaitUntil(mutex_, due)) continue;
      if (stopping_) return;
    }
    wait = options_.every;
    const auto path = BackUp(options_.state_directory, options_.backup_directory, clock_.Now(),
                             [this] { return stopping(); });
    if (absl::IsCancelled(path.status())) return;
    if (path.ok()) LogInfo("store_backed_up", {{"backup", *path}});
    if (!path.ok()) LogError("backup_failed", {{"error", path.status().message()}});
    done_(path.status());
  }
}

}  // namespace trainyard::controller
