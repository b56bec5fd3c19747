// Makes backups at regular intervals, on a thread of its own.

#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace trainyard::controller {

struct BackupOptions {
  std::string state_directory;
  std::string backup_directory;
  absl::Duration every;
};

class BackupKeeper {
 public:
  // The first is due `every` after the newest in the directory that is not of the future, or at
  // once if there is none. `done` gets each outcome on the keeper's thread. Failures are logged.
  BackupKeeper(const Clock& clock, BackupOptions options,
               std::function<void(const absl::Status&)> done);
  ~BackupKeeper();  // Cancels a backup that is being made.

 private:
  void Run();
  bool stopping() const;

  const Clock& clock_;
  const BackupOptions options_;
  const std::function<void(const absl::Status&)> done_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::controller
