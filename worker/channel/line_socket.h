// A non-blocking stream socket that carries lines, and Unix sockets at paths of any length. Shared
// by both ends of the channel.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::channel {

// Owns a file descriptor. Move-only.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }

 private:
  int Release();
  int fd_;
};

// Both non-blocking and closed on exec. Errors name the path. Listening replaces a file left there
// by a dead listener.
absl::StatusOr<Fd> ListenUnix(const std::string& path);
absl::StatusOr<Fd> ConnectUnix(const std::string& path);

// Wakes a thread that polls get(): for handing it work from others.
class Wakeup {
 public:
  Wakeup();
  int get() const { return fd_.get(); }
  void Signal();
  void Clear();

 private:
  Fd fd_;
};

// Not thread-safe.
class LineSocket {
 public:
  explicit LineSocket(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  bool wants_write() const { return !outgoing_.empty(); }
  size_t outgoing_bytes() const { return outgoing_.size(); }
  void Queue(absl::string_view line);

  // Appends the whole lines that have arrived. UNAVAILABLE when the peer is gone,
  // RESOURCE_EXHAUSTED beyond kMaxLineBytes without a line break.
  absl::Status Read(std::vector<std::string>& lines);
  // Writes what the socket takes now. UNAVAILABLE when the peer is gone.
  absl::Status Write();

 private:
  Fd fd_;
  std::string incoming_, outgoing_;
};

}  // namespace trainyard::channel
