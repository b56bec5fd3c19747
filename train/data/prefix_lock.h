// Makes sure that only one process writes the dataset of a prefix.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace trainyard {

// Holds PREFIX.lock, and removes it at the end. The kernel releases the lock when the process dies,
// for whatever reason; the file may then stay, which does no harm.
class PrefixLock {
 public:
  // The directory must be there. FAILED_PRECONDITION: another holds the lock.
  static absl::StatusOr<PrefixLock> Take(const std::string& prefix);

  PrefixLock(PrefixLock&& other) noexcept
      : prefix_(std::move(other.prefix_)), fd_(std::exchange(other.fd_, -1)) {}
  PrefixLock& operator=(PrefixLock&& other) noexcept {
    std::swap(prefix_, other.prefix_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~PrefixLock();

  const std::string& prefix() const { return prefix_; }

 private:
  PrefixLock(std::string prefix, int fd) : prefix_(std::move(prefix)), fd_(fd) {}

  std::string prefix_;
  int fd_;
};

}  // namespace trainyard
