#include "worker/channel/line_socket.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "worker/channel/messages.h"

namespace trainyard::channel {
namespace {

// The address of a socket. An address holds 107 bytes of path. A longer path is opened through a
// descriptor of its directory, which must stay open until bind or connect.
struct Address {
  sockaddr_un socket = {};
  FileDescriptor directory;
};

absl::StatusOr<Address> AddressOf(const std::string& path) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof(address.socket.sun_path)) {
    const std::filesystem::path whole(path);
    const std::string parent = whole.parent_path().string();
    address.directory = FileDescriptor(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (address.directory.get() < 0) return ErrnoStatus(errno, "open", parent);
    name = absl::StrCat("/proc/self/fd/", address.directory.get(), "/", whole.filename().string());
  }
  if (name.size() >= sizeof(address.socket.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file name of socket ", path, " is too long: wanted at most 80 bytes"));
  }
  std::memcpy(address.socket.sun_path, name.data(), name.size());
  return address;
}

FileDescriptor NewSocket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

const sockaddr* Generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.socket);
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

absl::StatusOr<FileDescriptor> ListenUnix(const std::string& path) {
  ASSIGN_OR_RETURN(const Address address, AddressOf(path));
  FileDescriptor fd = NewSocket();
  if (fd.get() < 0) return ErrnoStatus(errno, "create socket", path);
  ::unlink(path.c_str());
  if (::bind(fd.get(), Generic(address), sizeof(address.socket)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), 8) != 0) {
    return ErrnoStatus(errno, "listen on", path);
  }
  return fd;
}

absl::StatusOr<FileDescriptor> ConnectUnix(const std::string& path) {
  ASSIGN_OR_RETURN(const Address address, AddressOf(path));
  FileDescriptor fd = NewSocket();
  if (fd.get() < 0) return ErrnoStatus(errno, "create socket", path);
  // A Unix socket connects at once or not at all.
  if (::connect(fd.get(), Generic(address), sizeof(address.socket)) != 0) {
    return ErrnoStatus(errno, "connect to", path);
  }
  return fd;
}

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(fd_.get() >= 0) << "eventfd: " << std::strerror(errno);
}
void Wakeup::Signal() {
  // This fails only if the counter is full, and then the thread is awake anyway.
  [[maybe_unused]] const int result = ::eventfd_write(fd_.get(), 1);
}
void Wakeup::Clear() {
  eventfd_t count;
  [[maybe_unused]] const int result = ::eventfd_read(fd_.get(), &count);
}

void LineSocket::Queue(absl::string_view line) { absl::StrAppend(&outgoing_, line, "\n"); }

absl::Status LineSocket::Read(std::vector<std::string>& lines) {
  char chunk[16384];
  bool gone = false;
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), chunk, sizeof(chunk), 0);
    if (n < 0 && WouldBlock(errno)) break;
    gone = n <= 0;
    if (gone) break;
    incoming_.append(chunk, size_t(n));
    size_t begin = 0;
    for (size_t end; (end = incoming_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      lines.push_back(incoming_.substr(begin, end - begin));
    }
    incoming_.erase(0, begin);
    if (incoming_.size() > kMaxLineBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a line is longer than ", kMaxLineBytes, " bytes"));
    }
  }
  return gone ? absl::UnavailableError("the peer closed the connection") : absl::OkStatus();
}

absl::Status LineSocket::Write() {
  while (!outgoing_.empty()) {
    const ssize_t n = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (n < 0 && WouldBlock(errno)) return absl::OkStatus();
    if (n < 0) return absl::UnavailableError(std::strerror(errno));
    outgoing_.erase(0, size_t(n));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::channel
