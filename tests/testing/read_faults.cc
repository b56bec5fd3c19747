#include "tests/testing/read_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace trainyard {
namespace {

struct Planned {
  const FaultyReads* owner;
  ReadFault fault;
  std::string path;
  int left;
  int met = 0;
};

struct State {
  std::mutex mutex;
  std::vector<Planned> planned;
  std::map<int, ReadFault> open_files;  // Those whose reads have a fault.
};

State& Faults() {
  static State& faults = *new State();  // Files are opened until the process ends.
  return faults;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::optional<ReadFault> FaultOf(std::string_view path) {
  State& faults = Faults();
  const std::lock_guard lock(faults.mutex);
  for (Planned& one : faults.planned) {
    if (one.left == 0 || !path.ends_with(one.path)) continue;
    --one.left;
    ++one.met;
    return one.fault;
  }
  return std::nullopt;
}

std::optional<ReadFault> FaultOf(int fd) {
  State& faults = Faults();
  const std::lock_guard lock(faults.mutex);
  const auto it = faults.open_files.find(fd);
  return it == faults.open_files.end() ? std::nullopt : std::optional(it->second);
}

// The error of open; 0: it succeeds.
int ErrorOf(ReadFault fault) {
  switch (fault) {
    case ReadFault::kEmfile:
      return EMFILE;
    case ReadFault::kEacces:
      return EACCES;
    case ReadFault::kEnoent:
      return ENOENT;
    default:
      return 0;
  }
}

int Opened(int fd, std::optional<ReadFault> fault) {
  State& faults = Faults();
  const std::lock_guard lock(faults.mutex);
  faults.open_files.erase(fd);
  if (fd >= 0 && fault) faults.open_files[fd] = *fault;
  return fd;
}

}  // namespace

FaultyReads::FaultyReads(ReadFault fault, std::string path, int times) {
  std::vector<int> open;
  if (fault == ReadFault::kEio || fault == ReadFault::kShort) {
    std::error_code none;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", none)) {
      const std::string file = std::filesystem::read_symlink(each.path(), none).string();
      if (file.ends_with(path)) open.push_back(std::stoi(each.path().filename()));
    }
  }
  State& faults = Faults();
  const std::lock_guard lock(faults.mutex);
  for (const int fd : open) faults.open_files[fd] = fault;
  faults.planned.push_back({this, fault, std::move(path), times});
}

FaultyReads::~FaultyReads() {
  State& faults = Faults();
  const std::lock_guard lock(faults.mutex);
  std::erase_if(faults.planned, [&](const Planned& one) { return one.owner == this; });
  if (faults.planned.empty()) faults.open_files.clear();
}

int FaultyReads::met() const {
  State& faults = Faults();
  const std::lock_guard lock(faults.mutex);
  const auto it = std::find_if(faults.planned.begin(), faults.planned.end(),
                               [&](const Planned& one) { return one.owner == this; });
  return it == faults.planned.end() ? 0 : it->met;
}

}  // namespace trainyard

extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  std::optional<trainyard::ReadFault> fault;
  if ((flags & O_ACCMODE) == O_RDONLY) fault = trainyard::FaultOf(path);
  if (fault && trainyard::ErrorOf(*fault) != 0) {
    errno = trainyard::ErrorOf(*fault);
    return -1;
  }
  return trainyard::Opened(trainyard::Next<int(const char*, int, ...)>("open")(path, flags, mode),
                           fault);
}

// SQLite opens what it reads to be written, too.
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const auto fault = trainyard::FaultOf(path);
  if (fault && trainyard::ErrorOf(*fault) != 0) {
    errno = trainyard::ErrorOf(*fault);
    return -1;
  }
  const auto next = trainyard::Next<int(const char*, int, ...)>("open64");
  return trainyard::Opened(next(path, flags, mode), fault);
}

// The standard library lists a directory so.
int openat(int directory, const char* path, int flags, ...) {
  const auto fault = flags & O_DIRECTORY ? trainyard::FaultOf(path) : std::nullopt;
  if (fault) {
    errno = trainyard::ErrorOf(*fault) != 0 ? trainyard::ErrorOf(*fault) : EIO;
    return -1;
  }
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  const auto next = trainyard::Next<int(int, const char*, int, ...)>("openat");
  return trainyard::Opened(next(directory, path, flags, mode), std::nullopt);
}

ssize_t read(int fd, void* to, size_t bytes) {
  const auto fault = trainyard::FaultOf(fd);
  if (fault == trainyard::ReadFault::kEio) {
    errno = EIO;
    return -1;
  }
  if (fault == trainyard::ReadFault::kShort) bytes = (bytes + 1) / 2;
  return trainyard::Next<ssize_t(int, void*, size_t)>("read")(fd, to, bytes);
}

ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  const auto fault = trainyard::FaultOf(fd);
  if (fault == trainyard::ReadFault::kEio) {
    errno = EIO;
    return -1;
  }
  if (fault == trainyard::ReadFault::kShort) bytes = (bytes + 1) / 2;
  return trainyard::Next<ssize_t(int, void*, size_t, off_t)>("pread")(fd, to, bytes, offset);
}

ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) {
  return pread(fd, to, bytes, offset);
}

}  // extern "C"
