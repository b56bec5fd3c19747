#include "tests/controller/testing/disk_that_hangs.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

// In place of the C library's: the linker takes a program's own functions first.
extern "C" int fsync(int fd) {
  trainyard::controller::DiskThatHangs::BeforeSync(fd);
  return int(::syscall(SYS_fsync, fd));
}

namespace trainyard::controller {

void DiskThatHangs::BeforeSync(int fd) {
  char path[4096] = {};
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  if (!hangs_ || ::readlink(link.c_str(), path, sizeof(path) - 1) <= 0 ||
      !absl::StrContains(path, "/grants")) {
    return;
  }
  ++waiting_;
  while (hangs_) ::usleep(1000);
  --waiting_;
}

void DiskThatHangs::AwaitCaller() const {
  while (waiting_ == 0) ::usleep(1000);
}

}  // namespace trainyard::controller
