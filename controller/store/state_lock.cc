#include "controller/store/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard::controller {

absl::StatusOr<StateLock> StateLock::Take(const std::string& directory) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = directory + "/lock";
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) return ErrnoStatus(errno, "open", path);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    const std::string owner = ReadFile(path, 64).value_or("unknown");
    return absl::FailedPreconditionError(
        absl::StrCat("state directory ", directory, " is in use by process ",
                     absl::StripSuffix(owner, "\n"), ": stop it, or give another --state"));
  }
  const std::string owner = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), owner.data(), owner.size(), 0) != ssize_t(owner.size())) {
    return ErrnoStatus(errno, "write", path);
  }
  return StateLock(std::move(file));
}

}  // namespace trainyard::controller
