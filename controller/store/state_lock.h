// One process owns a state directory. The kernel drops the lock when the process dies, however it
// dies.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace trainyard::controller {

class StateLock {
 public:
  // Makes the directory where it is missing. FAILED_PRECONDITION: another process (named) owns it.
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
