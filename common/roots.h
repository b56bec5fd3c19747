// Where the paths of a job may lie. A path is opened below one of the roots, and nothing on the way
// (a symbolic link, a
// "..") may lead out of it: openat2(2) with RESOLVE_BENEATH.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }  // The caller owns it now.

 private:
  int fd_ = -1;
};

// Whether `path` may lie below `root`, by its spelling alone: any relative one may. What links make
// of it, only the machine knows that has it.
bool MayLieBelow(const std::string& path, const std::string& root);

// The roots below which lies what lies below a root of `a` as well as below one of `b`, by their
// spelling.
std::vector<std::string> CommonRoots(const std::vector<std::string>& a,
                                     const std::vector<std::string>& b);

// Immutable, thread-safe.
class Roots {
 public:
  Roots() = default;  // Anywhere: paths are what the file system makes of them.
  explicit Roots(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  // Opens a regular file for reading. An absolute path must lie below a root; a relative one is
  // looked for below each root in turn. Errors name the path: NOT_FOUND, PERMISSION_DENIED where it
  // leads out of the roots, INVALID_ARGUMENT for what is not a regular file.
  absl::StatusOr<FileDescriptor> OpenFile(const std::string& path) const;

  // The canonical path of a directory, made with its parents where it is missing; a relative path
  // that exists nowhere is made below the first root. Errors as above.
  absl::StatusOr<std::string> MakeDirectory(const std::string& path) const;

  // The canonical path of an existing directory. Errors as above.
  absl::StatusOr<std::string> FindDirectory(const std::string& path) const;

 private:
  std::vector<std::string> roots_;
};

// A regular file read at offsets. Thread-safe.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path, const Roots& roots = Roots());

  // Exactly `bytes`. DATA_LOSS where the file ends before.
  absl::Status ReadAt(uint64_t offset, void* out, size_t bytes) const;
  uint64_t size() const { return size_; }  // When it was opened.
  const std::string& path() const { return path_; }

 private:
  FileDescriptor fd_;
  uint64_t size_ = 0;
  std::string path_;
};

}  // namespace trainyard
