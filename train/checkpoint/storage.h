// The calls by which a checkpoint changes the file system, as an interface. So a test can make each
// call fail, or make it the last one before a power cut.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard {

class OutputFile {
 public:
  virtual ~OutputFile() = default;  // Closes the file.
  virtual absl::Status Append(const void* data, size_t bytes) = 0;
  virtual absl::Status Sync() = 0;  // The appended data survive a power cut, once the name does.
};

// Errors name the path. Thread-safe.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path) = 0;  // Truncates an existing file.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> OpenAppend(
      const std::string& path) = 0;  // Makes a missing file.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // ALREADY_EXISTS: `to` exists, and nothing was changed.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(
      const std::string& path) = 0;  // A file or an empty directory; OK if nothing is there.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;  // One level; OK if it exists.
  // Names made or removed in the directory survive a power cut after this.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
};

Storage& LocalStorage();

}  // namespace trainyard
