// Makes sure that only one process owns a state directory. The kernel releases the lock when the
// process dies, for whatever reason.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace trainyard::controller {

class StateLock {
 public:
  // Makes the directory if it is missing. FAILED_PRECONDITION: another process owns the directory;
  // the message names the process.
  static absl::StatusOr<StateLock> Take(const std::string& directory);

 private:
  explicit StateLock(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;
};

}  // namespace trainyard::controller
