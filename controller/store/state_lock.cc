#include "controller/store/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard::controller {

absl::StatusOr<StateLock> StateLock::Take(const std::string& directory) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = directory + "/lock";
  StateLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.fd_ < 0) return ErrnoStatus(errno, "open", path);
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    const std::string owner = ReadFile(path, 64).value_or("unknown");
    return absl::FailedPreconditionError(
        absl::StrCat("state directory ", directory, " is in use by process ",
                     absl::StripSuffix(owner, "\n"), ": stop it, or give another --state"));
  }
  const std::string owner = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(lock.fd_, 0) != 0 ||
      ::pwrite(lock.fd_, owner.data(), owner.size(), 0) != ssize_t(owner.size())) {
    return ErrnoStatus(errno, "write", path);
  }
  return lock;
}

StateLock::~StateLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace trainyard::controller
