// A non-blocking stream socket that carries lines, and Unix sockets at paths of any length. Both
// ends of the channel use them.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_descriptor.h"

namespace trainyard::channel {

// Both sockets are non-blocking and closed on exec. ListenUnix replaces a file that a dead listener
// has left. Errors name the path.
absl::StatusOr<FileDescriptor> ListenUnix(const std::string& path);
absl::StatusOr<FileDescriptor> ConnectUnix(const std::string& path);

// Wakes a thread that polls get(), so that other threads can hand work to it.
class Wakeup {
 public:
  Wakeup();
  int get() const { return fd_.get(); }
  void Signal();
  void Clear();

 private:
  FileDescriptor fd_;
};

// Not thread-safe.
class LineSocket {
 public:
  explicit LineSocket(FileDescriptor fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  bool wants_write() const { return !outgoing_.empty(); }
  size_t outgoing_bytes() const { return outgoing_.size(); }
  void Queue(absl::string_view line);

  // Appends the whole lines that have arrived. UNAVAILABLE: the peer is gone. RESOURCE_EXHAUSTED:
  // more than kMaxLineBytes have come without a line break.
  absl::Status Read(std::vector<std::string>& lines);
  // Writes as much as the socket takes now. UNAVAILABLE: the peer is gone.
  absl::Status Write();

 private:
  FileDescriptor fd_;
  std::string incoming_, outgoing_;
};

}  // namespace trainyard::channel
