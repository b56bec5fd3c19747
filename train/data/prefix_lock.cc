#include "train/data/prefix_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files.h"

namespace trainyard {
namespace {

std::string LockPath(const std::string& prefix) { return prefix + ".lock"; }

// Whether the path still leads to the open file.
bool IsAt(int fd, const std::string& path) {
  struct stat open = {}, at_path = {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &at_path) == 0 &&
         open.st_dev == at_path.st_dev && open.st_ino == at_path.st_ino;
}

}  // namespace

absl::StatusOr<PrefixLock> PrefixLock::Take(const std::string& prefix) {
  const std::string path = LockPath(prefix);
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoStatus(errno, "open", path);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      if (IsAt(fd, path)) return PrefixLock(prefix, fd);
      ::close(fd);  // Its holder has just ended, and has removed the file.
      continue;
    }
    const int error = errno;
    ::close(fd);
    if (error != EWOULDBLOCK) return ErrnoStatus(error, "lock", path);
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     ": another run is writing the files of this prefix; wait until it ends, or "
                     "take another prefix"));
  }
}

PrefixLock::~PrefixLock() {
  if (fd_ < 0) return;
  ::unlink(LockPath(prefix_).c_str());  // Before the lock is released: the file is still ours.
  ::close(fd_);
}

}  // namespace trainyard
