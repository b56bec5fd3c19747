// The daemon's directory: its lock, and the worker's name, which stays the same over restarts.
// Other users of the machine may pass through, as the ranks' user does, and see no names.

#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

// Of the daemon and its supervisors, whose files have the secrets and the logs of jobs.
inline constexpr mode_t kPrivateUmask = 077;

// 128 random bits in hexadecimal.
std::string RandomId();

class StateDirectory {
 public:
  // Makes the directory where it is missing. FAILED_PRECONDITION when another daemon holds it.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Open(const std::string& path);
  ~StateDirectory();  // Lets the lock go.
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  const std::string& path() const { return path_; }  // Absolute.
  const std::string& worker_id() const { return worker_id_; }

 private:
  StateDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;
  std::string worker_id_;
};

}  // namespace trainyard
