// Owns a file descriptor, and closes it.

#pragma once

#include <unistd.h>

#include <utility>

namespace trainyard {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}  // -1: none.
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    const FileDescriptor old(std::exchange(fd_, other.Release()));
    return *this;
  }
  ~FileDescriptor() {
    if (valid()) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }  // The caller then owns it.

 private:
  int fd_;
};

}  // namespace trainyard
