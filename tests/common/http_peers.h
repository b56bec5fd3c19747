// Peers of a server on this machine: well-behaved ones, and those that say only what a test wants.

#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "tests/testing/process.h"

namespace trainyard::testing {

// How long a test waits for what must come. Far more than it takes, for machines that are busy.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// A connection from any address of this machine, all of 127.0.0.0/8.
class HttpPeer {
 public:
  HttpPeer() : HttpPeer("127.0.0.1", 0) {}  // Not connected yet.
  explicit HttpPeer(int port, const char* from = "127.0.0.1", int receive_buffer_bytes = 0)
      : HttpPeer(from, receive_buffer_bytes) {
    Connect(port);
  }
  void Connect(int port, const char* to = "127.0.0.1") const {
    const sockaddr_in address = Loopback(to, port);
    CHECK(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
        << errno;
  }
  ~HttpPeer() {
    if (fd_ >= 0) ::close(fd_);
  }
  HttpPeer(HttpPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  HttpPeer& operator=(HttpPeer&&) = delete;

  int fd() const { return fd_; }
  void Send(absl::string_view bytes) const {
    (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Everything up to the end of the connection; "timeout" at the end if that does not come.
  std::string ReadAll() const {
    std::string text;
    char bytes[65536];
    for (;;) {
      const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return text + "timeout";
      if (got <= 0) return text;
      text.append(bytes, size_t(got));
    }
  }
  // Whether the server has ended the connection. Throws away what the server has sent.
  bool CutOff() const {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) continue;
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  HttpPeer(const char* from, int receive_buffer_bytes)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    CHECK(fd_ >= 0) << errno;
    if (receive_buffer_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(int));
    }
    const timeval patience = absl::ToTimeval(kPatience);
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const sockaddr_in address = Loopback(from, 0);
    CHECK(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) << errno;
  }
  static sockaddr_in Loopback(const char* host, int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    CHECK(::inet_pton(AF_INET, host, &address.sin_addr) == 1) << host;
    return address;
  }

  int fd_;
};

inline std::vector<HttpPeer> HttpPeers(int count, int port, const char* from) {
  std::vector<HttpPeer> peers;
  peers.reserve(size_t(count));
  for (int i = 0; i < count; ++i) peers.emplace_back(port, from);
  return peers;
}

// The server's whole answer to one request.
inline std::string Answer(int port, absl::string_view request, const char* from = "127.0.0.1") {
  const HttpPeer peer(port, from);
  peer.Send(request);
  return peer.ReadAll();
}

inline std::string Get(int port, absl::string_view target, const char* from = "127.0.0.1") {
  return Answer(port, absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n\r\n"), from);
}

// How many descriptors this process has open.
inline size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return size_t(std::distance(begin(all), end(all)));
}

}  // namespace trainyard::testing
