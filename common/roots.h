// Restricts where the paths of a job may lie. A path is opened below one of the roots. Nothing in
// the path, such as a symbolic link or "..", may lead out of the root: openat2(2) with
// RESOLVE_BENEATH.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_descriptor.h"

namespace trainyard {

// Whether `path` may lie below `root`, judged by its spelling alone. Every relative path may. Only
// the machine that has the path knows where links lead.
bool MayLieBelow(const std::string& path, const std::string& root);

// Returns the roots of the paths that lie below a root of `a` and also below a root of `b`, judged
// by their spelling.
std::vector<std::string> CommonRoots(const std::vector<std::string>& a,
                                     const std::vector<std::string>& b);

// Immutable, thread-safe.
class Roots {
 public:
  Roots() = default;  // Allows paths anywhere in the file system.
  explicit Roots(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  // Opens a regular file for reading. An absolute path must lie below a root. A relative path is
  // searched below each root in turn. Errors name the path. NOT_FOUND: there is no such file.
  // PERMISSION_DENIED: the path leads out of the roots. INVALID_ARGUMENT: this is not a regular
  // file.
  absl::StatusOr<FileDescriptor> OpenFile(const std::string& path) const;

  // Returns the canonical path of a directory. Makes the directory and its parents if they are
  // missing; a relative path that exists nowhere is made below the first root. Errors: as above.
  absl::StatusOr<std::string> MakeDirectory(const std::string& path) const;

  // Returns the canonical path of an existing directory. Errors: as above.
  absl::StatusOr<std::string> FindDirectory(const std::string& path) const;

 private:
  std::vector<std::string> roots_;
};

// A regular file that is read at given offsets. Thread-safe.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path, const Roots& roots = Roots());

  // Reads exactly `bytes`. DATA_LOSS: the file ends before.
  absl::Status ReadAt(uint64_t offset, void* out, size_t bytes) const;
  uint64_t size() const { return size_; }  // At the time of opening.
  const std::string& path() const { return path_; }
  // The absolute path, without links, of the file that is open, as the kernel tells it. Of a file
  // that was removed since, it ends in " (deleted)".
  std::string CanonicalPath() const;
  int descriptor() const { return fd_.get(); }
  // When the file was changed last, in nanoseconds of Unix time.
  absl::StatusOr<int64_t> ChangedNanoseconds() const;

 private:
  FileDescriptor fd_;
  uint64_t size_ = 0;
  std::string path_;
};

}  // namespace trainyard
