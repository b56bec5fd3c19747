// The calls by which a checkpoint changes the file system, as an interface, so that a test can let
// each of them fail, or be the last one before a power cut.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard {

class OutputFile {
 public:
  virtual ~OutputFile() = default;  // Closes.
  virtual absl::Status Append(const void* data, size_t bytes) = 0;
  virtual absl::Status Sync() = 0;  // What was appended survives a power cut, once the name does.
};

// Errors name the path. Thread-safe.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path) = 0;  // Truncates.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> OpenAppend(
      const std::string& path) = 0;  // Made where it is missing.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // OK where `to` did not exist; ALREADY_EXISTS, and nothing changed, where it did.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(
      const std::string& path) = 0;  // A file or an empty directory; absent is OK.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;  // One level; existing is OK.
  // Names made or removed in it survive a power cut.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
};

Storage& LocalStorage();

}  // namespace trainyard
