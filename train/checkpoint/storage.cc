#include "train/checkpoint/storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "common/files.h"
#include "common/roots.h"

namespace trainyard {
namespace {

class LocalFile final : public OutputFile {
 public:
  LocalFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Append(const void* data, size_t bytes) override {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_.get(), from, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write", path_);
      from += n;
      bytes -= size_t(n);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return ::fsync(fd_.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "sync", path_);
  }

 private:
  const FileDescriptor fd_;
  const std::string path_;
};

class LocalFiles final : public Storage {
 public:
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override {
    return Open(path, O_TRUNC);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> OpenAppend(const std::string& path) override {
    return Open(path, O_APPEND);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                   : ErrnoStatus(errno, "rename to", to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    if (::link(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return errno == EEXIST ? absl::AlreadyExistsError(to) : ErrnoStatus(errno, "link to", to);
  }
  absl::Status Remove(const std::string& path) override {
    return std::remove(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus()
                                                             : ErrnoStatus(errno, "remove", path);
  }
  absl::Status MakeDirectory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return absl::OkStatus();
    struct stat info;
    const int error = errno;
    const bool exists =
        error == EEXIST && ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    return exists ? absl::OkStatus() : ErrnoStatus(error, "create directory", path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return trainyard::SyncDirectory(path);
  }

 private:
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path, int flag) {
    // Does not follow a link, which could lead out of the job's roots. Does not wait for the reader
    // of a pipe.
    FileDescriptor fd(::open(
        path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flag, 0644));
    if (!fd.valid()) return ErrnoStatus(errno, "create", path);
    return std::make_unique<LocalFile>(std::move(fd), path);
  }
};

}  // namespace

Storage& LocalStorage() {
  static LocalFiles files;  // Has no state.
  return files;
}

}  // namespace trainyard
