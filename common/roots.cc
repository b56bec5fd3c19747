#include "common/roots.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// A path, split at the root that it lies below.
struct Below {
  std::string root;
  std::string rest;  // Relative; never empty.
};

std::string Canonical(int fd) {
  char path[PATH_MAX];
  const ssize_t n = ::readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path, sizeof(path));
  return n < 0 ? "" : std::string(path, size_t(n));
}

// Used where the kernel (before 5.6) or a sandbox has no openat2. Resolves the path, compares it
// with the root, then opens the result. A link that changes in between could lead outside, which
// openat2 prevents.
int OpenResolved(int root, const char* rest, int flags) {
  const std::string base = Canonical(root);
  std::error_code error;
  const std::string resolved = std::filesystem::canonical(base + "/" + rest, error).string();
  if (error) return -error.value();
  if (resolved != base && resolved.rfind(base == "/" ? base : base + "/", 0) != 0) return -EXDEV;
  const int fd = ::open(resolved.c_str(), flags | O_NOFOLLOW);
  return fd < 0 ? -errno : fd;
}

// Returns a descriptor, or -errno. -EXDEV: the path leads out of the root.
int OpenBelow(int root, const std::string& rest, int flags, bool confined) {
  flags |= O_CLOEXEC;
  if (!confined) {
    const int fd = ::openat(root, rest.c_str(), flags);
    return fd < 0 ? -errno : fd;
  }
  open_how how = {};
  how.flags = uint64_t(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const long fd = ::syscall(SYS_openat2, root, rest.c_str(), &how, sizeof(how));
  if (fd >= 0) return int(fd);
  return errno == ENOSYS ? OpenResolved(root, rest.c_str(), flags) : -errno;
}

// Returns the part of an absolute path below `root`: "." for the root itself. Absent: the path lies
// outside.
std::optional<std::string> RestBelow(const std::string& path, std::string root) {
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  if (path == root) return ".";
  const std::string prefix = root == "/" ? root : root + "/";
  if (path.rfind(prefix, 0) != 0) return std::nullopt;
  const size_t start = path.find_first_not_of('/', prefix.size());
  return start == std::string::npos ? "." : path.substr(start);
}

// Returns the roots that a path may be opened below. A relative path may be below any, in order.
std::vector<Below> Choices(const std::string& path, const std::vector<std::string>& roots) {
  const bool absolute = !path.empty() && path[0] == '/';
  if (roots.empty()) {
    const size_t start = path.find_first_not_of('/');
    if (!absolute) return {{".", path.empty() ? "." : path}};
    return {{"/", start == std::string::npos ? "." : path.substr(start)}};
  }
  std::vector<Below> choices;
  for (const std::string& root : roots) {
    if (!absolute) {
      choices.push_back({root, path.empty() ? "." : path});
      continue;
    }
    // The caller gets canonical paths, so these must be accepted even below a root that is a link.
    std::optional<std::string> rest = RestBelow(path, root);
    std::error_code error;
    const std::string canonical = std::filesystem::canonical(root, error).string();
    if (!rest && !error) rest = RestBelow(path, canonical);
    if (rest) choices.push_back({root, *rest});
  }
  return choices;
}

// What helps if a path lies outside of the roots.
constexpr absl::string_view kToAddARoot =
    "; to add a root: trainyard up --root DIR, or trainyard-worker --root DIR";

absl::Status OpenError(int error, absl::string_view doing, const std::string& path,
                       const std::vector<std::string>& roots) {
  if (error == EXDEV || error == ELOOP) {
    return absl::PermissionDeniedError(absl::StrCat("cannot ", doing, " ", path,
                                                    ": it leads out of ",
                                                    absl::StrJoin(roots, ", "), kToAddARoot));
  }
  return ErrnoStatus(error, doing, path);
}

absl::StatusOr<FileDescriptor> OpenFirst(const std::string& path,
                                         const std::vector<std::string>& roots, int flags) {
  const std::vector<Below> choices = Choices(path, roots);
  if (choices.empty()) {
    return absl::PermissionDeniedError(absl::StrCat("cannot open ", path, ": it is not below ",
                                                    absl::StrJoin(roots, ", "), kToAddARoot));
  }
  int first_error = 0;
  for (const Below& below : choices) {
    // The directory is only passed through. A user who may not list it may still open files in it.
    const FileDescriptor root(::open(below.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const int fd = root.valid() ? OpenBelow(root.get(), below.rest, flags, !roots.empty()) : -errno;
    if (fd >= 0) return FileDescriptor(fd);
    if (first_error == 0 || first_error == ENOENT) first_error = -fd;
  }
  return OpenError(first_error, "open", path, roots);
}

absl::StatusOr<std::string> CanonicalDirectory(const FileDescriptor& fd, const std::string& path) {
  std::string canonical = Canonical(fd.get());
  if (canonical.empty()) return ErrnoStatus(errno, "resolve", path);
  return canonical;
}

}  // namespace

bool MayLieBelow(const std::string& path, const std::string& root) {
  return path.empty() || path[0] != '/' || RestBelow(path, root).has_value();
}

std::vector<std::string> CommonRoots(const std::vector<std::string>& a,
                                     const std::vector<std::string>& b) {
  std::vector<std::string> common;
  for (const std::string& one : a) {
    for (const std::string& other : b) {
      if (MayLieBelow(one, other)) {
        common.push_back(one);
      } else if (MayLieBelow(other, one)) {
        common.push_back(other);
      }
    }
  }
  return common;
}

absl::StatusOr<FileDescriptor> Roots::OpenFile(const std::string& path) const {
  // Non-blocking, because a named pipe would block the trainer for ever.
  ASSIGN_OR_RETURN(FileDescriptor fd, OpenFirst(path, roots_, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return fd;
}

absl::StatusOr<std::string> Roots::FindDirectory(const std::string& path) const {
  ASSIGN_OR_RETURN(const FileDescriptor fd, OpenFirst(path, roots_, O_RDONLY | O_DIRECTORY));
  return CanonicalDirectory(fd, path);
}

absl::StatusOr<std::string> Roots::MakeDirectory(const std::string& path) const {
  absl::StatusOr<std::string> found = FindDirectory(path);
  if (found.ok() || !absl::IsNotFound(found.status())) return found;
  const Below below = Choices(path, roots_).front();
  FileDescriptor directory(::open(below.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return ErrnoStatus(errno, "open", below.root);
  const FileDescriptor root(::fcntl(directory.get(), F_DUPFD_CLOEXEC, 0));
  std::string so_far;
  for (absl::string_view part : absl::StrSplit(below.rest, '/', absl::SkipEmpty())) {
    const std::string name(part);
    absl::StrAppend(&so_far, so_far.empty() ? "" : "/", name);
    int fd = OpenBelow(root.get(), so_far, O_RDONLY | O_DIRECTORY, !roots_.empty());
    if (fd == -ENOENT) {
      // If another process makes the directory at the same time, that is fine.
      if (::mkdirat(directory.get(), name.c_str(), 0755) != 0 && errno != EEXIST) {
        return ErrnoStatus(errno, "create directory", path);
      }
      if (::fsync(directory.get()) != 0) return ErrnoStatus(errno, "sync directory of", path);
      fd = OpenBelow(root.get(), so_far, O_RDONLY | O_DIRECTORY, !roots_.empty());
    }
    if (fd < 0) return OpenError(-fd, "create directory", path, roots_);
    directory = FileDescriptor(fd);
  }
  return CanonicalDirectory(directory, path);
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path, const Roots& roots) {
  InputFile file;
  ASSIGN_OR_RETURN(file.fd_, roots.OpenFile(path));
  struct stat info;
  if (::fstat(file.fd_.get(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  file.size_ = uint64_t(info.st_size);
  file.path_ = path;
  return file;
}

std::string InputFile::CanonicalPath() const { return Canonical(fd_.get()); }

absl::StatusOr<int64_t> InputFile::ChangedNanoseconds() const {
  struct stat info;
  if (::fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, "stat", path_);
  return int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

absl::Status InputFile::ReadAt(uint64_t offset, void* out, size_t bytes) const {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_.get(), to, bytes, off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path_);
    if (n == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends before byte ", offset + bytes,
                                              ": it was truncated after it was opened"));
    }
    to += n;
    offset += uint64_t(n);
    bytes -= size_t(n);
  }
  return absl::OkStatus();
}

}  // namespace trainyard
