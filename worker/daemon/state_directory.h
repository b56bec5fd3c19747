// The daemon's directory. It holds a lock and the worker's id, which stays the same over restarts.
// Other users of the machine, such as the ranks' user, may pass through the directory but cannot
// list it.

#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace trainyard {

// The umask of the daemon and its supervisors, whose files contain secrets and logs of jobs.
inline constexpr mode_t kPrivateUmask = 077;

// Returns 128 random bits in hexadecimal.
std::string RandomId();

class StateDirectory {
 public:
  // Makes the directory if it is missing. FAILED_PRECONDITION: another daemon holds it.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Open(const std::string& path);
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  const std::string& path() const { return path_; }  // Absolute.
  const std::string& worker_id() const { return worker_id_; }

 private:
  StateDirectory(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const FileDescriptor lock_;
  std::string worker_id_;
};

}  // namespace trainyard
