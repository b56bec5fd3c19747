#include "train/tools/prefix_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/file_descriptor.h"
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
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644));
    if (!file.valid()) return ErrnoStatus(errno, "open", path);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      if (IsAt(file.get(), path)) return PrefixLock(prefix, std::move(file));
      continue;  // Its holder has just ended, and has removed the file.
    }
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     ": another run is writing the files of this prefix; wait until it ends, or "
                     "take another prefix"));
  }
}

PrefixLock::~PrefixLock() {
  // Before the lock is released: the file is still ours.
  if (file_.valid()) ::unlink(LockPath(prefix_).c_str());
}

}  // namespace trainyard
