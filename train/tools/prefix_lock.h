// Makes sure that only one process writes the dataset of a prefix.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace trainyard {

// Holds PREFIX.lock, and removes it at the end. The kernel releases the lock when the process dies,
// for whatever reason; the file may then stay, which does no harm.
class PrefixLock {
 public:
  // The directory must be there. FAILED_PRECONDITION: another holds the lock.
  static absl::StatusOr<PrefixLock> Take(const std::string& prefix);

  PrefixLock(PrefixLock&&) = default;
  PrefixLock& operator=(PrefixLock&& other) noexcept {
    std::swap(prefix_, other.prefix_);
    std::swap(file_, other.file_);
    return *this;
  }
  ~PrefixLock();

  const std::string& prefix() const { return prefix_; }

 private:
  PrefixLock(std::string prefix, FileDescriptor file)
      : prefix_(std::move(prefix)), file_(std::move(file)) {}

  std::string prefix_;
  FileDescriptor file_;
};

}  // namespace trainyard
