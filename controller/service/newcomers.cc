#include "controller/service/newcomers.h"

#include <poll.h>
#include <sys/socket.h>

namespace trainyard::controller {

bool Newcomers::Crowded(size_t most, absl::Duration now) {
  std::erase_if(accepted_, [&](const auto& each) { return now - each.second > young_; });
  size_t unread = 0;
  for (const auto& [fd, at] : accepted_) {
    char byte;
    if (::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && ++unread == most) return true;
  }
  return false;
}

bool PeerIsGone(int fd) {
  pollfd polled = {.fd = fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&polled, 1, 0) == 1 && polled.revents != 0;
}

}  // namespace trainyard::controller
