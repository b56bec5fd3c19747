// Records what a program changes in one directory, as the kernel is asked for it: preloaded
// (LD_PRELOAD) into the program. RECORD_ROOT is the directory, by its canonical path, RECORD_LOG
// the file that gets a record (trace.h) for each call once it has returned well.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/power_cut/trace.h"

namespace {

using trainyard::power_cut::Call;
using trainyard::power_cut::Header;

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::recursive_mutex& Mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

void Record(Call call, int64_t number, int64_t offset, const std::string& name, const void* data,
            size_t bytes) {
  static const char* const path = std::getenv("RECORD_LOG");
  if (path == nullptr) return;
  const std::lock_guard lock(Mutex());
  static const int log = Next<int(const char*, int, ...)>("open")(
      path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const Header header = {uint32_t(call), uint32_t(name.size()), number, offset, uint64_t(bytes)};
  static const auto append = Next<ssize_t(int, const void*, size_t)>("write");
  std::string record(reinterpret_cast<const char*>(&header), sizeof(header));
  record += name;
  record.append(static_cast<const char*>(data), bytes);
  if (append(log, record.data(), record.size()) != ssize_t(record.size())) std::abort();
}

// The path below the root; empty where it lies elsewhere.
std::string Inside(int directory, const char* path) {
  static const char* const root = std::getenv("RECORD_ROOT");
  if (root == nullptr || path == nullptr) return "";
  std::string whole = path;
  if (path[0] != '/') {
    char base[PATH_MAX];
    const std::string link =
        directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(directory);
    const ssize_t n = ::readlink(link.c_str(), base, sizeof(base));
    if (n < 0) return "";
    whole = std::string(base, size_t(n)) + "/" + path;
  }
  const std::string prefix = std::string(root) + "/";
  if (whole == root) return ".";
  return whole.compare(0, prefix.size(), prefix) == 0 ? whole.substr(prefix.size()) : "";
}

// Where a descriptor's file lies below the root; empty where it lies elsewhere.
std::string PathOf(int fd) {
  char path[PATH_MAX];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path));
  if (n < 0) return "";
  std::string whole(path, size_t(n));
  constexpr char kGone[] = " (deleted)";
  if (whole.ends_with(kGone)) whole.resize(whole.size() - std::strlen(kGone));
  return Inside(AT_FDCWD, whole.c_str());
}

int64_t Inode(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 ? int64_t(status.st_ino) : -1;
}

int Open(int directory, const char* path, int flags, mode_t mode) {
  static const auto next = Next<int(int, const char*, int, ...)>("openat64");
  const std::string inside = Inside(directory, path);
  if (inside.empty()) return next(directory, path, flags, mode);
  const std::lock_guard lock(Mutex());
  struct stat status;
  const bool existed = ::fstatat(directory, path, &status, 0) == 0;
  const int fd = next(directory, path, flags, mode);
  if (fd < 0) return fd;
  if (!existed) {
    Record(Call::kCreate, Inode(fd), 0, inside, nullptr, 0);
  } else if ((flags & O_TRUNC) != 0) {
    Record(Call::kTruncate, Inode(fd), 0, "", nullptr, 0);
  }
  return fd;
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

void Wrote(int fd, int64_t offset, const void* data, ssize_t bytes) {
  if (bytes > 0 && !PathOf(fd).empty()) {
    Record(Call::kWrite, Inode(fd), offset, "", data, size_t(bytes));
  }
}

void Synced(int fd, int result) {
  if (result == 0 && !PathOf(fd).empty()) {
    Record(Call::kSync, Inode(fd), 0, PathOf(fd), nullptr, 0);
  }
}

void Renamed(Call call, int from_directory, const char* from, int to_directory, const char* to) {
  const std::string inside = Inside(from_directory, from);
  const std::string target = Inside(to_directory, to);
  if (!inside.empty()) Record(call, 0, 0, inside, target.data(), target.size());
}

void Removed(int directory, const char* path) {
  const std::string inside = Inside(directory, path);
  if (!inside.empty()) Record(Call::kRemove, 0, 0, inside, nullptr, 0);
}

}  // namespace

