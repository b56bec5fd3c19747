// Makes sure that only one process owns a state directory. The kernel releases the lock when the
// process dies, for whatever reason.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace trainyard::controller {

class StateLock {
 public:
  // Makes the directory if it is missing. FAILED_PRECONDITION: another process owns the directory;
  // the message names the process.
  static absl::StatusOr<StateLock> Take(const std::string& directory);

  StateLock(StateLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  StateLock& operator=(StateLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~StateLock();

 private:
  explicit StateLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace trainyard::controller
