#include "common/canonical.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/read_all.h"
#include "common/status_macros.h"

namespace trainyard {

absl::StatusOr<FileDescriptor> OpenCanonical(const std::string& path, int flags) {
  open_how how = {};
  how.flags = uint64_t(flags | O_RDONLY | O_CLOEXEC);
  how.resolve = RESOLVE_NO_SYMLINKS;
  long fd = ::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof(how));
  // A kernel before 5.6, or a sandbox that refuses calls that it does not know: then a link in the
  // middle is followed.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM))
    fd = ::open(path.c_str(), int(how.flags) | O_NOFOLLOW);
  if (fd >= 0) return FileDescriptor(int(fd));
  if (errno != ELOOP) return ErrnoStatus(errno, "open", path);
  return absl::PermissionDeniedError(
      absl::StrCat("cannot open ", path, ": wanted a path without links, found one"));
}

absl::StatusOr<std::vector<std::string>> ListCanonical(const std::string& path) {
  ASSIGN_OR_RETURN(FileDescriptor fd, OpenCanonical(path, O_DIRECTORY));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(fd.get()), ::closedir);
  if (directory == nullptr) return ErrnoStatus(errno, "list", path);
  fd.Release();
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return ErrnoStatus(errno, "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> ReadCanonical(const std::string& path, uint64_t limit_bytes) {
  // Non-blocking, because a named pipe would block for ever.
  ASSIGN_OR_RETURN(const FileDescriptor fd, OpenCanonical(path, O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  return ReadAll(fd.get(), path, limit_bytes);
}

}  // namespace trainyard