extern "C" {

// For the program itself: what it has promised by now.
void RecordMark(const char* text) { Record(Call::kMark, 0, 0, text, nullptr, 0); }

#define TRAINYARD_OPEN(NAME)                      \
  int NAME(const char* path, int flags, ...) {    \
    va_list arguments;                            \
    va_start(arguments, flags);                   \
    const mode_t mode = ModeOf(flags, arguments); \
    va_end(arguments);                            \
    return Open(AT_FDCWD, path, flags, mode);     \
  }
TRAINYARD_OPEN(open)
TRAINYARD_OPEN(open64)

#define TRAINYARD_OPENAT(NAME)                                \
  int NAME(int directory, const char* path, int flags, ...) { \
    va_list arguments;                                        \
    va_start(arguments, flags);                               \
    const mode_t mode = ModeOf(flags, arguments);             \
    va_end(arguments);                                        \
    return Open(directory, path, flags, mode);                \
  }
TRAINYARD_OPENAT(openat)
TRAINYARD_OPENAT(openat64)

int __open_2(const char* path, int flags) { return Open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return Open(AT_FDCWD, path, flags, 0); }

ssize_t write(int fd, const void* data, size_t bytes) {
  static const auto next = Next<ssize_t(int, const void*, size_t)>("write");
  if (PathOf(fd).empty()) return next(fd, data, bytes);
  const std::lock_guard lock(Mutex());
  struct stat status;
  const bool appends = (::fcntl(fd, F_GETFL) & O_APPEND) != 0;
  const int64_t offset = appends && ::fstat(fd, &status) == 0 ? int64_t(status.st_size)
                                                              : int64_t(::lseek(fd, 0, SEEK_CUR));
  const ssize_t n = next(fd, data, bytes);
  Wrote(fd, offset, data, n);
  return n;
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  const std::lock_guard lock(Mutex());
  const ssize_t n =
      Next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, data, bytes, offset);
  Wrote(fd, offset, data, n);
  return n;
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return pwrite(fd, data, bytes, offset);
}

// Nobody may change a file past this record.
ssize_t pwritev(int, const iovec*, int, off_t) { std::abort(); }
ssize_t copy_file_range(int, off64_t*, int, off64_t*, size_t, unsigned) { std::abort(); }

int ftruncate(int fd, off_t size) noexcept {
  const std::lock_guard lock(Mutex());
  const int result = Next<int(int, off_t)>("ftruncate")(fd, size);
  if (result == 0 && !PathOf(fd).empty()) {
    Record(Call::kTruncate, Inode(fd), size, "", nullptr, 0);
  }
  return result;
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }

int fsync(int fd) {
  const int result = Next<int(int)>("fsync")(fd);
  Synced(fd, result);
  return result;
}
int fdatasync(int fd) {
  const int result = Next<int(int)>("fdatasync")(fd);
  Synced(fd, result);
  return result;
}

int rename(const char* from, const char* to) noexcept {
  const std::lock_guard lock(Mutex());
  const int result = Next<int(const char*, const char*)>("rename")(from, to);
  if (result == 0) Renamed(Call::kRename, AT_FDCWD, from, AT_FDCWD, to);
  return result;
}
int link(const char* from, const char* to) noexcept {
  const std::lock_guard lock(Mutex());
  const int result = Next<int(const char*, const char*)>("link")(from, to);
  if (result == 0) Renamed(Call::kLink, AT_FDCWD, from, AT_FDCWD, to);
  return result;
}
int unlink(const char* path) noexcept {
  const std::lock_guard lock(Mutex());
  const int result = Next<int(const char*)>("unlink")(path);
  if (result == 0) Removed(AT_FDCWD, path);
  return result;
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  const std::lock_guard lock(Mutex());
  const int result = Next<int(int, const char*, int)>("unlinkat")(directory, path, flags);
  if (result == 0) Removed(directory, path);
  return result;
}
int rmdir(const char* path) noexcept {
  const std::lock_guard lock(Mutex());
  const int result = Next<int(const char*)>("rmdir")(path);
  if (result == 0) Removed(AT_FDCWD, path);
  return result;
}
int remove(const char* path) noexcept {
  struct stat status;
  if (::lstat(path, &status) != 0) return -1;
  return S_ISDIR(status.st_mode) ? ::rmdir(path) : ::unlink(path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  const std::lock_guard lock(Mutex());
  const int result = Next<int(const char*, mode_t)>("mkdir")(path, mode);
  if (result == 0 && !Inside(AT_FDCWD, path).empty()) {
    Record(Call::kMakeDirectory, 0, 0, Inside(AT_FDCWD, path), nullptr, 0);
  }
  return result;
}

}  // extern "C"
