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

  // Whether a process has owned the directory before.
  bool taken_before() const { return taken_before_; }

  StateLock(StateLock&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), taken_before_(other.taken_before_) {}
  StateLock& operator=(StateLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(taken_before_, other.taken_before_);
    return *this;
  }
  ~StateLock();

 private:
  explicit StateLock(int fd) : fd_(fd) {}
  int fd_;
  bool taken_before_ = false;
};

}  // namespace trainyard::controller
