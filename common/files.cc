#include "common/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/canonical.h"
#include "common/file_descriptor.h"
#include "common/read_all.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

absl::Status WriteAndSync(const std::string& path, absl::string_view contents) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return ErrnoStatus(errno, "create", path);
  while (!contents.empty()) {
    const ssize_t n = ::write(file.get(), contents.data(), contents.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", path);
    contents.remove_prefix(size_t(n));
  }
  if (::fsync(file.get()) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> OpenRegular(const std::string& path, int flags, nlink_t most_names) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
  if (file.get() < 0) return ErrnoStatus(errno, "open", path);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISREG(info.st_mode) || info.st_nlink > most_names) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  return file;
}

absl::StatusOr<FileDescriptor> OpenFileOfOthers(const std::string& path) {
  return OpenRegular(path, O_NOFOLLOW, 1);
}

std::string Parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

absl::Status ErrnoStatus(int error, absl::string_view doing, absl::string_view path) {
  const std::string text = absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EROFS:
      return absl::FailedPreconditionError(text);  // A retry would not help.
    default:
      return absl::InternalError(text);
  }
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path, uint64_t limit_bytes) {
  std::string contents;
  std::string chunk(1 << 16, '\0');
  for (;;) {
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path);
    if (n == 0) return contents;
    contents.append(chunk, 0, size_t(n));
    if (contents.size() > limit_bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is larger than ", limit_bytes, " bytes"));
    }
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t limit_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, "open", path);
  return ReadAll(file.get(), path, limit_bytes);
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, uint64_t limit_bytes) {
  ASSIGN_OR_RETURN(const FileDescriptor file,
                   OpenRegular(path, 0, std::numeric_limits<nlink_t>::max()));
  return ReadAll(file.get(), path, limit_bytes);
}

absl::StatusOr<std::string> ReadFileOfOthers(const std::string& path, uint64_t limit_bytes) {
  ASSIGN_OR_RETURN(const FileDescriptor file, OpenFileOfOthers(path));
  return ReadAll(file.get(), path, limit_bytes);
}

absl::StatusOr<std::string> ReadPartOfOthers(const std::string& path, uint64_t offset,
                                             uint64_t bytes) {
  ASSIGN_OR_RETURN(const FileDescriptor file, OpenFileOfOthers(path));
  std::string part(bytes, '\0');
  size_t got = 0;
  while (got < bytes) {
    const ssize_t n = ::pread(file.get(), &part[got], bytes - got, off_t(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path);
    if (n == 0) break;  // The end of the file. A read may also be short for other reasons.
    got += size_t(n);
  }
  part.resize(got);
  return part;
}

absl::Status SyncFileOfOthers(const std::string& path) {
  ASSIGN_OR_RETURN(const FileDescriptor file, OpenFileOfOthers(path));
  if (::fdatasync(file.get()) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents) {
  const std::string temporary = path + ".tmp";
  if (absl::Status status = WriteAndSync(temporary, contents); !status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename to", path);
  return SyncDirectory(Parent(path));
}

absl::Status CheckReplaceable(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot replace ", path, ": wanted a regular file, found something else"));
  }
  const std::string temporary = path + ".tmp";
  const FileDescriptor file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) return ErrnoStatus(errno, "create", temporary);
  ::unlink(temporary.c_str());
  return absl::OkStatus();
}

absl::Status SyncFile(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, "open", path);
  if (::fdatasync(file.get()) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return ErrnoStatus(errno, "open", path);
  if (::fsync(directory.get()) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), "create directory", path) : absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? ErrnoStatus(error.value(), "remove", path) : absl::OkStatus();
}

void DropCached(const std::string& path) {
  const auto file = OpenCanonical(path, O_NONBLOCK | O_NOCTTY);
  if (file.ok()) (void)::posix_fadvise(file->get(), 0, 0, POSIX_FADV_DONTNEED);
}

void DropCachedFiles(const std::string& directory) {
  const auto names = ListCanonical(directory);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    DropCached(directory + "/" + name);
  }
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace trainyard
